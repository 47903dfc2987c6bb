#include "model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "formats/gguf_stop_tokens.h"

namespace doppler {
namespace {

// Keys with the same meaning and values as keys of config.json, copied unchanged. An absent key means
// what it means to llama.cpp.
struct PlainKey {
  std::string_view path, suffix;
  bool whole, required;
};
constexpr std::array kPlainKeys = {
    PlainKey{"num_hidden_layers", "block_count", true, true},
    PlainKey{"hidden_size", "embedding_length", true, true},
    PlainKey{"intermediate_size", "feed_forward_length", true, true},
    PlainKey{"num_attention_heads", "attention.head_count", true, true},
    PlainKey{"num_key_value_heads", "attention.head_count_kv", true, false},
    PlainKey{"max_position_embeddings", "context_length", true, true},
    PlainKey{"rope_local_base_freq", "rope.freq_base_swa", false, false},
    PlainKey{"num_experts", "expert_count", true, false},
    PlainKey{"num_experts_per_tok", "expert_used_count", true, false},
    PlainKey{"moe_intermediate_size", "expert_feed_forward_length", true, false},
    PlainKey{"shared_expert_intermediate_size", "expert_shared_feed_forward_length", true, false},
    PlainKey{"n_shared_experts", "expert_shared_count", true, false},
    PlainKey{"n_group", "expert_group_count", true, false},
    PlainKey{"topk_group", "expert_group_used_count", true, false},
    PlainKey{"first_k_dense_replace", "leading_dense_block_count", true, false},
    PlainKey{"num_nextn_predict_layers", "nextn_predict_layers", true, false},
    PlainKey{"routed_scaling_factor", "expert_weights_scale", false, false},
};

// More entries of a list than any model has layers.
constexpr std::size_t kMostLayers = 4096;

// Keys of architectures that change the arithmetic in ways Doppler does not know, and the value besides 0
// that changes nothing.
struct NeutralKey {
  std::string_view suffix;
  double neutral;
};
constexpr std::array kNeutralKeys = {
    NeutralKey{"logit_scale", 1},
    NeutralKey{"embedding_scale", 1},
    NeutralKey{"residual_scale", 1},
    NeutralKey{"attention.clamp_kqv", 0},
    NeutralKey{"attention.max_alibi_bias", 0},
    NeutralKey{"attention.shared_kv_layers", 0},
    NeutralKey{"embedding_length_per_layer_input", 0},
    NeutralKey{"attention.temperature_scale", 1},
    NeutralKey{"rope.scaling.yarn_ext_factor", 1},
    NeutralKey{"rope.scaling.yarn_log_multiplier", 0},
};

std::string as_source(std::string_view key) {
  return GgufMetadata::where(key);
}

}  // namespace

GgufConfig::GgufConfig(const GgufMetadata& metadata, const TensorStore& tensors,
                       std::string_view architecture, const WeightNames& names, std::span<const GgufKey> keys)
    : metadata_(metadata),
      tensors_(tensors),
      architecture_(architecture),
      names_(names),
      keys_(keys),
      json_(Json::object()) {}

std::string GgufConfig::key(std::string_view suffix) const {
  return fmt::format("{}.{}", architecture_, suffix);
}

Result<std::optional<std::uint64_t>> GgufConfig::get_uint(std::string_view suffix) const {
  const std::string name = key(suffix);
  const GgufMetadata::Entry* entry = metadata_.find(name);
  if (entry == nullptr || entry->type != GgufType::kArray) return metadata_.get_uint(name);
  DOPPLER_ASSIGN(const auto list, metadata_.get_array(name));
  DOPPLER_ASSIGN(const std::vector<std::int64_t> values, list->ints());
  const bool own = std::ranges::find(own_keys_, suffix) != own_keys_.end();
  const std::int64_t most = values.empty() ? 0 : own ? values[0] : std::ranges::max(values);
  const bool same = own || std::ranges::all_of(values, [&](std::int64_t v) { return v == most || v == 0; });
  if (values.empty() || !same || most < 0) {
    return fail(ErrorCode::kUnsupported,
                "The value {} = {} differs between layers, which Doppler does not run. Use another model.",
                as_source(name), metadata_.describe(name));
  }
  return static_cast<std::uint64_t>(most);
}

Result<std::vector<float>> GgufConfig::get_floats(std::string_view suffix) const {
  DOPPLER_ASSIGN(const auto list, metadata_.get_array(key(suffix)));
  if (!list) return std::vector<float>();
  return list->floats();
}

Result<std::optional<bool>> GgufConfig::get_flag(std::string_view suffix) const {
  return metadata_.get_bool(key(suffix));
}

Result<std::vector<std::uint64_t>> GgufConfig::get_uints(std::string_view suffix) const {
  const std::string name = key(suffix);
  const GgufMetadata::Entry* entry = metadata_.find(name);
  if (entry == nullptr || entry->type != GgufType::kArray) {
    DOPPLER_ASSIGN(const auto value, metadata_.get_uint(name));
    return value ? std::vector<std::uint64_t>(layers_, *value) : std::vector<std::uint64_t>();
  }
  DOPPLER_ASSIGN(const auto list, metadata_.get_array(name));
  DOPPLER_ASSIGN(const std::vector<std::int64_t> values, list->ints());
  const bool fits =
      values.size() == layers_ && std::ranges::all_of(values, [](std::int64_t v) { return v >= 0; });
  if (!fits) {
    return fail(ErrorCode::kCorrupt,
                "The list {} has {} entries for {} layers, or one below 0. Download the file again.",
                as_source(name), values.size(), layers_);
  }
  return std::vector<std::uint64_t>(values.begin(), values.end());
}

Result<std::optional<double>> GgufConfig::get_number(std::string_view suffix) const {
  return metadata_.get_number(key(suffix));
}

const TensorView* GgufConfig::tensor(WeightRole role, int layer) const {
  const std::string name = tensor_name(role, layer);
  return name.empty() ? nullptr : tensors_.find(name);
}

void GgufConfig::set(std::string_view path, Json value, KeyOrigin origin) {
  origins_.insert_or_assign(std::string(path), std::move(origin));
  const std::size_t dot = path.find('.');
  Json& object = dot == std::string_view::npos ? *json_ : (*json_)[std::string(path.substr(0, dot))];
  object[std::string(path.substr(dot == std::string_view::npos ? 0 : dot + 1))] = std::move(value);
}

void GgufConfig::set_from_key(std::string_view path, Json value, std::string_view suffix) {
  set(path, std::move(value), {key(suffix), as_source(key(suffix))});
}

void GgufConfig::derive(std::string_view path, Json value, std::string_view rule) {
  set(path, std::move(value), {std::string(path), fmt::format("derived: {}", rule)});
}

Status GgufConfig::translate() {
  set("model_type", architecture_, {"general.architecture", as_source("general.architecture")});
  DOPPLER_TRY(check_runnable());
  DOPPLER_TRY(read_sizes());
  DOPPLER_TRY(read_epsilon());
  DOPPLER_TRY(read_head_dim());
  DOPPLER_TRY(read_vocabulary());
  DOPPLER_TRY(read_windows());
  DOPPLER_TRY(read_softcaps());
  DOPPLER_TRY(read_rope());
  read_flags();
  DOPPLER_TRY(read_own_keys());
  return read_special_ids();
}

Status GgufConfig::check_runnable() const {
  DOPPLER_ASSIGN(const auto causal, metadata_.get_bool(key("attention.causal")));
  if (!causal.value_or(true)) {
    return fail(
        ErrorCode::kUnsupported,
        "The value {} = false makes this an encoder, which Doppler does not run. Use a model that generates.",
        as_source(key("attention.causal")));
  }
  for (const NeutralKey& neutral : kNeutralKeys) {
    if (std::ranges::find(own_keys_, neutral.suffix) != own_keys_.end()) continue;
    DOPPLER_ASSIGN(const auto value, get_number(neutral.suffix));
    if (!value || *value == 0 || *value == neutral.neutral) continue;
    if (std::ranges::find(keys_, neutral.suffix, &GgufKey::suffix) != keys_.end()) continue;
    return fail(ErrorCode::kUnsupported,
                "The value {} = {} is one that Doppler does not compute with. Use another model.",
                as_source(key(neutral.suffix)), *value);
  }
  // Of text all sections but the last, which images alone have, turn by the same position.
  DOPPLER_ASSIGN(const auto sections, metadata_.get_array(key("rope.dimension_sections")));
  if (!sections) return {};
  DOPPLER_ASSIGN(const std::vector<std::int64_t> pairs, sections->ints());
  if (pairs.size() < 4 || pairs[3] == 0) return {};
  return fail(ErrorCode::kUnsupported,
              "The key {} splits rotary embedding into sections, which Doppler does not do. Use "
              "another model.",
              key("rope.dimension_sections"));
}

Status GgufConfig::read_sizes() {
  for (const PlainKey& plain : kPlainKeys) {
    origins_[std::string(plain.path)] = {key(plain.suffix), as_source(key(plain.suffix))};
    if (plain.path == "intermediate_size") {
      DOPPLER_TRY(read_ffn_width());
    } else if (plain.whole) {
      DOPPLER_ASSIGN(const auto value, get_uint(plain.suffix));
      if (value) set_from_key(plain.path, *value, plain.suffix);
    } else {
      DOPPLER_ASSIGN(const auto value, get_number(plain.suffix));
      if (value) set_from_key(plain.path, *value, plain.suffix);
    }
    if (plain.required && !json_->contains(std::string(plain.path))) {
      return fail(ErrorCode::kCorrupt,
                  "The GGUF metadata has no {}, which every model has. Download the file again.",
                  key(plain.suffix));
    }
  }
  DOPPLER_TRY(read_experts());
  layers_ = (*json_)["num_hidden_layers"].get<std::uint64_t>();
  hidden_ = (*json_)["hidden_size"].get<std::uint64_t>();
  heads_ = (*json_)["num_attention_heads"].get<std::uint64_t>();
  if (!json_->contains("num_key_value_heads"))
    derive("num_key_value_heads", heads_, key("attention.head_count"));
  // Lists of one entry per layer are made from here on, so the file must have room for the layers.
  if (layers_ <= tensors_.tensors().size()) return {};
  return fail(ErrorCode::kCorrupt,
              "The value {} = {} is more than the {} tensors of the file. Download it again.",
              as_source(key("block_count")), layers_, tensors_.tensors().size());
}

// Layers with experts may give the experts' width in a list, beside that of dense layers, which counts.
Status GgufConfig::read_ffn_width() {
  constexpr std::string_view kSuffix = "feed_forward_length";
  const GgufMetadata::Entry* entry = metadata_.find(key(kSuffix));
  std::uint64_t width = 0;
  if (entry != nullptr && entry->type == GgufType::kArray) {
    DOPPLER_ASSIGN(const auto list, metadata_.get_array(key(kSuffix)));
    DOPPLER_ASSIGN(const std::vector<std::int64_t> values, list->ints());
    std::vector<std::int64_t> dense;
    for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), kMostLayers); ++i) {
      if (values[i] > 0 && tensor(WeightRole::kRouter, static_cast<int>(i)) == nullptr)
        dense.push_back(values[i]);
    }
    const bool equal = std::ranges::all_of(dense, [&](std::int64_t v) { return v == dense[0]; });
    if (!dense.empty() && equal) width = static_cast<std::uint64_t>(dense[0]);
  }
  if (width == 0) {
    DOPPLER_ASSIGN(const auto one, get_uint(kSuffix));
    if (!one) return {};
    width = *one;
  }
  set_from_key("intermediate_size", width, kSuffix);
  return {};
}

