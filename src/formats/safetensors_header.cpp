#include "formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";
// PyTorch and NumPy make no tensors of more dimensions; each costs a lying header 2 bytes and us 8.
constexpr std::size_t kMaxRank = 64;

// Follows nlohmann's SAX events through the only document the format allows:
//   { "__metadata__": { string: string … },
//     tensor: { "dtype": string, "shape": [uint …], "data_offsets": [uint, uint] } … }
// Every event that has no place there ends the parse with a message.
class HeaderReader {
 public:
  HeaderReader(std::string_view json, std::string_view what) : json_(json), what_(what) {}

  Result<SafetensorsHeader> read();

  // nlohmann's SAX interface.
  bool null() { return unexpected("null"); }
  bool boolean(bool value) { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return unexpected(fmt::format("{}", value)); }
  bool number_unsigned(std::uint64_t value);
  bool number_float(double, const std::string& text) { return unexpected(printable(text, 40)); }
  bool string(std::string& value);
  bool binary(Json::binary_t&) { return unexpected("binary data"); }
  bool start_object(std::size_t);
  bool key(std::string& name);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  template <typename Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    return refuse(ErrorCode::kCorrupt,
                  "The header of {} is not valid JSON at its byte {}, near \"{}\". Download the file again.",
                  what_, position, printable(json_.substr(position > 0 ? position - 1 : 0), 20));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kEntry, kShape, kOffsets, kEnd };
  enum Field : unsigned { kDType = 1, kShapeField = 2, kOffsetsField = 4, kAllFields = 7 };
  struct FieldName {
    std::string_view name;
    Field field;
  };
  static constexpr std::array<FieldName, 3> kFields = {
      {{"dtype", kDType}, {"shape", kShapeField}, {"data_offsets", kOffsetsField}}};

  template <typename... Args>
  bool refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_) error_ = Error{code, fmt::format(format, std::forward<Args>(args)...)};
    return false;
  }
  bool unexpected(std::string_view found);
  std::string position() const;
  Status check_names() const;

  std::string_view json_, what_;
  Place place_ = Place::kStart;
  SafetensorsHeader header_;
  SafetensorsHeader::Entry entry_;
  unsigned seen_fields_ = 0;
  Field field_ = kDType;
  bool value_pending_ = false;  // inside a tensor's object: a key was read, its value was not
  std::string metadata_key_;
  std::size_t offsets_seen_ = 0;
  bool metadata_seen_ = false;
  std::optional<Error> error_;
};

std::string HeaderReader::position() const {
  switch (place_) {
    case Place::kMetadata:
      return fmt::format("the {} entry {}", kMetadataKey, printable(metadata_key_));
    case Place::kEntry:
      return fmt::format("the tensor {}", printable(entry_.name));
    case Place::kShape:
      return fmt::format("the shape of the tensor {}", printable(entry_.name));
    case Place::kOffsets:
      return fmt::format("the data_offsets of the tensor {}", printable(entry_.name));
    default:
      return fmt::format("the entry {}", printable(entry_.name));
  }
}

bool HeaderReader::unexpected(std::string_view found) {
  return refuse(
      ErrorCode::kCorrupt,
      "The header of {} has {} in {}, where the safetensors format allows none. Download the file again.",
      what_, found, position());
}

bool HeaderReader::number_unsigned(std::uint64_t value) {
  if (place_ == Place::kShape) {
    if (entry_.shape.size() == kMaxRank) {
      return refuse(ErrorCode::kCorrupt,
                    "The tensor {} of {} has more than {} dimensions. Download the file again.",
                    printable(entry_.name), what_, kMaxRank);
    }
    entry_.shape.push_back(value);
    return true;
  }
  if (place_ == Place::kOffsets && offsets_seen_ < 2) {
    (offsets_seen_++ == 0 ? entry_.begin : entry_.end) = value;
    return true;
  }
  if (place_ == Place::kOffsets) {
    return refuse(ErrorCode::kCorrupt,
                  "The data_offsets of the tensor {} of {} are more than two numbers. "
                  "Download the file again.",
                  printable(entry_.name), what_);
  }
  return unexpected(fmt::format("{}", value));
}

bool HeaderReader::string(std::string& value) {
  if (place_ == Place::kMetadata) {
    header_.metadata.emplace(std::move(metadata_key_), std::move(value));
    return true;
  }
  if (place_ != Place::kEntry || field_ != kDType) return unexpected(fmt::format("\"{}\"", printable(value)));
  const auto dtype = dtype_from_name(value);
  if (!dtype || is_quantised(*dtype)) {  // GGUF's block types have no place in a safetensors file
    return refuse(ErrorCode::kUnsupported,
                  "The tensor {} of {} has the type {}, which the safetensors format does not know. "
                  "Update Doppler or convert the model.",
                  printable(entry_.name), what_, printable(value));
  }
  entry_.dtype = *dtype;
  value_pending_ = false;
  return true;
}

bool HeaderReader::start_object(std::size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kTop;
    return true;
  }
  if (place_ != Place::kTop) return unexpected("an object");
  place_ = entry_.name == kMetadataKey ? Place::kMetadata : Place::kEntry;
  seen_fields_ = 0;
  return true;
}

