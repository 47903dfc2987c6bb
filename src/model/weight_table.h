// The table of weights: for each role its shape, when a model has it, what it computes and how files name it.
// Binding, random weights, mixes of types, the doctor and the tests' fixtures read it; nothing else knows
// these facts. A new kind of weight is a row here and an op in the plan that uses it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec.h"
#include "model/stage.h"
#include "quant/tensor.h"

namespace doppler {

// The purpose of a weight, in the order in which a step uses them. Fused tensors are roles of their own;
// binding splits them into row slices.
enum class WeightRole : std::uint8_t {
  // GGUF's tensors of rope divisors: read into the spec, not bound.
  kRopeDivisors,
  kRopeLongFactors,
  kRopeShortFactors,
  kTokenEmbedding,
  kPositionEmbedding,
  kPerLayerEmbedding,
  kPerLayerModelProjection,
  kPerLayerProjectionNorm,
  kAltupProjection,  // of stream i + 1, under the number i that others give a layer
  kAltupUnprojection,
  kAltupRouterNorm,
  kAltupRouter,
  kAltupPrediction,
  kAttnNorm,
  kAttnNormBias,
  kLaurelDown,
  kLaurelUp,
  kLaurelNorm,
  kQDown,
  kQDownBias,
  kQDownNorm,
  kQUp,
  kKvDown,
  kKvDownBias,
  kKvDownNorm,
  kKvUp,
  kKUp,
  kVUp,
  kQkv,
  kQ,
  kK,
  kV,
  kQkvBias,
  kQBias,
  kKBias,
  kVBias,
  kQNorm,
  kQNormBias,
  kKNorm,
  kKNormBias,
  kSinks,
  kO,
  kOBias,
  kMixerIn,
  kMixerInBias,
  kMixerInConv,
  kMixerInGate,
  kMixerInB,
  kMixerInA,
  kMixerInBa,
  kConvolution,
  kConvolutionBias,
  kStateProjection,
  kStepNorm,
  kStateInNorm,
  kStateOutNorm,
  kStepProjection,
  kStepBias,
  kDecayRate,
  kDecayRates,
  kSkip,
  kMixerNorm,
  kMixerOut,
  kMixerOutBias,
  kPostAttnNorm,
  kFfnNorm,
  kFfnNormBias,
  // xIELU's numbers, read into the spec.
  kXieluAlphaP,
  kXieluAlphaN,
  kXieluBeta,
  kXieluEps,
  kRouter,
  kRouterBias,
  kRouterCorrection,
  kExpertScale,
  kLatentIn,
  kLatentInBias,
  kRouterNorm,
  kExpertsNorm,
  kGateUp,
  kGate,
  kUp,
  kGateBias,
  kUpBias,
  kGateUpExperts,
  kGateExperts,
  kUpExperts,
  kGateExpertsBias,
  kUpExpertsBias,
  kDown,
  kDownBias,
  kDownExperts,
  kDownExpertsBias,
  kLatentOut,
  kLatentOutBias,
  kSharedGateUp,
  kSharedGateProj,
  kSharedUp,
  kSharedGateProjBias,
  kSharedUpBias,
  kSharedDown,
  kSharedDownBias,
  kSharedGate,
  kDensePostNorm,
  kExpertsPostNorm,
  kPostFfnNorm,
  kAltupCorrection,
  kAltupOutScale,
  kPleGate,
  kPleProjection,
  kPleNorm,
  kLayerScale,
  kFinalNorm,
  kFinalNormBias,
  kHead,
  kHeadBias,
  kCount,
};

// How a weight is used, whatever its role: decides how it is initialised, stored and judged.
enum class WeightKind : std::uint8_t {
  kEmbedding,    // rows are looked up
  kHead,         // its products are the logits
  kNorm,         // scales a normed vector, or any other by numbers near 1
  kProjection,   // matrix of a product
  kBias,         // added to a product
  kRouter,       // scores experts
  kExperts,      // [experts, rows, columns]: a projection for each expert
  kRopeFactors,  // divisors of rotary frequencies
  kConvolution,  // [channels, taps]
  kRecurrence,   // rates and factors of a recurrence
  kNumber,       // one value, of a formula
};

// The numbers of a spec that shapes are made of.
enum class Size : std::uint8_t {
  kNone,
  kVocab,
  kHidden,
  kQueries,    // heads x head_dim
  kQueryRows,  // of the query projection: with a gate for each, twice as many
  kKeys,       // kv_heads x head_dim
  kAttnOut,    // heads x their values' size
  kOne,
  kHeads,
  kOwnDims,  // of a latent head of queries, which do not rotate
  kQLatent,
  kKvLatent,
  kKvDown,  // the latent and the rotary key
  kKvUp,    // heads x (keys' own dims and values)
  kValueDim,
  kPerLayer,
  kPerLayerAll,  // layers x kPerLayer
  kPerLayerTokens,
  kStreams,
  kStreamPairs,
  kLaurel,
  kQNorm,  // of one norm of queries: head_dim, or all heads' weights
  kKNorm,
  kPositions,
  kFfn,
  kDense,  // of the feed-forward without experts
  kExperts,
  kExpertIo,  // what experts read and give: the hidden width, or their own
  kShared,
  kRotaryPairs,  // half the dims of a head that rotate
  // Of a recurrent half:
  kMixerIn,  // rows of the input projection as a whole
  kMixerInBa,
  kMixerHeads,
  kInner,  // heads x head_dim
  kChannels,
  kTaps,
  kMixerNorm,
  kStateProjection,  // rank + 2 x states
  kRank,
  kStates,
  kNumber,  // one value
};

// When a model has a weight.
enum class WeightCondition : std::uint8_t {
  kAlways,
  kAttention,
  kUntiedHead,
  kHeadBias,
  kLearnedPositions,
  kAttnNorm,
  kAttnNormBias,
  kFfnNorm,
  kFfnNormBias,
  kNormBias,
  kQkNorm,
  kKNorm,
  kQNormBias,
  kKNormBias,
  kQ,     // queries are projections of the stream
  kOwnK,  // the layer makes keys of its own
  kOwnV,
  kLatent,
  kLatentQ,
  kLatentBias,
  kLatentQBias,
  kLatentWhole,
  kLatentSplit,
  kPerLayer,
  kAltup,
  kAltupOutScale,
  kAltupOthers,  // the streams beside the first
  kLayerScale,
  kQkvBias,
  kOwnKBias,
  kOwnVBias,
  kOBias,
  kPostAttnNorm,
  kPostFfnNorm,
  kFusedQkv,
  kFusedQkvBias,
  kFusedGateUp,
  kDense,  // one feed-forward for every token
  kGate,   // and it has a gate
  kDenseBias,
  kGateBias,
  kDenseBeside,  // experts and a feed-forward
  kRouterNorm,
  kExperts,
  kGatedExperts,
  kFusedExperts,
  kRouterBias,
  kRouterCorrection,
  kExpertScale,
  kLatentExperts,
  kLatentExpertsBias,
  kExpertBias,
  kGatedExpertBias,
  kShared,
  kSharedProj,
  kFusedShared,
  kSharedBias,
  kSharedProjBias,
  kSharedGate,
  kSinks,
  kDivisors,
  kLongRope,
  kRecurrent,
  kInWhole,
  kInBias,
  kInSeparate,
  kInByKeyHead,
  kConvolutionBias,
  kMemory,  // a state besides the convolution's
  kOneRate,
  kMamba,
  kMamba1,
  kPartNorms,
  kGatedNorm,
  kMixerOutBias,
  kXielu,
  kParallelFfnNorm,  // of halves side by side each has its norm
};

// Whose heads the rows (of a vector: the values) belong to, for weights whose outputs are rotated:
// llama.cpp's converter changes the order of their rows.
enum class RotatedHeads : std::uint8_t { kNone, kQuery, kKey };

struct WeightInfo {
  WeightRole role;
  std::string_view label;  // in messages: "attention output"
  WeightKind kind;
  Stage stage;                // the first stage that it helps compute; kNone for what is read into the spec
  std::array<Size, 3> shape;  // outermost first, up to the first kNone; of fused roles the parts say it
  WeightCondition when;
  // {} stands for the layer's index, and a second one for an expert's where each has a tensor of its own.
  // Where only the other has {}, files hold the matrices of all numbers as one tensor.
  // Empty: such files have no tensor of this role.
  std::string_view hugging_face, gguf;
  RotatedHeads rotated = RotatedHeads::kNone;
  std::array<WeightRole, 3> parts = {WeightRole::kCount, WeightRole::kCount, WeightRole::kCount};