// Norms by the mean square and norms by the standard deviation have a key each; families have their own words
// for either.
Status GgufConfig::read_epsilon() {
  constexpr std::string_view kRms = "attention.layer_norm_rms_epsilon",
                             kLayer = "attention.layer_norm_epsilon";
  DOPPLER_ASSIGN(const auto rms, get_number(kRms));
  DOPPLER_ASSIGN(const auto layer, get_number(kLayer));
  if (!rms && !layer) {
    return fail(ErrorCode::kCorrupt,
                "The GGUF metadata has no {}, which every model has. Download the file again.", key(kRms));
  }
  set_from_key("rms_norm_eps", rms ? *rms : *layer, rms ? kRms : kLayer);
  for (const std::string_view path : {"layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon"})
    set_from_key(path, layer ? *layer : *rms, layer ? kLayer : kRms);
  return {};
}

Status GgufConfig::read_own_keys() {
  for (const GgufKey& own : keys_) {
    const std::string name = key(own.suffix);
    origins_[std::string(own.path)] = {name, as_source(name)};
    const GgufMetadata::Entry* entry = metadata_.find(name);
    if (entry == nullptr) continue;
    if (entry->type == GgufType::kBool) {
      DOPPLER_ASSIGN(const auto flag, metadata_.get_bool(name));
      set_from_key(own.path, *flag, own.suffix);
    } else {
      DOPPLER_ASSIGN(const auto number, metadata_.get_number(name));
      set_from_key(own.path, *number, own.suffix);
    }
  }
  return {};
}

