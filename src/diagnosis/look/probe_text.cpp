// Probes as texts and as configuration.
#include <charconv>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/look/probe.h"

namespace doppler::diagnosis {
namespace {

constexpr std::string_view kGrammar =
    "Write stage=layer_out,layers=0:5,tokens=0,-1,dims=0:7 (ranges include both ends; layers and tokens may "
    "be all).";

// A number or a range; false if it is neither.
bool read_range(std::string_view text, ProbeRange& range) {
  const auto number = [](std::string_view piece, std::int64_t& value) {
    const auto parsed = std::from_chars(piece.data(), piece.data() + piece.size(), value);
    return !piece.empty() && parsed.ec == std::errc() && parsed.ptr == piece.data() + piece.size();
  };
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return number(text, range.first) && ((range.last = range.first), true);
  return number(text.substr(0, colon), range.first) && number(text.substr(colon + 1), range.last);
}

// Checks that the probe has its required fields and valid ranges.
Status check(const Probe& probe, std::string_view where) {
  if (probe.stage.empty()) return fail(ErrorCode::kUsage, "{} names no stage. {}", where, kGrammar);
  if (probe.dims.empty()) {
    return fail(ErrorCode::kUsage,
                "{} names no dims, so it would show nothing. Give the places in the row: dims=0:7.", where);
  }
  const auto backwards = [](const ProbeRange& r) {
    return (r.first < 0) == (r.last < 0) && r.first > r.last;
  };
  for (const auto* ranges : {&probe.layers, &probe.tokens, &probe.dims}) {
    for (const ProbeRange& range : *ranges) {
      if (ranges != &probe.tokens && (range.first < 0 || range.last < 0)) {
        return fail(ErrorCode::kUsage, "{} asks for {} {}, but only tokens count from the end.", where,
                    ranges == &probe.layers ? "layer" : "dim", std::min(range.first, range.last));
      }
      if (backwards(range))
        return fail(ErrorCode::kUsage, "{} has the range {}:{}, which ends before it begins.", where,
                    range.first, range.last);
    }
  }
  return {};
}

struct Field {
  std::string_view name;
  std::vector<ProbeRange> Probe::* ranges;
};
constexpr Field kFields[] = {{"layers", &Probe::layers}, {"tokens", &Probe::tokens}, {"dims", &Probe::dims}};

// One value of a field given as text.
Status add_value(Probe& probe, std::string_view key, std::string_view value, std::string_view where) {
  if (key == "id" || key == "stage") {
    std::string& text = key == "id" ? probe.id : probe.stage;
    if (!text.empty())
      return fail(ErrorCode::kUsage, "{} has two values for {}: {} and {}.", where, key, printable(text),
                  printable(value));
    text = value;
    return {};
  }
  for (const Field& field : kFields) {
    if (field.name != key) continue;
    if (value == "all" && key != "dims") {
      if (key == "tokens") probe.all_tokens = true;
      return {};
    }
    ProbeRange range;
    if (!read_range(value, range)) {
      return fail(ErrorCode::kUsage, "{} has {} among its {}, which is no number and no range. {}", where,
                  printable(value), key, kGrammar);
    }
    (probe.*field.ranges).push_back(range);
    return {};
  }
  return fail(ErrorCode::kUsage, "{} has no key {}. Keys are id, stage, layers, tokens and dims. {}", where,
              printable(key), kGrammar);
}

}  // namespace

Result<Probe> parse_probe(std::string_view text) {
  const std::string where = fmt::format("The probe {}", printable(text));
  Probe probe;
  std::string_view key, rest = text;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view piece = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const std::size_t equals = piece.find('=');
    if (equals != std::string_view::npos) {  // else one more value of the key before
      key = piece.substr(0, equals);
      piece.remove_prefix(equals + 1);
    } else if (key.empty()) {
      return fail(ErrorCode::kUsage, "{} begins with {}, which has no key. {}", where, printable(piece),
                  kGrammar);
    }
    DOPPLER_TRY(add_value(probe, key, piece, where));
  }
  DOPPLER_TRY(check(probe, where));
  return probe;
}

Result<Probe> read_probe(const Json& object, std::string_view where) {
  if (!object.is_object()) return fail(ErrorCode::kUsage, "{} is no JSON object. {}", where, kGrammar);
  Probe probe;
  for (const auto& [key, value] : object.items()) {
    if (key == "category") continue;  // a stage has one category; older files name it
    if (key == "tokens" && (value.is_null() || (value.is_array() && value.empty()))) probe.all_tokens = true;
    if (value.is_null()) continue;  // all layers, all tokens
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& item : list) {
      if (!item.is_string() && !item.is_number_integer()) {
        return fail(ErrorCode::kUsage, "{} has {} as {}, but a text or a whole number belongs there.", where,
                    printable(item.dump(), 40), printable(key));
      }
      const std::string text = item.is_string() ? item.get<std::string>() : item.dump();
      DOPPLER_TRY(add_value(probe, key, text, where));
    }
  }
  DOPPLER_TRY(check(probe, where));
  return probe;
}

std::string probe_text(const Probe& probe) {
  std::string text = probe.id.empty() ? "" : "id=" + probe.id + ",";
  text += "stage=" + probe.stage;
  for (const Field& field : kFields) {
    if (field.name == "tokens" && probe.all_tokens) text += ",tokens=all";
    std::string separator = "," + std::string(field.name) + "=";
    for (const ProbeRange& range : probe.*field.ranges) {
      text += separator;
      text += range.first == range.last ? fmt::format("{}", range.first)
                                        : fmt::format("{}:{}", range.first, range.last);
      separator = ",";
    }
  }
  return text;
}

}  // namespace doppler::diagnosis
