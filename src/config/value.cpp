#include "config/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "system/numbers.h"

namespace doppler::config {
namespace {

// No model has more layers; it bounds what "0-4000000000" makes.
constexpr std::uint64_t kMostLayers = 10000;

std::unexpected<Error> expected(std::string_view what) {
  return fail(ErrorCode::kUsage, "{}", what);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view piece = text.substr(0, comma);
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    pieces.push_back(piece);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return pieces;
}

template <typename T>
bool parse(std::string_view text, T& value) {
  const auto end = text.data() + text.size();
  std::from_chars_result parsed;
  if constexpr (std::is_same_v<T, double>)
    parsed = system::read_double(text.data(), end, value);
  else
    parsed = std::from_chars(text.data(), end, value);
  return !text.empty() && parsed.ptr == end && parsed.ec == std::errc();
}

// The JSON value of a text from the command line.
Json typed(const SettingInfo& info, const Json& value, bool text) {
  // For settings that are texts a number stays a text: --set runtime.gpu.adapter=0.
  const bool words = info.type == ValueType::kText || info.type == ValueType::kTexts;
  if (text && words && (value.is_number() || value.is_boolean())) return value.dump();
  if (!text || !value.is_string()) return value;
  const auto& written = value.get_ref<const std::string&>();
  std::uint64_t whole = 0;
  double number = 0;
  if (info.type == ValueType::kWhole && parse(written, whole)) return whole;
  if (info.type == ValueType::kNumber && parse(written, number)) return number;
  if (info.type == ValueType::kBool && (written == "true" || written == "false")) return written == "true";
  return value;
}

Result<Json> canonical_texts(const SettingInfo& info, const Json& value, bool text) {
  Json list = Json::array();
  const auto add = [&](const Json& item) {
    if (!item.is_string()) return false;
    if (text && info.comma)
      for (const std::string_view piece : split(item.get_ref<const std::string&>())) list.push_back(piece);
    else
      list.push_back(item);
    return true;
  };
  if (!value.is_array()) return add(value) ? Result<Json>(list) : expected(describe_type(info));
  for (const Json& item : value)
    if (!add(item)) return expected(describe_type(info));
  return list;
}

// "3", "0-5" or "0:5", appended to the list.
bool add_layers(std::string_view piece, Json& list) {
  const std::size_t dash = piece.find_first_of("-:");
  std::uint64_t first = 0, last = 0;
  if (!parse(piece.substr(0, dash), first)) return false;
  if (dash == std::string_view::npos)
    last = first;
  else if (!parse(piece.substr(dash + 1), last))
    return false;
  if (last < first || last >= kMostLayers) return false;
  for (std::uint64_t layer = first; layer <= last; ++layer) list.push_back(layer);
  return true;
}

Result<Json> canonical_layers(const Json& value) {
  constexpr std::string_view kExpected =
      "a list of layers, which are counted from 0, such as [0, 17] or \"0-5\"";
  Json list = Json::array();
  if (value.is_number_unsigned()) {
    if (value.get<std::uint64_t>() >= kMostLayers) return expected(kExpected);
    return Json::array({value});
  }
  if (value.is_string()) {
    for (const std::string_view piece : split(value.get_ref<const std::string&>()))
      if (!add_layers(piece, list)) return expected(kExpected);
    return list;
  }
  if (!value.is_array()) return expected(kExpected);
  for (const Json& item : value) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() >= kMostLayers) return expected(kExpected);
    list.push_back(item);
  }
  return list;
}

Result<Json> canonical_biases(const Json& value) {
  constexpr std::string_view kExpected = "of the form ID=NUMBER, or an object {\"ID\": NUMBER}";
  Json biases = Json::object();
  const auto add_text = [&](const Json& item) {
    if (!item.is_string()) return false;
    const std::string_view text = item.get_ref<const std::string&>();
    const std::size_t equals = text.find('=');
    std::int32_t id = 0;
    double bias = 0;
    if (equals == std::string_view::npos || !parse(text.substr(0, equals), id) || id < 0 ||
        !parse(text.substr(equals + 1), bias))
      return false;
    // JSON has no infinity, which rules a token out; as text it survives.
    biases[std::to_string(id)] =
        std::isfinite(bias) ? Json(bias) : Json(std::string(text.substr(equals + 1)));
    return true;
  };
  if (value.is_object()) {
    for (const auto& [key, bias] : value.items()) {
      if (bias.is_null()) continue;
      const std::string number = bias.is_string() ? bias.get<std::string>() : bias.dump();
      if (!add_text(key + "=" + number)) return expected(kExpected);
    }
  } else if (value.is_array()) {
    for (const Json& item : value)
      if (!add_text(item)) return expected(kExpected);
  } else if (!add_text(value)) {
    return expected(kExpected);
  }
  return biases;
}

bool all_integers(const Json& list, bool negative) {
  if (!list.is_array()) return false;
  for (const Json& item : list)
    if (!(negative ? item.is_number_integer() : item.is_number_unsigned())) return false;
  return true;
}