// Of mixtures of experts, what needs more than copying.
Status GgufConfig::read_experts() {
  DOPPLER_ASSIGN(const auto norm, metadata_.get_bool(key("expert_weights_norm")));
  if (norm) set_from_key("norm_topk_prob", *norm, "expert_weights_norm");
  // Layers that predict several tokens at once count as layers here.
  DOPPLER_ASSIGN(const auto predicting, get_uint("nextn_predict_layers"));
  const auto blocks = (*json_)["num_hidden_layers"].get<std::uint64_t>();
  if (predicting.value_or(0) == 0) return {};
  if (*predicting >= blocks) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} leaves no layer of {} = {}. Download the file again.",
                as_source(key("nextn_predict_layers")), *predicting, key("block_count"), blocks);
  }
  set_from_key("num_hidden_layers", blocks - *predicting, "block_count");
  return {};
}

Status GgufConfig::read_head_dim() {
  origins_["head_dim"] = {key("attention.key_length"), as_source(key("attention.key_length"))};
  DOPPLER_ASSIGN(const auto key_length, get_uint("attention.key_length"));
  DOPPLER_ASSIGN(const auto value_length, get_uint("attention.value_length"));
  if (heads_ == 0) return {};  // no layer attends
  if (!key_length && hidden_ % heads_ != 0) {
    return fail(ErrorCode::kCorrupt,
                "The GGUF metadata says {} = {} and {} = {}, but without {} the first must be a "
                "multiple of the second. Download the file again.",
                key("embedding_length"), hidden_, key("attention.head_count"), heads_,
                key("attention.key_length"));
  }
  head_dim_ = key_length ? *key_length : hidden_ / heads_;
  if (key_length)
    set_from_key("head_dim", head_dim_, "attention.key_length");
  else
    derive("head_dim", head_dim_,
           fmt::format("{} / {}", key("embedding_length"), key("attention.head_count")));
  // Of latent attention both lengths are those of the latent.
  if (value_length.value_or(head_dim_) == head_dim_ || metadata_.has(key("attention.kv_lora_rank")))
    return {};
  return fail(ErrorCode::kUnsupported,
              "The value {} = {} differs from the key's {}, which Doppler does not run. Use "
              "another model.",
              as_source(key("attention.value_length")), *value_length, head_dim_);
}

