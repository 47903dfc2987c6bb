// OLMo 2 and 3: norms only on what is added to the residual stream, one norm over a whole projection of
// queries or keys; OLMo 3 with windows in three of four layers, which are not scaled by YaRN. Sources:
// transformers' Olmo2Config, Olmo3Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kOlmo2Types[] = {"olmo2"};
constexpr std::string_view kOlmo3Types[] = {"olmo3"};

ConfigDefaults olmo_defaults() {
  return {.vocab_size = 50304,
          .hidden_size = 4096,
          .intermediate_size = 11008,
          .num_hidden_layers = 32,
          .num_attention_heads = 32,
          .max_position_embeddings = 2048,
          .rms_norm_eps = 1e-5};
}

Status fill_olmo(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, olmo_defaults()));
  DOPPLER_TRY(read_attention_bias(builder));
  use_norms_after_only(builder);
  const std::string rule = fmt::format("rule of the {} family", builder.spec().family);
  builder.note("attention.qk_norm", "true, over the whole projection", rule);
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qk_norm = true;
    layer.attention.qk_norm_span = NormSpan::kProjection;
  }
  return {};
}

Status fill_olmo2(SpecBuilder& builder) {
  DOPPLER_TRY(fill_olmo(builder));
  return read_rope(builder, 10000);
}

Status fill_olmo3(SpecBuilder& builder) {
  DOPPLER_TRY(fill_olmo(builder));
  DOPPLER_TRY(
      read_layer_types(builder, 4096, is_last_of_period, 4, "rule: every layer 4 of 4 attends fully"));
  return read_rope(builder, {.theta = 500000, .plain_sliding = true});
}

}  // namespace

const FamilyRule kOlmo2Rule = {
    "olmo2", kOlmo2Types, fill_olmo2, {.architecture = "olmo2"}, {.own = kPostNormNames}};
const FamilyRule kOlmo3Rule = {"olmo3",
                               kOlmo3Types,
                               fill_olmo3,
                               {.architecture = "olmo2", .distinguishing_key = "attention.sliding_window"},
                               {.own = kPostNormNames}};

}  // namespace doppler
