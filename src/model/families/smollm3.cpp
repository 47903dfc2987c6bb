// SmolLM 3: a llama whose every fourth layer has no rope. Source: transformers' SmolLM3Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kSmolLm3Types[] = {"smollm3"};

Status fill_smollm3(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 128256,
                                    .hidden_size = 2048,
                                    .intermediate_size = 11008,
                                    .num_hidden_layers = 36,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 4,
                                    .max_position_embeddings = 32768,
                                    .tie_word_embeddings = true}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  DOPPLER_TRY(read_layer_types(
      builder, std::nullopt, [](std::uint32_t, std::uint32_t) { return true; }, 1, "rule: every layer"));
  DOPPLER_TRY(read_rope(builder, 2000000));
  // no_rope_layers says 1 for the layers that have rope.
  DOPPLER_ASSIGN(const auto flags, builder.config().get_uints("no_rope_layers"));
  const std::size_t layers = builder.spec().layers.size();
  if (flags && flags->size() != layers) {
    return fail(ErrorCode::kCorrupt, "The {} lists {} no_rope_layers for num_hidden_layers = {}. Correct it.",
                builder.config().source(), flags->size(), layers);
  }
  DOPPLER_ASSIGN(const std::uint32_t interval,
                 builder.get_uint("attention.rope.interval", "no_rope_layer_interval", 4));
  leave_rope_out(
      builder, [&](std::size_t i) { return flags ? (*flags)[i] != 0 : (i + 1) % interval != 0; },
      flags ? builder.config().where("no_rope_layers") : "rule: every layer of no_rope_layer_interval");
  return {};
}

}  // namespace

const FamilyRule kSmolLm3Rule = {
    "smollm3", kSmolLm3Types, fill_smollm3, {.architecture = "smollm3", .paired_rows = true}};

}  // namespace doppler