// The vocabulary's size stands in up to three places, which must agree.
Status GgufConfig::read_vocabulary() {
  struct Place {
    std::string name;
    std::optional<std::uint64_t> size;
  };
  std::array<Place, 3> places;
  places[0].name = key("vocab_size");
  DOPPLER_ASSIGN(places[0].size, get_uint("vocab_size"));
  places[1].name = "tokenizer.ggml.tokens";
  DOPPLER_ASSIGN(const auto tokens, metadata_.get_array(places[1].name));
  if (tokens) places[1].size = tokens->size();
  const TensorView* embedding = tensor(WeightRole::kTokenEmbedding);
  if (embedding != nullptr && embedding->shape.size() == 2) {
    places[2] = {"tensor " + embedding->name, embedding->shape[0]};
  }
  const Place* first = nullptr;
  for (const Place& place : places) {
    if (!place.size) continue;
    if (first == nullptr) first = &place;
    if (*first->size == *place.size) continue;
    return fail(
        ErrorCode::kMismatch,
        "The vocabulary has {} tokens by {} but {} by {}. Download the file again, or another conversion.",
        *first->size, first->name, *place.size, place.name);
  }
  if (first != nullptr) {
    set("vocab_size", *first->size, {first->name, as_source(first->name)});
    return {};
  }
  return fail(
      ErrorCode::kCorrupt,
      "The GGUF metadata has neither {} nor tokenizer.ggml.tokens, and there is no tensor {}. Download the "
      "file again.",
      key("vocab_size"), tensor_name(WeightRole::kTokenEmbedding));
}

