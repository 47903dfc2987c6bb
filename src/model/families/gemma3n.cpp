// Gemma 3n: several residual streams (AltUp), a low-rank branch beside attention (LAuReL), sparse gates in
// the first layers, per-layer embeddings, last layers that read the keys and values of an earlier one.
// Source: transformers' Gemma3nTextConfig and modeling_gemma3n.
#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "model/families/rules.h"
#include "model/families/shared_kv.h"

namespace doppler {
namespace {

// Checkpoints hold it whether altup_correct_scale uses it or not.
constexpr std::string_view kGemma3nNeedless[] = {".altup.correct_output_scale"};
constexpr std::string_view kGemma3nTypes[] = {"gemma3n_text", "gemma3n"};

// The share of a standard normal distribution that lies below a point.
double normal_share(double point) {
  return 0.5 * std::erfc(-point / std::sqrt(2.0));
}

// The point below which a standard normal variable lies with that probability, by bisection of its
// distribution: 60 halvings of [-16, 16] leave less than a double's rounding.
double normal_quantile(double probability) {
  double low = -16, high = 16;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (normal_share(middle) < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

// intermediate_size is a number, or a list of one for each layer.
Status read_widths(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  auto& layers = builder.spec().layers;
  const auto found = config.json().find("intermediate_size");
  if (found == config.json().end() || !found->is_array()) return {};
  DOPPLER_ASSIGN(const auto widths, config.get_uints("intermediate_size"));
  const bool fits =
      widths && widths->size() == layers.size() &&
      std::ranges::all_of(*widths, [](std::uint64_t w) { return w > 0 && w < (std::uint64_t{1} << 31); });
  if (!fits) {
    return fail(ErrorCode::kCorrupt,
                "The {} lists {} values of {} for {} layers, or one that is no width. Correct it.",
                config.source(), widths ? widths->size() : 0, config.name("intermediate_size"),
                layers.size());
  }
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].ffn.width = static_cast<std::uint32_t>((*widths)[i]);
  builder.note("ffn.width", fmt::format("{} and others, by layer", (*widths)[0]),
               config.where("intermediate_size"));
  return {};
}

Status read_sparsity(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  auto& layers = builder.spec().layers;
  DOPPLER_ASSIGN(const auto pattern, config.get_numbers("activation_sparsity_pattern"));
  if (!pattern) return {};
  const bool fits = pattern->size() == layers.size() &&
                    std::ranges::all_of(*pattern, [](double share) { return share >= 0 && share < 1; });
  if (!fits) {
    return fail(ErrorCode::kCorrupt,
                "The {} lists {} values of {} for {} layers, or one for a share outside 0 to 1. Correct it.",
                config.source(), pattern->size(), config.name("activation_sparsity_pattern"), layers.size());
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const double share = (*pattern)[i];
    if (share == 0) continue;
    if (share <= 0.5) {
      return fail(
          ErrorCode::kUnsupported,
          "The value {} = {} of layer {} cuts gates off at or below their mean, but Doppler only cuts "
          "above it. Use another model.",
          config.where("activation_sparsity_pattern"), share, i);
    }
    layers[i].ffn.gate_cutoff = normal_quantile(share);
    builder.note(fmt::format("layers[{}].ffn.gate_cutoff", i), fmt::format("{}", layers[i].ffn.gate_cutoff),
                 config.where("activation_sparsity_pattern"));
  }
  return {};
}

Status read_altup(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(spec.altup.streams, builder.get_uint("altup.streams", "altup_num_inputs", 4));
  DOPPLER_ASSIGN(spec.altup.active, builder.get_uint("altup.active", "altup_active_idx", 0, true));
  DOPPLER_ASSIGN(spec.altup.laurel_rank, builder.get_uint("altup.laurel_rank", "laurel_rank", 64));
  if (spec.altup.streams < 2 || spec.altup.streams > spec.layers.size() + 1 || spec.altup.streams > 64 ||
      spec.altup.active >= spec.altup.streams) {
    return fail(ErrorCode::kCorrupt,
                "The {} says {} = {} and {} = {} with {} layers, but there must be at least 2 streams, at "
                "most one more "
                "than layers, and the active one must be among them. Correct it.",
                config.source(), config.name("altup_num_inputs"), spec.altup.streams,
                config.name("altup_active_idx"), spec.altup.active, spec.layers.size());
  }
  DOPPLER_ASSIGN(spec.altup.out_scale, builder.get_bool("altup.out_scale", "altup_correct_scale", true));
  return {};
}

Status fill_gemma3n(SpecBuilder& builder) {
  const auto found = builder.config().json().find("intermediate_size");
  const bool by_layer = found != builder.config().json().end() && found->is_array();
  DOPPLER_TRY(read_common(builder, {.vocab_size = 262400,
                                    .hidden_size = 2048,
                                    .intermediate_size = 16384,
                                    .num_hidden_layers = 35,
                                    .num_attention_heads = 8,
                                    .num_key_value_heads = 2,
                                    .head_dim = 256,
                                    .max_position_embeddings = 32768,
                                    .tie_word_embeddings = true,
                                    .activation = "gelu_pytorch_tanh",
                                    .activation_key = "hidden_activation",
                                    .widths_by_layer = by_layer}));
  ModelSpec& spec = builder.spec();
  scale_embedding_as_gemma(builder);
  DOPPLER_TRY(read_widths(builder));
  DOPPLER_TRY(read_sparsity(builder));
  DOPPLER_TRY(read_layer_types(builder, 512, is_last_of_period, 5, "rule: every fifth layer attends fully"));
  const std::string rule = "rule of the gemma3n family";
  set_attention_scale(builder, 1, rule);
  builder.note("attention.qk_norm, attention.v_norm, post_attn_norm, post_ffn_norm", "true", rule);
  for (LayerSpec& layer : spec.layers) {
    layer.attention.qk_norm = layer.attention.v_norm = true;
    layer.post_attn_norm = layer.post_ffn_norm = true;
  }
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_shared_kv(builder));
  DOPPLER_TRY(read_altup(builder));
  DOPPLER_TRY(read_per_layer(builder, 256));
  if (spec.per_layer.width == 0) {
    return fail(ErrorCode::kUnsupported,
                "The {} gives the {} family no per-layer embedding "
                "(hidden_size_per_layer_input), which Doppler does not run.",
                builder.config().source(), spec.family);
  }
  DOPPLER_ASSIGN(spec.final_softcap, read_softcap(builder, "head.softcap", "final_logit_softcapping", 30.0));
  return read_rope(builder, 1000000, 10000);
}

// Whose absence llama.cpp takes for the numbers of the published sizes, whatever the model.
Status require_keys(const GgufConfig& config) {
  constexpr GgufKey kRequired[] = {{"num_kv_shared_layers", "attention.shared_kv_layers"},
                                   {"activation_sparsity_pattern", "activation_sparsity_scale"}};
  for (const GgufKey& key : kRequired) {
    if (config.json().contains(std::string(key.path))) continue;
    return fail(ErrorCode::kCorrupt,
                "The GGUF metadata has no {}, which every model of this architecture has. Download the file "
                "again.",
                config.key(key.suffix));
  }
  return {};
}

// A file says the points of a normal distribution, one for each layer, where config.json says the shares that
// lie below them; -inf is that of none.
Status adjust_gemma3n(GgufConfig& config) {
  constexpr std::string_view kCutoffs = "activation_sparsity_scale", kWidths = "feed_forward_length";
  DOPPLER_ASSIGN(const std::vector<float> cutoffs, config.get_floats(kCutoffs));
  if (!cutoffs.empty()) {
    std::vector<double> shares;
    for (const float cutoff : cutoffs) shares.push_back(normal_share(cutoff));
    config.set_from_key("activation_sparsity_pattern", shares, kCutoffs);
  }
  DOPPLER_TRY(require_keys(config));
  DOPPLER_ASSIGN(const std::vector<std::uint64_t> widths, config.get_uints(kWidths));
  if (std::ranges::any_of(widths, [&](std::uint64_t width) { return width != widths[0]; }))
    config.set_from_key("intermediate_size", widths, kWidths);
  derive_per_layer_tokens(config);
  if (const TensorView* down = config.tensor(WeightRole::kLaurelDown, 0))
    config.derive("laurel_rank", down->rows(), "tensor " + down->name);
  return {};
}

constexpr GgufKey kGemma3nKeys[] = {{"altup_num_inputs", "altup.num_inputs"},
                                    {"altup_active_idx", "altup.active_idx"},
                                    {"altup_correct_scale", "altup.correct_scale"},
                                    {"num_kv_shared_layers", "attention.shared_kv_layers"},
                                    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"}};
constexpr std::string_view kGemma3nOwnKeys[] = {"feed_forward_length"};
constexpr std::string_view kGemma3nGgufNeedless[] = {".altup_correct_scale.weight"};

}  // namespace

const FamilyRule kGemma3nRule = {
    "gemma3n",
    kGemma3nTypes,
    fill_gemma3n,
    {.architecture = "gemma3n",
     .weight_names = {.style = NameStyle::kGguf, .needless = kGemma3nGgufNeedless},
     .keys = kGemma3nKeys,
     .adjust = adjust_gemma3n,
     .own_keys = kGemma3nOwnKeys,
     .unread_kv = true},
    {.own = kSandwichNames, .needless = kGemma3nNeedless}};

}  // namespace doppler
