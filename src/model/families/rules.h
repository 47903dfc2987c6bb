// The rules of all families, one file each; family.cpp lists them. What several families have in common to
// say about a spec stands here, too.
#pragma once

#include <string>

#include "model/family.h"

namespace doppler {

extern const FamilyRule kLlamaRule;
extern const FamilyRule kMistralRule;
extern const FamilyRule kQwen2Rule;
extern const FamilyRule kQwen3Rule;
extern const FamilyRule kPhi3Rule;
extern const FamilyRule kGemmaRule;
extern const FamilyRule kGemma2Rule;
extern const FamilyRule kGemma3Rule;
extern const FamilyRule kGemma3nRule;
extern const FamilyRule kGemma4Rule;
extern const FamilyRule kDeepseekV2Rule;
extern const FamilyRule kDeepseekV3Rule;
extern const FamilyRule kMistral4Rule;
extern const FamilyRule kGlm4MoeLiteRule;
extern const FamilyRule kLlama4Rule;
extern const FamilyRule kOlmo2Rule;
extern const FamilyRule kOlmo3Rule;
extern const FamilyRule kGraniteRule;
extern const FamilyRule kSmolLm3Rule;
extern const FamilyRule kGlm4Rule;
extern const FamilyRule kCohereRule;
extern const FamilyRule kCohere2Rule;
extern const FamilyRule kPhiRule;
extern const FamilyRule kStarcoder2Rule;
extern const FamilyRule kStableLmRule;
extern const FamilyRule kExaone4Rule;
extern const FamilyRule kSeedOssRule;
extern const FamilyRule kErnie45Rule;
extern const FamilyRule kHunyuanDenseRule;
extern const FamilyRule kNemotronRule;
extern const FamilyRule kLfm2Rule;
extern const FamilyRule kLfm2MoeRule;
extern const FamilyRule kQwen35Rule;
extern const FamilyRule kQwen35MoeRule;
extern const FamilyRule kQwen3NextRule;
extern const FamilyRule kJambaRule;
extern const FamilyRule kGraniteHybridRule;
extern const FamilyRule kMamba2Rule;
extern const FamilyRule kFalconH1Rule;
extern const FamilyRule kNemotronHRule;
extern const FamilyRule kMinistral3Rule;
extern const FamilyRule kGpt2Rule;
extern const FamilyRule kGptNeoXRule;
extern const FamilyRule kFalconRule;
extern const FamilyRule kApertusRule;
extern const FamilyRule kMixtralRule;
extern const FamilyRule kQwen2MoeRule;
extern const FamilyRule kQwen3MoeRule;
extern const FamilyRule kGptOssRule;
extern const FamilyRule kOlmoeRule;
extern const FamilyRule kGlm4MoeRule;
extern const FamilyRule kGraniteMoeRule;
extern const FamilyRule kMinimaxM2Rule;
extern const FamilyRule kErnie45MoeRule;
extern const FamilyRule kHunyuanMoeRule;
extern const FamilyRule kPhimoeRule;

// What Gemma's own files say: embeddings are scaled by sqrt(hidden), and a softcap of null is none. The
// fallback: nothing, where an absent key means none.
void scale_embedding_as_gemma(SpecBuilder& builder);
Result<double> read_softcap(SpecBuilder& builder, std::string_view path, std::string_view key,
                            std::optional<double> fallback);

// Families with norms after each half only.
inline constexpr std::array<WeightName, 1> kPostNormNames = {
    {{WeightRole::kPostAttnNorm, "model.layers.{}.post_attention_layernorm.weight",
      WeightCondition::kPostAttnNorm}}};

// GGUF files with the table's names that may hold rope divisors (llama3's scaling).
inline constexpr std::array<WeightRole, 1> kDivisorRoles = {WeightRole::kRopeDivisors};
inline constexpr WeightNames kDivisorNames = {.style = NameStyle::kGguf, .rope_factors = kDivisorRoles};

// For read_layer_types(): the last layer of each period attends fully.
bool is_last_of_period(std::uint32_t layer, std::uint32_t period);
bool slides(const LayerSpec& layer);

// No window unless use_sliding_window says otherwise; then from layer max_window_layers on (Qwen).
Status read_qwen_windows(SpecBuilder& builder);
// The same, but then in every layer (Qwen 3 MoE).
Status read_window_if_used(SpecBuilder& builder);
// A window in every layer where the file has sliding_window, else in none.
Status read_window_of_all_layers(SpecBuilder& builder);
// attention_bias: on queries, keys, values and the attention's output.
Status read_attention_bias(SpecBuilder& builder);
Status read_mlp_bias(SpecBuilder& builder, std::string_view key);
// clip_qkv, where the file has it: queries, keys and values are cut.
Status read_clip(SpecBuilder& builder);
inline constexpr std::array<GgufKey, 1> kClipKeys = {{{"clip_qkv", "attention.clamp_kqv"}}};
void use_layer_norm(SpecBuilder& builder, bool bias);
// Norms on what is added to the residual stream, and none on what is read of it.
void use_norms_after_only(SpecBuilder& builder);
// Attention and feed-forward read the layer's input through one norm.
void use_parallel_halves(SpecBuilder& builder);
void use_all_biases(SpecBuilder& builder, std::string source);
void use_no_gate(SpecBuilder& builder);
inline constexpr std::array<GgufKey, 4> kGraniteKeys = {{{"embedding_multiplier", "embedding_scale"},
                                                         {"residual_multiplier", "residual_scale"},
                                                         {"attention_multiplier", "attention.scale"},
                                                         {"logits_scaling", "logit_scale"}}};
// Factors of embedding, scores, residual branches and logits, as Granite's files have them.
Status read_granite_multipliers(SpecBuilder& builder);
// Errors: kUnsupported where the file says true.
Status refuse_flag(SpecBuilder& builder, std::string_view key);

}  // namespace doppler