Status GgufConfig::read_windows() {
  DOPPLER_ASSIGN(const auto window, get_uint("attention.sliding_window"));
  // 0 means none, as null does in config.json.
  if (window)
    set_from_key("sliding_window", *window == 0 ? Json() : Json(*window), "attention.sliding_window");
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const GgufMetadata::Entry* entry = metadata_.find(key(kPattern));
  if (entry == nullptr || window.value_or(0) == 0) return {};
  std::vector<bool> sliding;
  if (entry->type == GgufType::kArray) {
    DOPPLER_ASSIGN(const auto list, metadata_.get_array(key(kPattern)));
    DOPPLER_ASSIGN(sliding, list->bools());
  } else {
    DOPPLER_ASSIGN(const auto period, metadata_.get_uint(key(kPattern)));
    // llama.cpp's rule: the last layer of each period attends fully; without a period none does.
    for (std::uint64_t i = 0; i < layers_; ++i) sliding.push_back(*period == 0 || (i + 1) % *period != 0);
  }
  if (sliding.size() != layers_) {
    return fail(ErrorCode::kCorrupt, "The list {} has {} entries for {} layers. Download the file again.",
                as_source(key(kPattern)), sliding.size(), layers_);
  }
  Json types = Json::array();
  for (const bool slides : sliding) types.push_back(slides ? "sliding_attention" : "full_attention");
  set_from_key("layer_types", std::move(types), kPattern);
  return {};
}

Status GgufConfig::read_softcaps() {
  for (const std::string_view name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    DOPPLER_ASSIGN(const auto cap, get_number(name));
    if (cap) set_from_key(name, *cap == 0 ? Json() : Json(*cap), name);
  }
  return {};
}

Status GgufConfig::read_rope() {
  DOPPLER_ASSIGN(const auto base, get_number("rope.freq_base"));
  set("rope_theta", base.value_or(10000),
      {key("rope.freq_base"), base ? as_source(key("rope.freq_base")) : "default of GGUF"});
  DOPPLER_ASSIGN(const auto rotary, get_uint("rope.dimension_count"));
  if (!rotary || *rotary == head_dim_) {
    set("partial_rotary_factor", 1,
        {key("rope.dimension_count"), rotary ? as_source(key("rope.dimension_count")) : "default of GGUF"});
  } else {
    if (*rotary > head_dim_ || *rotary == 0) {
      return fail(ErrorCode::kCorrupt,
                  "The value {} = {} must lie between 1 and the head's {} dims. Download the file "
                  "again.",
                  as_source(key("rope.dimension_count")), *rotary, head_dim_);
    }
    // A half more, so that the share times the dims, rounded down, is the count again.
    set_from_key("partial_rotary_factor",
                 (static_cast<double>(*rotary) + 0.5) / static_cast<double>(head_dim_),
                 "rope.dimension_count");
  }
  DOPPLER_TRY(read_rope_scaling());
  return read_rope_factors();
}

