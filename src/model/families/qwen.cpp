// Qwen 2 and 2.5 (biases on q, k and v) and Qwen 3 (norms on q and k instead). Sources: transformers'
// Qwen2Config, Qwen3Config.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kQwen2Types[] = {"qwen2"};
constexpr std::string_view kQwen3Types[] = {"qwen3"};

Status fill_qwen2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.num_key_value_heads = 32, .max_position_embeddings = 32768}));
  builder.note("attention.qkv_bias", "true", "rule of the qwen2 family");
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qkv_bias = true;
  DOPPLER_TRY(read_qwen_windows(builder));
  return read_rope(builder, 10000);
}

Status fill_qwen3(SpecBuilder& builder) {
  DOPPLER_TRY(
      read_common(builder, {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768}));
  DOPPLER_TRY(read_attention_bias(builder));
  builder.note("attention.qk_norm", "true", "rule of the qwen3 family");
  for (LayerSpec& layer : builder.spec().layers) layer.attention.qk_norm = true;
  DOPPLER_TRY(read_qwen_windows(builder));
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kQwen2Rule = {"qwen2", kQwen2Types, fill_qwen2, {.architecture = "qwen2"}};
const FamilyRule kQwen3Rule = {"qwen3", kQwen3Types, fill_qwen3, {.architecture = "qwen3"}};

}  // namespace doppler