bool HeaderReader::key(std::string& name) {
  if (place_ == Place::kTop) {
    if (name == kMetadataKey && std::exchange(metadata_seen_, true)) {
      return refuse(ErrorCode::kCorrupt, "The header of {} has {} twice. Download the file again.", what_,
                    kMetadataKey);
    }
    entry_ = {};
    entry_.name = std::move(name);
    return true;
  }
  if (place_ == Place::kMetadata) {
    metadata_key_ = std::move(name);
    if (header_.metadata.contains(metadata_key_)) {
      return refuse(ErrorCode::kCorrupt, "The header of {} has {} twice. Download the file again.", what_,
                    position());
    }
    return true;
  }
  const auto field = std::ranges::find(kFields, name, &FieldName::name);
  if (field == kFields.end()) {
    return refuse(
        ErrorCode::kCorrupt,
        "The tensor {} of {} has the key {}; the safetensors format knows dtype, shape and data_offsets. "
        "Download the file again.",
        printable(entry_.name), what_, printable(name));
  }
  if ((seen_fields_ & field->field) != 0) {
    return refuse(ErrorCode::kCorrupt, "The tensor {} of {} has the key {} twice. Download the file again.",
                  printable(entry_.name), what_, name);
  }
  field_ = field->field;
  seen_fields_ |= field_;
  value_pending_ = true;
  return true;
}

bool HeaderReader::end_object() {
  if (place_ == Place::kEntry) {
    for (const FieldName& field : kFields) {
      if ((seen_fields_ & field.field) != 0) continue;
      return refuse(ErrorCode::kCorrupt, "The tensor {} of {} has no {}. Download the file again.",
                    printable(entry_.name), what_, field.name);
    }
    header_.entries.push_back(std::move(entry_));
    entry_ = {};
  }
  place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
  return true;
}

bool HeaderReader::start_array(std::size_t) {
  if (place_ != Place::kEntry || !value_pending_ || field_ == kDType) return unexpected("a list");
  value_pending_ = false;
  offsets_seen_ = 0;
  place_ = field_ == kShapeField ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeaderReader::end_array() {
  if (place_ == Place::kOffsets && offsets_seen_ != 2) {
    return refuse(ErrorCode::kCorrupt,
                  "The data_offsets of the tensor {} of {} are not two numbers. Download the file again.",
                  printable(entry_.name), what_);
  }
  place_ = Place::kEntry;
  return true;
}

Status HeaderReader::check_names() const {
  std::vector<std::string_view> names;
  names.reserve(header_.entries.size());
  for (const auto& entry : header_.entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return {};
  return fail(ErrorCode::kCorrupt, "The header of {} has the tensor {} twice. Download the file again.",
              what_, printable(*twice));
}

Result<SafetensorsHeader> HeaderReader::read() {
  // The parser takes a NUL for the end of its input and would ignore what follows.
  if (const std::size_t nul = json_.find('\0'); nul != std::string_view::npos) {
    return fail(ErrorCode::kCorrupt,
                "The header of {} is not valid JSON at its byte {}, near \"\\x00\". Download the file again.",
                what_, nul + 1);
  }
  const bool complete = Json::sax_parse(json_.begin(), json_.end(), this);
  if (error_) return std::unexpected(std::move(*error_));
  if (!complete || place_ != Place::kEnd) {
    return fail(ErrorCode::kCorrupt, "The header of {} is not a JSON object. Download the file again.",
                what_);
  }
  DOPPLER_TRY(check_names());
  return std::move(header_);
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Result<std::string> json_string(std::string_view text) {
  if (!is_utf8(text)) {
    return fail(ErrorCode::kUsage, "The name {} is not UTF-8, which safetensors needs. Choose another.",
                printable(text));
  }
  return Json(text).dump();  // throws only on invalid UTF-8
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, std::string_view what) {
  return HeaderReader(json, what).read();
}

Result<std::string> format_safetensors_header(const SafetensorsHeader& header) {
  std::string json = "{";
  if (!header.metadata.empty()) {
    json += fmt::format("\"{}\":{{", kMetadataKey);
    for (const auto& [key, value] : header.metadata) {
      DOPPLER_ASSIGN(const std::string quoted_key, json_string(key));
      DOPPLER_ASSIGN(const std::string quoted_value, json_string(value));
      if (json.back() != '{') json += ',';
      json += quoted_key + ":" + quoted_value;
    }
    json += '}';
  }
  std::set<std::string_view> names;
  for (const auto& entry : header.entries) {
    if (entry.name == kMetadataKey || !names.insert(entry.name).second) {
      return fail(ErrorCode::kUsage, "The tensor name {} is {}. Choose another.", printable(entry.name),
                  entry.name == kMetadataKey ? "reserved by the safetensors format" : "used twice");
    }
    if (is_quantised(entry.dtype)) {
      return fail(
          ErrorCode::kUsage,
          "The tensor {} has the type {}, which the safetensors format does not know. Store it as BF16.",
          printable(entry.name), dtype_name(entry.dtype));
    }
    DOPPLER_ASSIGN(const std::string name, json_string(entry.name));
    if (json.size() > 1) json += ',';
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[", name, dtype_name(entry.dtype));
    for (std::size_t i = 0; i < entry.shape.size(); ++i)
      json += fmt::format("{}{}", i == 0 ? "" : ",", entry.shape[i]);
    json += fmt::format("],\"data_offsets\":[{},{}]}}", entry.begin, entry.end);
  }
  return json + "}";
}

}  // namespace doppler