Status GgufConfig::read_rope_scaling() {
  constexpr std::string_view kType = "rope.scaling.type";
  DOPPLER_ASSIGN(const auto type, metadata_.get_string(key(kType)));
  // Early files have only the last of these keys.
  const std::string_view factor_key =
      metadata_.has(key("rope.scaling.factor")) ? "rope.scaling.factor" : "rope.scale_linear";
  DOPPLER_ASSIGN(const auto factor, get_number(factor_key));
  const bool scaled = factor.value_or(0) != 0;
  // llama.cpp's rules: a factor alone is linear, a factor of 0 is none.
  std::string kind(type.value_or(scaled ? "linear" : "none"));
  if (kind == "none" || (kind == "linear" && !scaled)) kind = "default";
  if (kind == "default") return {};
  set_from_key("rope_scaling.rope_type", kind, kType);
  if (scaled) set_from_key("rope_scaling.factor", *factor, factor_key);
  constexpr std::pair<std::string_view, std::string_view> kNumbers[] = {
      {"original_max_position_embeddings", "rope.scaling.original_context_length"},
      {"beta_fast", "rope.scaling.yarn_beta_fast"},
      {"beta_slow", "rope.scaling.yarn_beta_slow"}};
  for (const auto& [name, suffix] : kNumbers) {
    DOPPLER_ASSIGN(const auto value, get_number(suffix));
    if (value && *value != 0) set_from_key(fmt::format("rope_scaling.{}", name), *value, suffix);
  }
  if (kind != "yarn") return {};
  // Doppler's own: llama.cpp, which has no such key, rounds the range outwards.
  constexpr std::string_view kTruncate = "rope.scaling.yarn_truncate";
  DOPPLER_ASSIGN(const auto truncate, metadata_.get_bool(key(kTruncate)));
  if (truncate) set_from_key("rope_scaling.truncate", *truncate, kTruncate);
  // The converter copies config.json's attention_factor to the first key. By the other llama.cpp multiplies
  // YaRN's own magnitude.
  constexpr std::string_view kMagnitude = "rope.scaling.yarn_attn_factor",
                             kTimes = "rope.scaling.attn_factor";
  DOPPLER_ASSIGN(const auto magnitude, get_number(kMagnitude));
  DOPPLER_ASSIGN(const auto times, get_number(kTimes));
  if (magnitude && *magnitude != 0) set_from_key("rope_scaling.attention_factor", *magnitude, kMagnitude);
  if (!magnitude && times) {
    const double own = factor.value_or(1) <= 1 ? 1 : 0.1 * std::log(*factor) + 1;
    set_from_key("rope_scaling.attention_factor", *times * own, kTimes);
  }
  return {};
}

// Phi 3's long contexts: two tensors of divisors, which make the scaling "longrope" whatever the keys say.
Status GgufConfig::read_rope_factors() {
  const TensorView* factors[] = {tensor(WeightRole::kRopeShortFactors), tensor(WeightRole::kRopeLongFactors)};
  constexpr std::string_view kPaths[] = {"rope_scaling.short_factor", "rope_scaling.long_factor"};
  if (factors[0] == nullptr && factors[1] == nullptr) return {};
  DOPPLER_ASSIGN(const auto attention, get_number("rope.scaling.attn_factor"));
  DOPPLER_ASSIGN(const auto context, get_number("rope.scaling.original_context_length"));
  json_->erase("rope_scaling");
  for (std::size_t i = 0; i < 2; ++i) {
    const TensorView* tensor = factors[i];
    // Partly rotating heads have fewer pairs; their exact number is checked with the spec.
    if (tensor == nullptr || tensor->dtype != DType::kF32 || tensor->bytes() / 4 > head_dim_ / 2) {
      return fail(ErrorCode::kMismatch,
                  "The tensors {} and {} must both be there, in F32, with at most {} values. Download the "
                  "file again.",
                  tensor_name(WeightRole::kRopeShortFactors), tensor_name(WeightRole::kRopeLongFactors),
                  head_dim_ / 2);
    }
    std::vector<float> values(tensor->bytes() / 4);
    DOPPLER_TRY(decode_f32(*tensor, 0, values));
    set(kPaths[i], values, {tensor->name, as_source("tensor " + tensor->name)});
  }
  set("rope_scaling.rope_type", "longrope", {"rope_type", as_source("tensor " + factors[0]->name)});
  set_from_key("rope_scaling.attention_factor", attention.value_or(1), "rope.scaling.attn_factor");
  if (context)
    set_from_key("rope_scaling.original_max_position_embeddings", *context,
                 "rope.scaling.original_context_length");
  return {};
}

