#include "convert/mix.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "base/text.h"
#include "model/family.h"
#include "model/weight_table.h"

namespace doppler::convert {
namespace {

using enum TensorRole;
using enum MixWhen;

constexpr std::string_view kHeadReason =
    "every token's probability comes from the head: its errors reach all of them";
constexpr std::string_view kValueReason =
    "errors of values go straight into the residual stream, and the matrix is small";
constexpr std::string_view kSharedReason =
    "several query heads share this matrix: small, and its errors count as often";
constexpr std::string_view kDownReason = "sums over the widest rows, whose few large inputs magnify errors";
constexpr std::string_view kOutReason = "writes into the residual stream";
constexpr std::string_view kQkvReason = "holds the values' rows, too";
constexpr std::string_view kExpertsReason = "all experts share the attention: few bytes, used by every token";

constexpr MixRule kHeadQ6{kHead, kAlways, DType::kQ6_K, kHeadReason};
constexpr MixRule kHeadQ8{kHead, kAlways, DType::kQ8_0, kHeadReason};
constexpr MixRule kExpertsOut{kAttentionOut, kEightExperts, DType::kQ5_K, kExpertsReason};

constexpr std::array kHeadOnly = {kHeadQ6};
constexpr std::array kQ2K = {
    kHeadQ6,
    MixRule{kValue, kSharedFourTimes, DType::kQ4_K, kSharedReason},
    MixRule{kValue, kAlways, DType::kQ3_K, kValueReason},
    MixRule{kDown, kAlways, DType::kQ3_K, kDownReason},
    kExpertsOut,
    MixRule{kAttentionOut, kAlways, DType::kQ3_K, kOutReason},
};
constexpr std::array kQ3KS = {kHeadQ6, kExpertsOut};
constexpr std::array kQ3KM = {
    kHeadQ6,
    MixRule{kValue, kFirstTwo, DType::kQ5_K, kValueReason},
    MixRule{kValue, kAlways, DType::kQ4_K, kValueReason},
    MixRule{kDown, kFirstSixteenth, DType::kQ5_K, kDownReason},
    MixRule{kDown, kAlways, DType::kQ4_K, kDownReason},
    kExpertsOut,
    MixRule{kAttentionOut, kAlways, DType::kQ4_K, kOutReason},
    MixRule{kQkv, kAlways, DType::kQ4_K, kQkvReason},
};
constexpr std::array kQ3KL = {
    kHeadQ6,
    MixRule{kValue, kAlways, DType::kQ5_K, kValueReason},
    MixRule{kDown, kAlways, DType::kQ5_K, kDownReason},
    MixRule{kAttentionOut, kAlways, DType::kQ5_K, kOutReason},
    MixRule{kQkv, kAlways, DType::kQ4_K, kQkvReason},
};
constexpr std::array kQ4KS = {
    kHeadQ6,
    MixRule{kValue, kFirstFour, DType::kQ5_K, kValueReason},
    MixRule{kDown, kFirstEighth, DType::kQ5_K, kDownReason},
    kExpertsOut,
};
constexpr std::array kQ4KM = {
    kHeadQ6,
    MixRule{kValue, kMoreBits, DType::kQ6_K, kValueReason},
    MixRule{kDown, kMoreBits, DType::kQ6_K, kDownReason},
    kExpertsOut,
    MixRule{kQkv, kAlways, DType::kQ5_K, kQkvReason},
};
constexpr std::array kQ5KM = {
    kHeadQ6,
    MixRule{kValue, kMoreBits, DType::kQ6_K, kValueReason},
    MixRule{kDown, kMoreBits, DType::kQ6_K, kDownReason},
    MixRule{kQkv, kAlways, DType::kQ6_K, kQkvReason},
};
constexpr std::array kIQ4 = {
    kHeadQ6,
    MixRule{kValue, kSharedFourTimes, DType::kQ5_K, kSharedReason},
    MixRule{kDown, kFirstEighth, DType::kQ5_K, kDownReason},
    kExpertsOut,
};
constexpr std::array kMXFP4 = {kHeadQ8};
// As the published gpt-oss checkpoints: only the experts, which are most of the bytes, have 4 bits.
constexpr std::array kMXFP4Experts = {
    kHeadQ8,
    MixRule{kExpert, kAlways, DType::kMXFP4, "experts are most of the bytes, and a token reads few of them"},
};

// File types: the enumeration llama_ftype. MXFP4 of a dense model has no number of its own there.
constexpr std::array kMixes = {
    Mix{"F32", 0, DType::kF32, {}},
    Mix{"F16", 1, DType::kF16, {}},
    Mix{"BF16", 32, DType::kBF16, {}},
    Mix{"Q4_0", 2, DType::kQ4_0, kHeadOnly},
    Mix{"Q4_1", 3, DType::kQ4_1, kHeadOnly},
    Mix{"Q5_0", 8, DType::kQ5_0, kHeadOnly},
    Mix{"Q5_1", 9, DType::kQ5_1, kHeadOnly},
    Mix{"Q8_0", 7, DType::kQ8_0, {}},
    Mix{"Q2_K", 10, DType::kQ2_K, kQ2K},
    Mix{"Q3_K_S", 11, DType::kQ3_K, kQ3KS},
    Mix{"Q3_K_M", 12, DType::kQ3_K, kQ3KM},
    Mix{"Q3_K_L", 13, DType::kQ3_K, kQ3KL},
    Mix{"Q4_K_S", 14, DType::kQ4_K, kQ4KS},
    Mix{"Q4_K_M", 15, DType::kQ4_K, kQ4KM},
    Mix{"Q5_K_S", 16, DType::kQ5_K, kHeadOnly},
    Mix{"Q5_K_M", 17, DType::kQ5_K, kQ5KM},
    Mix{"Q6_K", 18, DType::kQ6_K, {}},
    Mix{"IQ4_NL", 25, DType::kIQ4_NL, kIQ4},
    Mix{"IQ4_XS", 30, DType::kIQ4_XS, kIQ4},
    Mix{"MXFP4", 38, DType::kMXFP4, kMXFP4},
    Mix{"MXFP4_MOE", 38, DType::kQ8_0, kMXFP4Experts},
};

// A type with blocks of 32 for rows that are no multiple of 256: the next one with at least as many bits.
struct Fallback {
  DType from, to;
};
constexpr std::array kFallbacks = {
    Fallback{DType::kQ2_K, DType::kIQ4_NL},   Fallback{DType::kQ3_K, DType::kIQ4_NL},
    Fallback{DType::kIQ4_XS, DType::kIQ4_NL}, Fallback{DType::kQ4_K, DType::kQ5_0},
    Fallback{DType::kQ5_K, DType::kQ5_1},     Fallback{DType::kQ6_K, DType::kQ8_0},
};

// The roles of the weights that rules name.
struct RoleOfWeight {
  WeightRole weight;
  TensorRole role;
};
constexpr std::array kRoles = {
    RoleOfWeight{WeightRole::kTokenEmbedding, kEmbedding},
    RoleOfWeight{WeightRole::kHead, kHead},
    RoleOfWeight{WeightRole::kQ, kQuery},
    RoleOfWeight{WeightRole::kK, kKey},
    RoleOfWeight{WeightRole::kV, kValue},
    RoleOfWeight{WeightRole::kQkv, kQkv},
    RoleOfWeight{WeightRole::kO, kAttentionOut},
    RoleOfWeight{WeightRole::kDown, kDown},
    RoleOfWeight{WeightRole::kDownExperts, kDown},
};

// Matrices that llama.cpp's quantiser leaves as they are.
struct KeptWeight {
  WeightRole weight;
  DType most;  // in any mix
  std::string_view reason;
};
constexpr std::string_view kStreamReason = "every layer's result passes through it: few bytes, many errors";
constexpr std::string_view kCoefficientReason = "a few numbers that weigh residual streams";
constexpr std::array kKeptWeights = {
    KeptWeight{WeightRole::kAltupPrediction, DType::kF32, kCoefficientReason},
    KeptWeight{WeightRole::kAltupCorrection, DType::kF32, kCoefficientReason},
    KeptWeight{WeightRole::kAltupRouter, DType::kBF16, kStreamReason},
    KeptWeight{WeightRole::kAltupProjection, DType::kBF16, kStreamReason},
    KeptWeight{WeightRole::kAltupUnprojection, DType::kBF16, kStreamReason},
    KeptWeight{WeightRole::kLaurelDown, DType::kBF16, kStreamReason},
    KeptWeight{WeightRole::kLaurelUp, DType::kBF16, kStreamReason},
};

// Kind, role and layer that the table of weights gives for a tensor's name; nothing for unknown names.
struct Place {
  std::optional<WeightKind> kind;
  WeightRole weight = WeightRole::kCount;
  TensorRole role = kOther;
  std::uint64_t layer = 0;
};

// The kind of a layer's tensor by a name that only some architectures have.
std::optional<WeightKind> own_kind(std::string_view name) {
  constexpr std::string_view kLayer = "blk.";
  const std::size_t dot = name.starts_with(kLayer) ? name.find('.', kLayer.size()) : std::string_view::npos;
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string pattern = fmt::format("{}{{}}{}", kLayer, name.substr(dot));
  for (const FamilyRule* family : all_families()) {
    for (const WeightName& own : family->gguf.weight_names.own) {
      if (own.name == pattern) return weight_info(own.role).kind;
    }
  }
  return std::nullopt;
}

Place place_of(std::string_view name, bool tied_head) {
  Place place;
  const std::vector<NamedWeight> found = find_weights(NameStyle::kGguf, name);
  if (found.empty()) place.kind = own_kind(name);
  if (found.empty()) return place;
  const WeightInfo& info = *found[0].info;
  place.kind = info.kind;
  place.weight = info.role;
  place.layer = static_cast<std::uint64_t>(std::max(found[0].layer, 0));
  const auto known = std::ranges::find(kRoles, info.role, &RoleOfWeight::weight);
  if (known != kRoles.end()) place.role = known->role;
  if (place.role == kEmbedding && tied_head) place.role = kHead;
  return place;
}

bool holds(MixWhen when, std::uint64_t layer, const MixModel& model) {
  const std::uint64_t eighth = model.layers / 8;
  switch (when) {
    case kAlways:
      return true;
    case kFirstTwo:
      return layer < 2;
    case kFirstFour:
      return layer < 4;
    case kFirstSixteenth:
      return layer < model.layers / 16;
    case kFirstEighth:
      return layer < eighth;
    case kMoreBits:
      return layer < eighth || layer >= 7 * model.layers / 8 || (layer - eighth) % 3 == 2;
    case kSharedFourTimes:
      return model.heads_per_kv_head >= 4;
    case kEightExperts:
      return model.experts == 8;
  }
  return false;
}

// The choice for a tensor that stays float32, being small or sensitive; nothing if the tensor may be
// quantised.
std::optional<MixChoice> kept(const Place& place, std::string_view name, const Shape& shape) {
  if (shape.size() < 2) return MixChoice{DType::kF32, "a vector: too few bytes to save any"};
  if (place.kind == WeightKind::kNorm) return MixChoice{DType::kF32, "a norm: scales whole activations"};
  if (place.kind == WeightKind::kRouter)
    return MixChoice{DType::kF32, "a router: small errors choose other experts"};
  if (place.kind == WeightKind::kConvolution)
    return MixChoice{DType::kF32, "a convolution: too few bytes to save any"};
  // Names that the table does not know: GGUF's matrices end in .weight, and biases of experts are matrices.
  if (!name.ends_with(".weight")) return MixChoice{DType::kF32, "a bias: too few bytes to save any"};
  return std::nullopt;
}

MixChoice mixed(const Mix& mix, const MixModel& model, const Place& place) {
  if (model.experts == 8 && (place.role == kValue || place.role == kKey)) {
    return {DType::kQ8_0, kExpertsReason};
  }
  MixChoice choice{mix.base, "what the mix is named for"};
  for (const MixRule& rule : mix.rules) {
    const bool matches = rule.role == kExpert ? place.kind == WeightKind::kExperts : rule.role == place.role;
    if (!matches || !holds(rule.when, place.layer, model)) continue;
    choice = {rule.type, rule.reason};
    break;
  }
  // Llama 70B: eight query heads share each value head.
  const bool three_or_four_bits = choice.type == DType::kQ3_K || choice.type == DType::kQ4_K;
  if (place.role == kValue && model.layers == 80 && model.heads_per_kv_head == 8 && three_or_four_bits) {
    choice = {DType::kQ5_K, kSharedReason};
  }
  return choice;
}

}  // namespace

std::string_view role_name(TensorRole role) {
  constexpr std::array<std::string_view, 10> kNames = {"head",     "embedding", "queries",          "keys",
                                                       "values",   "qkv",       "attention output", "experts",
                                                       "ffn down", "other"};
  return kNames[static_cast<std::size_t>(role)];
}

MixModel mix_model(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  return {.layers = spec.layers.size(),
          .heads_per_kv_head = layer.attention.heads / std::max(1u, layer.attention.kv_heads),
          .experts = layer.ffn.experts,
          .tied_head = spec.tied_head};
}

std::span<const Mix> all_mixes() {
  return kMixes;
}

Result<const Mix*> find_mix(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "Q3_K" || upper == "Q4_K" || upper == "Q5_K") upper += "_M";
  std::vector<std::string> names;
  for (const Mix& mix : kMixes) {
    if (mix.name == upper) return &mix;
    names.emplace_back(mix.name);
  }
  const std::string nearest = nearest_name(upper, names);
  if (!nearest.empty())
    return fail(ErrorCode::kUsage, "There is no type {}. Did you mean {}?", printable(name), nearest);
  return fail(ErrorCode::kUsage, "There is no type {}. Types are {}.", printable(name), join(names, ", "));
}

MixChoice choose_type(const Mix& mix, const MixModel& model, std::string_view name, const Shape& shape) {
  const Place place = place_of(name, model.tied_head);
  if (const auto choice = kept(place, name, shape)) return *choice;
  const auto own = std::ranges::find(kKeptWeights, place.weight, &KeptWeight::weight);
  if (own != kKeptWeights.end() && (is_quantised(mix.base) || own->most == DType::kF32))
    return {own->most, own->reason};
  if (!is_quantised(mix.base)) return {mix.base, "what the mix is named for"};
  const MixChoice choice = mixed(mix, model, place);
  const std::uint64_t columns = shape.back();
  if (columns % dtype_info(choice.type).block_values == 0) return choice;
  for (const Fallback& fallback : kFallbacks) {
    if (fallback.from == choice.type && columns % dtype_info(fallback.to).block_values == 0)
      return {fallback.to, "rows are no multiple of 256: the next type with blocks of 32"};
  }
  return {DType::kF16, "rows are no multiple of 32: no block type fits"};
}

}  // namespace doppler::convert
