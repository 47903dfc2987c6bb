// Llama 2, 3, 3.1, 3.2 and everything that calls itself llama. Source: transformers' LlamaConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kLlamaTypes[] = {"llama"};
constexpr WeightRole kLlamaRopeFactors[] = {WeightRole::kRopeDivisors};
constexpr WeightNames kLlamaGgufNames = {.style = NameStyle::kGguf, .rope_factors = kLlamaRopeFactors};

Status fill_llama(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {}));
  DOPPLER_ASSIGN(const bool attention_bias,
                 builder.get_bool("attention.qkv_bias and o_bias", "attention_bias", false));
  DOPPLER_ASSIGN(const bool mlp_bias, builder.get_bool("ffn.bias", "mlp_bias", false));
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qkv_bias = layer.attention.o_bias = attention_bias;
    layer.ffn.bias = mlp_bias;
  }
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kLlamaRule = {
    "llama",
    kLlamaTypes,
    fill_llama,
    {.architecture = "llama", .weight_names = kLlamaGgufNames, .paired_rows = true}};

}  // namespace doppler