// The expected kind of value, for the error message; empty if the value is right, and then `value` is
// canonical.
std::string check_probe_field(const ProbeField& field, Json& value) {
  if (value.is_null() && !field.needed) return "";
  switch (field.type) {
    case ValueType::kText:
      return value.is_string() ? "" : "a text";
    case ValueType::kLayers: {
      auto layers = canonical_layers(value);
      if (!layers) return layers.error().message;
      value = std::move(*layers);
      return "";
    }
    case ValueType::kWhole:
      return all_integers(value, false) ? "" : "a list of whole numbers, such as [0, 334]";
    default:
      return all_integers(value, true) ? "" : "a list of whole numbers, negative ones from the end";
  }
}

Status check_probe(Json& probe, std::size_t index) {
  if (!probe.is_object()) return fail(ErrorCode::kUsage, "a list of objects; probe {} is none", index);
  std::vector<std::string> known;
  for (const ProbeField& field : all_probe_fields()) known.emplace_back(field.name);
  for (const auto& [key, ignored] : probe.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest = nearest_name(printable(key), known);
    return fail(ErrorCode::kUsage, "a list of probes; probe {} has {}, which does not exist: {}", index,
                printable(key),
                nearest.empty() ? "there are " + join(known, ", ") : "did you mean " + nearest + "?");
  }
  for (const ProbeField& field : all_probe_fields()) {
    const auto at = probe.find(field.name);
    if (at == probe.end()) {
      if (field.needed)
        return fail(ErrorCode::kUsage, "a list of probes; probe {} lacks its {}", index, field.name);
      continue;
    }
    const std::string should = check_probe_field(field, *at);
    if (!should.empty()) {
      return fail(ErrorCode::kUsage, "a list of probes; the {} of probe {} is {}, not {}", field.name, index,
                  printable(at->dump(), 60), should);
    }
  }
  return {};
}

Result<Json> canonical_probes(const Json& value) {
  Json list = value.is_object() ? Json::array({value}) : value;
  if (!list.is_array()) return expected("a list of probes");
  for (std::size_t i = 0; i < list.size(); ++i) DOPPLER_TRY(check_probe(list[i], i));
  return list;
}

Result<Json> canonical_scalar(const SettingInfo& info, const Json& value) {
  bool right = false;
  switch (info.type) {
    case ValueType::kBool:
      right = value.is_boolean();
      break;
    case ValueType::kWhole:
      right = value.is_number_unsigned();
      break;
    case ValueType::kNumber:
      right = value.is_number();
      break;
    default:
      right = value.is_string() &&
              (info.choices.empty() || std::find(info.choices.begin(), info.choices.end(),
                                                 value.get_ref<const std::string&>()) != info.choices.end());
  }
  if (right && value.is_number())  // a NaN fails this too
    right = value.get<double>() >= info.least && value.get<double>() <= info.most;
  if (!right) return expected(describe_type(info));
  return value;
}

// Lists of categories are checked where they are written.
Status check_words(const SettingInfo& info, const Json& list) {
  if (info.path != "runtime.shared.debug.trace.categories") return {};
  std::vector<std::string> words;
  for (const Json& word : list) words.push_back(word.get<std::string>());
  if (const auto set = parse_categories(words); !set)
    return fail(ErrorCode::kUsage, "a list of trace categories. {}", set.error().message);
  return {};
}

}  // namespace

std::string describe_type(const SettingInfo& info) {
  const std::string range = info.most < 1e308     ? fmt::format(" between {} and {}", info.least, info.most)
                            : info.least > -1e308 ? fmt::format(" of {} or more", info.least)
                                                  : "";
  switch (info.type) {
    case ValueType::kBool:
      return "true or false";
    case ValueType::kWhole:
      return "a whole number" + (range.empty() ? " of 0 or more" : range);
    case ValueType::kNumber:
      return "a number" + range;
    case ValueType::kText: {
      const std::vector<std::string> names(info.choices.begin(), info.choices.end());
      return names.empty() ? "a text" : "one of " + join(names, ", ");
    }
    case ValueType::kTexts:
      return "a text or a list of texts";
    case ValueType::kLayers:
      return "a list of layers";
    case ValueType::kBiases:
      return "an object of token ids and numbers";
    case ValueType::kProbes:
      return "a list of probes";
  }
  return "";
}

Result<Json> canonical_value(const SettingInfo& info, const Json& given, bool text) {
  if (given.is_null()) return Json::parse(info.off, nullptr, false);
  const Json value = typed(info, given, text);
  switch (info.type) {
    case ValueType::kTexts: {
      DOPPLER_ASSIGN(Json list, canonical_texts(info, value, text));
      DOPPLER_TRY(check_words(info, list));
      return list;
    }
    case ValueType::kLayers:
      return canonical_layers(value);
    case ValueType::kBiases:
      return canonical_biases(value);
    case ValueType::kProbes:
      return canonical_probes(value);
    default:
      return canonical_scalar(info, value);
  }
}

}  // namespace doppler::config
