// Mistral 7B and its successors: llama with a window on every layer. Source: transformers' MistralConfig.
#include "model/families/rules.h"

namespace doppler {
namespace {

constexpr std::string_view kMistralTypes[] = {"mistral"};
constexpr WeightRole kMistralRopeFactors[] = {WeightRole::kRopeDivisors};
constexpr WeightNames kMistralGgufNames = {.style = NameStyle::kGguf, .rope_factors = kMistralRopeFactors};

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

}  // namespace

const FamilyRule kMistralRule = {
    "mistral",
    kMistralTypes,
    fill_mistral,
    // llama.cpp's converter leaves the window out; then the model is a llama and attends to everything.
    {.architecture = "llama",
     .weight_names = kMistralGgufNames,
     .distinguishing_key = "attention.sliding_window",
     .paired_rows = true}};

}  // namespace doppler
