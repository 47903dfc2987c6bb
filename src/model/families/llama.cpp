// Llama 2, 3, 3.1, 3.2 and everything that calls itself llama. Source: transformers' LlamaConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kLlamaTypes[] = {"llama"};

Status fill_llama(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_mlp_bias(builder, "mlp_bias"));
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kLlamaRule = {"llama",
                               kLlamaTypes,
                               fill_llama,
                               {.architecture = "llama", .weight_names = kDivisorNames, .paired_rows = true}};

}  // namespace doppler
