// Mistral 7B and its successors: llama with a window on every layer. Ministral 3: YaRN, and queries that grow
// with their position. Sources: transformers' MistralConfig, Ministral3Config.
#include "base/json.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kMistralTypes[] = {"mistral"};
constexpr std::string_view kMinistral3Types[] = {"ministral3"};

Status fill_mistral(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.num_key_value_heads = 8, .max_position_embeddings = 4096 * 32}));
  // The class defaults to a window of 4096; "sliding_window": null in the file means none.
  const bool says_none = says_null(builder.config(), "sliding_window");
  const auto always = [](bool full) {
    return full ? +[](std::uint32_t, std::uint32_t) { return true; }
                : +[](std::uint32_t, std::uint32_t) { return false; };
  };
  DOPPLER_TRY(
      read_layer_types(builder, 4096, always(says_none), 1,
                       says_none ? "config.json: sliding_window = null" : "rule: every layer slides"));
  return read_rope(builder, 10000);
}

Status fill_ministral3(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 131072,
                                    .hidden_size = 4096,
                                    .intermediate_size = 14336,
                                    .num_hidden_layers = 34,
                                    .num_attention_heads = 32,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 262144,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_window_of_all_layers(builder));
  DOPPLER_TRY(read_rope(builder, 10000));
  return read_query_scale(builder);
}

constexpr GgufKey kMinistral3Keys[] = {{"rope_scaling.llama_4_scaling_beta", "attention.temperature_scale"},
                                       {"rope_scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"}};

// The weight of YaRN's logarithm that the converter takes for granted.
Status adjust_ministral3(GgufConfig& config) {
  DOPPLER_ASSIGN(const auto weight, config.get_number("rope.scaling.yarn_log_multiplier"));
  if (weight) config.derive("rope_scaling.mscale", 1, "rule of GGUF: mscale is 1");
  return {};
}

}  // namespace

const FamilyRule kMistralRule = {
    "mistral",
    kMistralTypes,
    fill_mistral,
    // llama.cpp's converter leaves the window out; then the model is a llama and attends to everything.
    {.architecture = "llama",
     .weight_names = kDivisorNames,
     .distinguishing_key = "attention.sliding_window",
     .paired_rows = true}};
const FamilyRule kMinistral3Rule = {
    "ministral3",
    kMinistral3Types,
    fill_ministral3,
    {.architecture = "mistral3", .paired_rows = true, .keys = kMinistral3Keys, .adjust = adjust_ministral3},
    {},
    R"({"rope_type": "yarn", "rope_theta": 1000000, "factor": 16, "original_max_position_embeddings": 16384,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1})"};

}  // namespace doppler
