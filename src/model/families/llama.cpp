// Llama 2, 3, 3.1, 3.2 and everything that calls itself llama. Source: transformers' LlamaConfig.
#include "model/families/names.h"
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr auto kNames = names::concat(names::kCommon, names::kSplit, names::kBiases, names::kTwoNorms);
constexpr auto kGgufNames = gguf_names::concat(gguf_names::kCommon, gguf_names::kSplit, gguf_names::kBiases,
                                               gguf_names::kRopeDivisors);
constexpr std::string_view kTypes[] = {"llama"};

Status fill(SpecBuilder& builder) {
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

const FamilyRule kLlamaRule = {"llama",
                               kTypes,
                               fill,
                               kNames,
                               {.architecture = "llama", .weight_names = kGgufNames, .paired_rows = true}};

}  // namespace doppler
