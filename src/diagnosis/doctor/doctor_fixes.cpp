#include "diagnosis/doctor/doctor_fixes.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/doctor/settings.h"
#include "model/family.h"
#include "model/rope.h"

namespace doppler::diagnosis::doctor {
namespace {

using enum Fix::Kind;

// The keys of values that a file may leave out, by the path's end: config.json's, and GGUF's behind the
// architecture; empty: it has none.
struct Home {
  std::string_view path, config, gguf;
  bool whole = false;  // GGUF's is a whole number
};
constexpr auto kHomes = std::to_array<Home>({
    {"norm.eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"head.softcap", "final_logit_softcapping", "final_logit_softcapping"},
    {"head.tied", "tie_word_embeddings", ""},
    {"attention.softcap", "attn_logit_softcapping", "attn_logit_softcapping"},
    {"attention.window", "sliding_window", "attention.sliding_window", true},
    {"ffn.activation", "hidden_act", ""},
    {"attention.rope.theta", "rope_theta", "rope.freq_base"},
    {"attention.rope.rotary_dim", "partial_rotary_factor", "rope.dimension_count", true},
});

struct Place {
  std::string file, key;  // of an existing key; empty: it has none
  std::string why;        // the source's words
};

bool is_gguf_model(const ModelSpec& spec) {
  return std::ranges::any_of(spec.sources,
                             [](const SpecSource& s) { return s.source.starts_with("gguf: "); });
}

// The source of a path; of "layers[3].attention.kind" that of any layer's, with the layer as the last part of
// the key.
const SpecSource* source_of(const ModelSpec& spec, std::string_view path) {
  const auto exact = std::ranges::find(spec.sources, path, &SpecSource::path);
  if (exact != spec.sources.end()) return &*exact;
  if (!path.starts_with("layers[")) return nullptr;
  const std::string_view rest = path.substr(path.find(']'));
  const auto like = std::ranges::find_if(spec.sources, [&](const SpecSource& s) {
    return s.path.starts_with("layers[") && s.path.ends_with(rest);
  });
  return like == spec.sources.end() ? nullptr : &*like;
}

// "config.json: rms_norm_eps" is a place; "rule of the family", "gguf: no tensor x" are none.
Place place_of_source(const SpecSource& source) {
  const std::size_t colon = source.source.find(": ");
  const std::string file = source.source.substr(0, colon);
  if (colon == std::string::npos || (!file.ends_with(".json") && file != "gguf"))
    return {{}, {}, source.source};
  std::string key = source.source.substr(colon + 2);
  if (key.find(' ') != std::string::npos) return {{}, {}, source.source};
  return {file, std::move(key), {}};
}

// The architecture, which GGUF's keys begin with.
std::string gguf_key(const ModelSpec& spec, std::string_view suffix) {
  const SpecSource* layers = source_of(spec, "layers");
  const Place place = layers == nullptr ? Place{} : place_of_source(*layers);
  return fmt::format("{}.{}", place.key.substr(0, place.key.find('.')), suffix);
}

Fix keyed(std::string file, std::string key, std::string value) {
  return {.kind = kSetting, .target = std::move(key), .value = std::move(value), .file = std::move(file)};
}

// JSON that is no whole number, so that a new key becomes one of a fraction.
std::string as_float(const std::string& number) {
  return number.find_first_not_of("-0123456789") == std::string::npos ? number + ".0" : number;
}

// The object of config.json that a scaling stands in, or should.
struct ScalingPlace {
  std::string prefix, type_key;
};
ScalingPlace scaling_place(const ModelSpec& spec, const SpecSource& source, const std::string& path) {
  const Place place = place_of_source(source);
  if (const std::size_t dot = place.key.rfind('.'); dot != std::string::npos)
    return {place.key.substr(0, dot), place.key.substr(dot + 1)};
  // Beside its base, where that is in an object.
  const SpecSource* theta = source_of(spec, path.substr(0, path.rfind('.')) + ".theta");
  const std::string key = theta == nullptr ? std::string() : place_of_source(*theta).key;
  if (const std::size_t dot = key.rfind('.'); dot != std::string::npos)
    return {key.substr(0, dot), "rope_type"};
  return {"rope_scaling", "rope_type"};
}

// Empty where the family's GGUF files have no divisors.
std::string divisors_name(const ModelSpec& spec) {
  const FamilyRule* family = family_named(spec.family);
  return family == nullptr ? std::string()
                           : weight_name(family->gguf.weight_names, WeightRole::kRopeDivisors);
}

// The angles of GGUF's llama3 scaling: a divisor for each rotary pair.
Fix divisors_of(const ModelSpec& spec, const Json& words) {
  const auto number = [&](const char* key) { return words.value(key, 1.0); };
  RopeSpec rope = spec.layers.front().attention.rope;
  rope.theta = number("rope_theta"), rope.scaling = {};
  const RopeTable plain = make_rope_table(rope, spec.context_length);
  rope.scaling = {.kind = RopeScalingKind::kLlama3,
                  .factor = number("factor"),
                  .low_freq_factor = number("low_freq_factor"),
                  .high_freq_factor = number("high_freq_factor"),
                  .original_context = number("original_max_position_embeddings")};
  const RopeTable scaled = make_rope_table(rope, spec.context_length);
  std::vector<float> divisors;
  for (std::size_t i = 0; i < plain.inverse_frequency.size(); ++i)
    divisors.push_back(static_cast<float>(plain.inverse_frequency[i] / scaled.inverse_frequency[i]));
  const Shape shape = {divisors.size()};
  return {.kind = kTensor,
          .target = divisors_name(spec),
          .value = fmt::format("llama3's divisors with the factor {}", number("factor")),
          .read = [divisors](std::uint64_t, std::span<float> values) -> Status {
            std::ranges::copy(divisors, values.begin());
            return {};
          },
          .type = DType::kF32,
          .shape = shape};
}

std::vector<Fix> gguf_scaling(const ModelSpec& spec, const SpecSource& source, const Json& words) {
  const std::string type = words.value("rope_type", "default");
  const std::string tensor = divisors_name(spec);
  std::vector<Fix> fixes;
  const bool has_type = !place_of_source(source).key.empty();
  if (type == "llama3") {
    if (tensor.empty()) return {};  // the family's GGUF files have no words for it
    if (has_type) fixes.push_back(keyed("gguf", gguf_key(spec, "rope.scaling.type"), "\"none\""));
    fixes.push_back(divisors_of(spec, words));
    return fixes;
  }
  if (!tensor.empty() && source.source.find(tensor) != std::string::npos)
    fixes.push_back({.kind = kDrop, .target = tensor, .value = "not there"});
  if (type == "default") {
    if (has_type) fixes.push_back(keyed("gguf", gguf_key(spec, "rope.scaling.type"), "\"none\""));
    return fixes;
  }
  const auto add = [&](const char* suffix, const std::string& value) {
    fixes.push_back(keyed("gguf", gguf_key(spec, suffix), value));
  };
  add("rope.scaling.type", "\"" + type + "\"");
  add("rope.scaling.factor", as_float(words.at("factor").dump()));
  if (type != "yarn") return fixes;
  add("rope.scaling.original_context_length",
      std::to_string(static_cast<std::uint64_t>(words.at("original_max_position_embeddings").get<double>())));
  add("rope.scaling.yarn_attn_factor", as_float(words.at("attention_factor").dump()));
  if (words.contains("truncate")) add("rope.scaling.yarn_truncate", words.at("truncate").dump());
  return fixes;
}

std::vector<Fix> name_scaling(const ModelSpec& spec, const Fix& fix) {
  const SpecSource* source = source_of(spec, fix.target);
  Json words = Json::parse(fix.value, nullptr, false);
  if (source == nullptr || !words.is_object()) return {};
  if (is_gguf_model(spec)) return gguf_scaling(spec, *source, words);
  const ScalingPlace place = scaling_place(spec, *source, fix.target);
  words.erase("rope_theta");
  std::vector<Fix> fixes;
  for (const auto& [word, value] : words.items())
    fixes.push_back(keyed("config.json",
                          fmt::format("{}.{}", place.prefix, word == "rope_type" ? place.type_key : word),
                          value.dump()));
  return fixes;
}

// A share of a head's dims where the key wants one.
std::string value_for(const ModelSpec& spec, const Fix& fix, std::string_view key) {
  const bool share = key.ends_with("partial_rotary_factor") || key.ends_with("rotary_pct");
  if (!share) return fix.value;
  return exact_text(std::strtod(fix.value.c_str(), nullptr) / spec.layers.front().attention.head_dim);
}

// A value of the spec at its file's own key; nothing, and why, if no file has a key for it.
std::vector<Fix> name_key(const ModelSpec& spec, const Fix& fix, std::string& why) {
  if (fix.target.ends_with(".scaling")) return name_scaling(spec, fix);
  if (fix.target == "head.tied" && is_gguf_model(spec)) return {};  // the head's tensor tells
  const SpecSource* source = source_of(spec, fix.target);
  const Place place = source == nullptr ? Place{} : place_of_source(*source);
  if (!place.key.empty()) {
    const std::string layer = fix.target.starts_with("layers[")
                                  ? "." + fix.target.substr(7, fix.target.find(']') - 7)
                                  : std::string();
    return {keyed(place.file, place.key + layer, value_for(spec, fix, place.key))};
  }
  const auto home = std::ranges::find(kHomes, fix.target, &Home::path);
  // Families note what they read, if only as a default; all read how much of a head turns.
  const bool reads =
      (source != nullptr && source->source.starts_with("default ")) || fix.target.ends_with(".rotary_dim");
  if (home != kHomes.end() && reads) {
    const std::string_view key = is_gguf_model(spec) ? home->gguf : home->config;
    if (!key.empty())
      return {is_gguf_model(spec)
                  ? keyed("gguf", gguf_key(spec, key), home->whole ? fix.value : as_float(fix.value))
                  : keyed("config.json", std::string(key), value_for(spec, fix, key))};
  }
  if (source != nullptr) why = fmt::format("{} follows from no key ({})", fix.target, place.why);
  return {};
}

std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

void name_keys(const ModelSpec& spec, Finding& finding) {
  std::vector<Fix> named;
  std::string why;
  const SpecSource* first = nullptr;  // of the first value that has a key of its own
  for (Fix& fix : finding.fixes) {
    if (fix.kind != kSetting || !fix.file.empty()) {  // has its key
      named.push_back(std::move(fix));
      continue;
    }
    for (const Fix& one : name_key(spec, fix, why)) {
      const SpecSource* source = source_of(spec, fix.target);
      if (named.empty() && source != nullptr && !place_of_source(*source).key.empty()) first = source;
      if (std::ranges::none_of(named, [&](const Fix& other) { return other.same_as(one); }))
        named.push_back(one);
    }
  }
  // Of several values together, or of one that has no key, the repair's own words tell.
  const bool one_value = first != nullptr && why.empty() && std::ranges::all_of(named, [&](const Fix& fix) {
                           return fix.kind == kSetting && last_part(fix.target) == last_part(named[0].target);
                         });
  if (one_value) {
    finding.repair =
        fmt::format("Set {} in {} to {} (it is {}).", named[0].target,
                    named[0].file == "gguf" ? "the GGUF file" : named[0].file, named[0].value, first->value);
  }
  finding.fixes = std::move(named);
  finding.unwritten = why;
}

}  // namespace doppler::diagnosis::doctor