  bool per_layer() const;
  // Whether NormSpec::weight_offset is added to it: a recurrent half's own norm never has one.
  bool takes_offset() const { return kind == WeightKind::kNorm && role != WeightRole::kMixerNorm; }
  // Whether each expert has one: a matrix, or a bias.
  bool per_expert() const;
  // The roles whose rows a fused tensor holds, one after the other; empty for all other roles.
  std::span<const WeightRole> fused_parts() const;
};

// In the order of WeightRole: model-wide roles before the layers', the layers', then the rest.
std::span<const WeightInfo> weight_table();
const WeightInfo& weight_info(WeightRole role);

enum class NameStyle : std::uint8_t { kHuggingFace, kGguf };

// A family's name of a role instead of the table's.
struct WeightName {
  WeightRole role;
  std::string_view name;
  // What holds for models that use this name; for others the next name of the role counts, and the message
  // says this when it turns up in one.
  WeightCondition goes_with = WeightCondition::kAlways;
};

// Families with a norm before and after each half (Gemma). Elsewhere post_attention_layernorm is the norm
// before the feed-forward.
inline constexpr std::array<WeightName, 2> kSandwichNames = {{
    {WeightRole::kPostAttnNorm, "model.layers.{}.post_attention_layernorm.weight",
     WeightCondition::kPostAttnNorm},
    {WeightRole::kFfnNorm, "model.layers.{}.pre_feedforward_layernorm.weight",
     WeightCondition::kPostAttnNorm},
}};

// Tensors that hold the matrices of all experts with columns instead of rows, [experts, in, out], under these
// names; gates and ups are one. MXFP4 checkpoints have rows, as NAME_blocks and NAME_scales.
struct ExpertColumns {
  std::string_view gate_up, down;  // empty: there are none
  bool interleaved = false;        // gates and ups in turn, not one half after the other
};

// How the files of a family name its weights: as the table does, with these exceptions.
struct WeightNames {
  NameStyle style = NameStyle::kHuggingFace;
  std::span<const WeightName> own = {};
  // Of folders that store experts as columns, not rows: see expert_files.h.
  ExpertColumns expert_columns = {};
  // The roles of kind kRopeFactors that the family's files may hold; other families' files must not.
  std::span<const WeightRole> rope_factors = {};
  // What folders store otherwise than the table says; arrange_weights() changes it.
  std::span<const WeightRole> transposed = {};  // [in, out]
  bool qkv_by_head = false;  // a fused qkv holds for each head of keys its queries, its key, its value
  std::span<const WeightName> each_head = {};  // a tensor for each head, whose number is the second {}
  // Endings of tensors that files carry and inference does not need.
  std::span<const std::string_view> needless = {};
};

// The name of a role's tensor, with the layer's index in it; empty if such files have none. Without a spec
// the first name of a family that has several for the role. Of roles whose experts have a tensor each, a
// second {} is left for numbered_name().
std::string weight_name(const WeightNames& names, WeightRole role, int layer = -1,
                        const ModelSpec* spec = nullptr);
// The pattern with its first {} replaced.
std::string numbered_name(std::string_view pattern, std::uint64_t number);

bool meets(const ModelSpec& spec, WeightCondition condition, int layer = -1);

// Whether files of this model hold what computes the stage as other tensors, which give the same values in
// other stages: those of another layout of a recurrent layer's input (InProjection).
bool is_stored_otherwise(const ModelSpec& spec, Stage stage, int layer);

// The shape that the spec gives the role, whether or not the model has it. `layer` is -1 for model-wide
// roles.
Shape weight_shape(const ModelSpec& spec, WeightRole role, int layer = -1);

// The spec's values that ask for the role and fix its shape: "attention.qk_norm = true and head_dim".
std::string weight_reason(WeightRole role);

// "attention.qk_norm = false", or nothing for conditions that no flag of a spec stands for.
std::string_view unmet_condition(WeightCondition condition);

// The heads that rotate in the order of the role's rows; 0 for roles whose outputs are not rotated.
std::uint32_t rotated_heads(const ModelSpec& spec, WeightRole role, int layer);

// One tensor of a model's files.
struct WeightTensor {
  const WeightInfo* info;
  int layer;         // -1: model-wide
  std::string name;  // empty if the names have none for the role
  Shape shape;       // of an expert's tensor, where each has one
  int expert = -1;   // -1: no expert's own
  // The role's matrices of all numbers, from 0 on, are one tensor, whose first dimension counts them.
  bool stack = false;
};

// Every tensor that files of this model hold, each once, in the order of the table: fused tensors instead of
// their parts, and no head that is tied.
std::vector<WeightTensor> weight_tensors(const ModelSpec& spec, const WeightNames& names);

// Where a checkpoint keeps its language model: what stands for "model." and "lm_head." of the table's names.
struct Nesting {
  std::string_view model, head;
};
inline constexpr std::array<Nesting, 7> kNestings = {{{"model.", "lm_head."},
                                                      {"language_model.model.", "language_model.lm_head."},
                                                      {"model.language_model.", "lm_head."},
                                                      {"transformer.", "lm_head."},
                                                      {"gpt_neox.", "lm_head."},
                                                      {"backbone.", "lm_head."},
                                                      {"", "lm_head."}}};
std::string nested_name(const Nesting& nesting, std::string_view name);

// A role that a name may stand for.
struct NamedWeight {
  const WeightInfo* info;
  int layer;             // not checked against any model
  WeightCondition when;  // the role's condition, or the one that goes with a family's own name
};

// The roles that some family gives that name, in any nesting: mostly one; empty for names that no family
// uses.
std::vector<NamedWeight> find_weights(NameStyle style, std::string_view name);

}  // namespace doppler