// Flags that follow from the presence of a tensor.
void GgufConfig::read_flags() {
  // Config keys differ by family; one of two tensors decides.
  struct Flag {
    std::string_view path;
    WeightRole role, or_role;
    int layer;
    bool when_there;
  };
  constexpr Flag kFlags[] = {
      {"tie_word_embeddings", WeightRole::kHead, WeightRole::kHead, -1, false},
      {"attention_bias", WeightRole::kQBias, WeightRole::kQkvBias, 0, true},
      {"use_qkv_bias", WeightRole::kQBias, WeightRole::kQkvBias, 0, true},
      {"use_bias", WeightRole::kQBias, WeightRole::kQkvBias, 0, true},
      {"bias", WeightRole::kQBias, WeightRole::kQkvBias, 0, true},
      {"mlp_bias", WeightRole::kGateBias, WeightRole::kUpBias, 0, true},
      {"use_qk_norm", WeightRole::kQNorm, WeightRole::kQNorm, 0, true},
      {"qk_layernorm", WeightRole::kQNorm, WeightRole::kQNorm, 0, true},
  };
  for (const Flag& flag : kFlags) {
    std::string name = tensor_name(flag.role, flag.layer);
    if (name.empty()) continue;
    const std::string other = tensor_name(flag.or_role, flag.layer);
    if (tensors_.find(name) == nullptr && tensors_.find(other) != nullptr) name = other;
    const bool there = tensors_.find(name) != nullptr;
    set(flag.path, there == flag.when_there,
        {std::string(flag.path), as_source((there ? "tensor " : "no tensor ") + name)});
  }
}

Status GgufConfig::read_special_ids() {
  constexpr std::string_view kPrefix = "tokenizer.ggml.";
  // Files without such a token may say -1, as an unsigned number.
  const auto read = [&](std::string_view name) -> Result<std::optional<std::uint64_t>> {
    DOPPLER_ASSIGN(const auto id, metadata_.get_int(fmt::format("{}{}", kPrefix, name)));
    if (!id || *id == -1 || *id == UINT32_MAX) return std::nullopt;
    return metadata_.get_uint(fmt::format("{}{}", kPrefix, name));
  };
  constexpr std::pair<std::string_view, std::string_view> kSingle[] = {{"bos_token_id", "bos_token_id"},
                                                                       {"pad_token_id", "padding_token_id"}};
  for (const auto& [path, name] : kSingle) {
    DOPPLER_ASSIGN(const auto id, read(name));
    const std::string full = fmt::format("{}{}", kPrefix, name);
    if (id) set(path, *id, {full, as_source(full)});
  }
  DOPPLER_ASSIGN(const std::vector<GgufStopToken> ends, gguf_stop_tokens(metadata_));
  if (ends.empty()) return {};
  Json ids = Json::array();
  std::string source = "gguf: ";
  for (const GgufStopToken& end : ends) {
    source += fmt::format("{}{}", ids.empty() ? "" : ", ", printable(end.source));
    ids.push_back(end.id);
  }
  set("eos_token_id", std::move(ids), {"tokenizer.ggml.eos_token_id", source});
  return {};
}

}  // namespace doppler
