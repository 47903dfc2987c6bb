// EXAONE 4: norms only on what is added to the residual stream, norms on queries and keys; with windows, the
// layers that attend fully have no rope. Source: transformers' Exaone4Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kExaone4Types[] = {"exaone4"};

// A number, or a text such as LLLG with a letter for each layer of a period.
Result<std::uint32_t> read_period(SpecBuilder& builder) {
  constexpr std::string_view kKey = "sliding_window_pattern";
  const auto text = builder.config().get_string(kKey);
  if (!text || !*text || (*text)->empty()) return builder.get_uint("attention.period", kKey, 4);
  builder.note("attention.period", std::to_string((*text)->size()), builder.config().where(kKey));
  return static_cast<std::uint32_t>((*text)->size());
}

Status fill_exaone4(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 102400,
                                    .hidden_size = 4096,
                                    .intermediate_size = 16384,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 32,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5}));
  use_norms_after_only(builder);
  const std::string rule = "rule of the exaone4 family";
  builder.note("attention.qk_norm", "true", rule);
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  const bool windows = builder.config().has("sliding_window");
  if (windows) {
    DOPPLER_ASSIGN(const std::uint32_t period, read_period(builder));
    DOPPLER_TRY(read_layer_types(builder, std::nullopt, is_last_of_period, period,
                                 fmt::format("rule: every layer {} of {} attends fully", period, period)));
  }
  DOPPLER_TRY(read_rope(builder, 10000));
  if (windows)
    leave_rope_out(
        builder, [&](std::size_t i) { return slides(builder.spec().layers[i]); },
        rule + ": layers that attend fully have no rope");
  return {};
}

}  // namespace

const FamilyRule kExaone4Rule = {"exaone4",
                                 kExaone4Types,
                                 fill_exaone4,
                                 {.architecture = "exaone4", .weight_names = kDivisorNames},
                                 {.own = kPostNormNames}};

}  // namespace doppler
