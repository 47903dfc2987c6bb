#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/checked.h"
#include "base/text.h"
#include "formats/safetensors_header.h"

namespace doppler {
namespace {

using Entry = SafetensorsHeader::Entry;

constexpr std::uint64_t kLengthBytes = 8;
// The format's own limit, so that a hostile file cannot have gigabytes of JSON parsed.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
// Tensor data begins at a multiple of this, as the reference library writes it: the widest type's alignment.
constexpr std::uint64_t kDataAlignment = 8;

// The JSON text between the length and the data.
Result<std::string_view> header_text(const FileBytes& bytes, std::string_view what, NeedsMore& more) {
  if (bytes.size < kLengthBytes) {
    return fail(ErrorCode::kCorrupt,
                "{} holds {} bytes, fewer than the {} of a safetensors length. Download it again.", what,
                bytes.size, kLengthBytes);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.start.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    return fail(ErrorCode::kCorrupt,
                "{} announces a header of {} bytes, more than the {} that safetensors allows. "
                "Check that it is a safetensors file.",
                what, length, kMaxHeaderBytes);
  }
  const std::uint64_t left = bytes.size - kLengthBytes;
  if (length > left) {
    return fail(ErrorCode::kCorrupt,
                "{} announces a header of {} bytes but holds {} more. Download it again.", what, length,
                left);
  }
  if (kLengthBytes + length > bytes.start.size()) {
    more.bytes = kLengthBytes + length;
    return fail(ErrorCode::kInternal, "The start of {} is too short. Report this.", what);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.start.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) {
    return fail(ErrorCode::kCorrupt,
                "The header of {} begins with \"{}\" instead of a brace. "
                "Check that it is a safetensors file.",
                what, printable(text, 8));
  }
  return text;
}

// One tensor's own claims: order of its offsets, end within the data, size as dtype and shape say.
Status check_entry(const Entry& entry, std::uint64_t data_bytes, std::string_view what) {
  const auto described = [&] {
    return fmt::format("The tensor {} ({}, {}) of {}", printable(entry.name), dtype_name(entry.dtype),
                       describe_shape(entry.shape), what);
  };
  if (entry.begin > entry.end) {
    return fail(ErrorCode::kCorrupt, "{} begins at byte {} but ends at byte {}. Download the file again.",
                described(), entry.begin, entry.end);
  }
  const auto size = byte_size(entry.dtype, entry.shape);
  if (!size) {
    return fail(ErrorCode::kCorrupt, "{} has no size in whole bytes below 2^64. Download the file again.",
                described());
  }
  if (entry.end - entry.begin != *size) {
    return fail(ErrorCode::kCorrupt,
                "{} needs {} bytes but its data_offsets {} to {} hold {}. Download the file again.",
                described(), *size, entry.begin, entry.end, entry.end - entry.begin);
  }
  if (entry.end > data_bytes) {
    return fail(ErrorCode::kCorrupt,
                "{} ends at byte {} of the data but the file holds {}. Download it again.", described(),
                entry.end, data_bytes);
  }
  return {};
}

// The format's cover rule: in order of their offsets, each tensor begins where the one before ends, and the
// last one ends with the file.
Status check_cover(const std::vector<Entry>& entries, std::uint64_t data_bytes, std::string_view what) {
  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  std::ranges::sort(order, {}, [](const Entry* entry) { return std::pair(entry->begin, entry->end); });
  std::uint64_t covered = 0;
  std::string_view previous;
  for (const Entry* entry : order) {
    if (entry->begin < covered) {
      return fail(ErrorCode::kCorrupt,
                  "The tensors {} and {} of {} overlap at byte {} of the data. Download the file again.",
                  printable(previous), printable(entry->name), what, entry->begin);
    }
    if (entry->begin > covered) {
      return fail(ErrorCode::kCorrupt,
                  "The data of {} has a hole of {} bytes before the tensor {}, which safetensors forbids. "
                  "Download the file again.",
                  what, entry->begin - covered, printable(entry->name));
    }
    covered = entry->end;
    previous = entry->name;
  }
  if (covered != data_bytes) {
    return fail(ErrorCode::kCorrupt, "{} holds {} bytes of data but its tensors cover {}. Download it again.",
                what, data_bytes, covered);
  }
  return {};
}

std::string file_label(const std::filesystem::path& file) {
  return fmt::format("The file {}", printable(file.string(), 200));
}

}  // namespace

Status parse_safetensors(std::span<const std::byte> bytes, std::string_view what, TensorStore& out) {
  NeedsMore more;
  return parse_safetensors(FileBytes(bytes), what, more, out);
}

Status parse_safetensors(const FileBytes& bytes, std::string_view what, NeedsMore& more, TensorStore& out) {
  DOPPLER_ASSIGN(const std::string_view text, header_text(bytes, what, more));
  // Inside a sentence the label is no longer its beginning.
  const std::string inside = what.starts_with("The ") ? "t" + std::string(what.substr(1)) : std::string(what);
  DOPPLER_ASSIGN(SafetensorsHeader header, parse_safetensors_header(text, inside));
  const std::uint64_t data = kLengthBytes + text.size(), data_bytes = bytes.size - data;
  for (const Entry& entry : header.entries) DOPPLER_TRY(check_entry(entry, data_bytes, inside));
  DOPPLER_TRY(check_cover(header.entries, data_bytes, inside));
  for (Entry& entry : header.entries) {
    DOPPLER_TRY(out.add(bytes.tensor(std::move(entry.name), entry.dtype, std::move(entry.shape),
                                     data + entry.begin, entry.end - entry.begin)));
  }
  for (auto& [key, value] : header.metadata) out.add_metadata(key, std::move(value));
  return {};
}

Result<TensorStore> open_safetensors(const std::filesystem::path& file, Opening opening) {
  TensorStore store;
  if (opening == Opening::kPieces) {
    DOPPLER_ASSIGN(auto source, open_byte_source(file));
    const auto parse = [&](const FileBytes& bytes, NeedsMore& more) {
      return parse_safetensors(bytes, file_label(file), more, store);
    };
    DOPPLER_TRY(parse_start(*source, parse));
    store.keep(std::move(source));
    return store;
  }
  DOPPLER_ASSIGN(MappedFile mapped, MappedFile::open(file));
  DOPPLER_TRY(parse_safetensors(mapped.bytes(), file_label(file), store));
  store.keep(std::move(mapped));
  DOPPLER_TRY(store.align());
  store.mark_mapped();
  return store;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& file,
                                                    std::span<const Entry> entries,
                                                    const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header;
  header.metadata = metadata;
  Checked end = 0;
  for (const Entry& entry : entries) {
    const auto size = byte_size(entry.dtype, entry.shape);
    const auto begin = end.get();
    end = size ? end + *size : Checked(0) - 1;
    if (!end.valid()) {
      return fail(ErrorCode::kUsage,
                  "The tensor {} ({}, {}) has no size in whole bytes below 2^64. Choose another shape.",
                  printable(entry.name), dtype_name(entry.dtype), describe_shape(entry.shape));
    }
    header.entries.push_back({entry.name, entry.dtype, entry.shape, *begin, *end.get()});
  }
  DOPPLER_ASSIGN(std::string json, format_safetensors_header(header));
  json.append((kDataAlignment - json.size() % kDataAlignment) % kDataAlignment, ' ');
  if (json.size() > kMaxHeaderBytes) {
    return fail(ErrorCode::kLimit,
                "The header of {} would hold {} bytes, more than the {} that safetensors allows. "
                "Write fewer tensors.",
                file.string(), json.size(), kMaxHeaderBytes);
  }
  DOPPLER_ASSIGN(OutputFile output, OutputFile::create(file));
  const std::uint64_t length = json.size();
  DOPPLER_TRY(output.write(std::as_bytes(std::span(&length, 1))));
  DOPPLER_TRY(output.write(json));
  return SafetensorsWriter(std::move(output), *end.get());
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > wanted_ - written_) {
    return fail(ErrorCode::kInternal, "The tensors take {} bytes but {} come. Report this.", wanted_,
                written_ + bytes.size());
  }
  DOPPLER_TRY(file_.write(bytes));
  written_ += bytes.size();
  return {};
}

Status SafetensorsWriter::finish() {
  if (written_ != wanted_) {
    return fail(ErrorCode::kInternal, "The tensors take {} bytes but only {} came. Report this.", wanted_,
                written_);
  }
  return file_.commit();
}

}  // namespace doppler
