// Command R (cohere) and R7B (cohere2): LayerNorm without bias, attention and feed-forward side by side
// behind one norm, neighbouring rope pairs, scaled logits; R+ norms each head of queries and keys with its
// own weight; R7B rotates in its window layers only. Sources: transformers' CohereConfig, Cohere2Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kCohereTypes[] = {"cohere"};
constexpr std::string_view kCohere2Types[] = {"cohere2"};
constexpr GgufKey kCohereKeys[] = {{"logit_scale", "logit_scale"}};

Status fill_both(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 256000,
                                    .hidden_size = 8192,
                                    .intermediate_size = 22528,
                                    .num_hidden_layers = 40,
                                    .num_attention_heads = 64,
                                    .max_position_embeddings = 8192,
                                    .rms_norm_eps = 1e-5,
                                    .norm_eps_key = "layer_norm_eps",
                                    .tie_word_embeddings = true}));
  use_layer_norm(builder, false);
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_ASSIGN(builder.spec().logit_scale, builder.get_positive("head.scale", "logit_scale", 0.0625));
  use_parallel_halves(builder);
  return {};
}

Status fill_cohere(SpecBuilder& builder) {
  DOPPLER_TRY(fill_both(builder));
  DOPPLER_ASSIGN(const bool qk_norm, builder.get_bool("attention.qk_norm", "use_qk_norm", false));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qk_norm = qk_norm;
    layer.attention.qk_norm_span = NormSpan::kOwnHead;
  }
  return read_rope(builder, {.theta = 500000, .layout = RopeLayout::kInterleaved});
}

Status fill_cohere2(SpecBuilder& builder) {
  DOPPLER_TRY(fill_both(builder));
  const std::string_view key =
      builder.config().has("sliding_window_pattern") ? "sliding_window_pattern" : "layer_switch";
  DOPPLER_ASSIGN(const std::uint32_t period, builder.get_uint("attention.period", key, 4));
  DOPPLER_TRY(read_layer_types(builder, 4096, is_last_of_period, period,
                               fmt::format("rule: every layer {} of {} attends fully", period, period)));
  DOPPLER_TRY(read_rope(builder, {.theta = 10000, .layout = RopeLayout::kInterleaved}));
  leave_rope_out(
      builder, [&](std::size_t i) { return slides(builder.spec().layers[i]); },
      "rule of the cohere2 family: layers that attend fully have no rope");
  return {};
}

}  // namespace

const FamilyRule kCohereRule = {
    "cohere", kCohereTypes, fill_cohere, {.architecture = "command-r", .keys = kCohereKeys}};
const FamilyRule kCohere2Rule = {
    "cohere2", kCohere2Types, fill_cohere2, {.architecture = "cohere2", .keys = kCohereKeys}};

}  // namespace doppler
