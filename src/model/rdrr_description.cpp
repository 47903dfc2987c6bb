#include "model/rdrr_description.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// Manifests have numbers that went through several programs' texts; a scale is squared besides.
constexpr double kSame = 1e-4;

Json or_null(bool there, Json value) {
  return there ? std::move(value) : Json();
}

bool is_same(const Json& said, const Json& found) {
  if (said.is_number() && found.is_number()) {
    const double a = said.get<double>(), b = found.get<double>();
    return std::abs(a - b) <= kSame * std::max(std::abs(a), std::abs(b));
  }
  return said == found;
}

class Describer {
 public:
  Describer(const ModelSpec& spec, const TensorStore& tensors) : spec_(spec), tensors_(tensors) {
    const auto attends = [](const LayerSpec& layer) { return layer.has_attention; };
    const auto sliding = [](const LayerSpec& layer) {
      return layer.has_attention && layer.attention.kind != AttentionKind::kFull;
    };
    const auto full = [](const LayerSpec& layer) {
      return layer.has_attention && layer.attention.kind == AttentionKind::kFull;
    };
    first_ = find(attends);
    sliding_ = find(sliding);
    full_ = find(full);
    if (full_ == nullptr) full_ = first_;
    const auto feeds = std::ranges::find_if(spec.layers, &LayerSpec::has_ffn);
    ffn_ = feeds == spec.layers.end() ? nullptr : &*feeds;
  }

  Json describe() const {
    Json out = {{"architecture", architecture()},
                {"inference",
                 {{"attention", attention()},
                  {"normalization", normalization()},
                  {"ffn", ffn()},
                  {"rope", rope()},
                  {"output", output()},
                  {"layerPattern", pattern()},
                  {"chatTemplate", {{"type", nullptr}, {"enabled", true}}},
                  {"pipeline", nullptr},
                  {"defaultKernelPath", nullptr}}},
                {"eos_token_id", or_null(!spec_.eos_ids.empty(), spec_.eos_ids)},
                {"moeConfig", nullptr}};
    if (ffn_ != nullptr && ffn_->ffn.experts > 0) {
      out["moeConfig"] = {{"numExperts", ffn_->ffn.experts}, {"numExpertsPerToken", ffn_->ffn.router.top_k}};
    }
    return out;
  }

 private:
  template <typename Holds>
  const LayerSpec* find(const Holds& holds) const {
    const auto found = std::ranges::find_if(spec_.layers, holds);
    return found == spec_.layers.end() ? nullptr : &*found;
  }
  bool any_named(std::string_view ending) const {
    return std::ranges::any_of(tensors_.tensors(), [&](const auto& t) { return t.first.ends_with(ending); });
  }

  Json architecture() const {
    const AttentionSpec attention = first_ != nullptr ? first_->attention : AttentionSpec{};
    Json out = {{"numLayers", spec_.layers.size()},
                {"hiddenSize", spec_.hidden},
                {"intermediateSize", ffn_ != nullptr ? ffn_->ffn.width : 0},
                {"numAttentionHeads", attention.heads},
                {"numKeyValueHeads", attention.kv_heads},
                {"headDim", attention.head_dim},
                {"vocabSize", spec_.vocab_size},
                {"maxSeqLen", spec_.context_length}};
    if (full_ != nullptr) out["ropeTheta"] = full_->attention.rope.theta;
    return out;
  }

  Json attention() const {
    const AttentionSpec a = first_ != nullptr ? first_->attention : AttentionSpec{};
    return {{"queryPreAttnScalar", or_null(a.scale > 0, 1 / (a.scale * a.scale))},
            {"attnLogitSoftcapping", or_null(a.softcap > 0, a.softcap)},
            {"slidingWindow", sliding_ != nullptr ? Json(sliding_->attention.window) : Json()},
            {"queryKeyNorm", a.qk_norm},
            {"causal", true},
            {"attentionBias", a.qkv_bias}};
  }

  // Their rule for the flags is the tensor's name; Llama's norm before the feed-forward has such a one, too.
  Json normalization() const {
    const LayerSpec& layer = spec_.layers.front();
    return {{"rmsNormEps", spec_.norm.eps},
            {"rmsNormWeightOffset", spec_.norm.weight_offset == 1},
            {"postAttentionNorm", layer.post_attn_norm || any_named("post_attention_layernorm.weight")},
            {"preFeedforwardNorm", layer.post_attn_norm && layer.ffn_norm},
            {"postFeedforwardNorm", layer.post_ffn_norm}};
  }

  Json ffn() const {
    const FfnSpec f = ffn_ != nullptr ? ffn_->ffn : FfnSpec{};
    const bool gelu = f.activation == Activation::kGeluTanh;
    return {{"activation", gelu ? std::string("gelu") : std::string(name_of(f.activation))},
            {"gatedActivation", f.gated},
            {"swigluLimit", or_null(f.clamp > 0, f.clamp)}};
  }

  static Json scaling_type(const RopeScaling& scaling) {
    const bool none = scaling.kind == RopeScalingKind::kNone || scaling.kind == RopeScalingKind::kDivisors;
    return or_null(!none, std::string(name_of(scaling.kind)));
  }

  Json rope() const {
    const RopeSpec r = full_ != nullptr ? full_->attention.rope : RopeSpec{};
    const RopeScaling& s = r.scaling;
    const bool yarn = s.kind == RopeScalingKind::kYarn;
    Json out = {{"ropeTheta", r.theta},
                {"ropeLocalTheta", nullptr},
                {"ropeScalingType", scaling_type(s)},
                {"ropeScalingFactor", s.factor},
                {"yarnBetaFast", or_null(yarn, s.beta_fast)},
                {"yarnBetaSlow", or_null(yarn, s.beta_slow)},
                {"yarnOriginalMaxPos", or_null(yarn, s.original_context)},
                {"partialRotaryFactor", nullptr}};
    if (sliding_ != nullptr && sliding_ != full_ && sliding_->attention.rope != r)
      out["ropeLocalTheta"] = sliding_->attention.rope.theta;
    const std::uint32_t dim = full_ != nullptr ? full_->attention.head_dim : 0;
    if (dim > 0 && r.rotary_dim < dim) out["partialRotaryFactor"] = static_cast<double>(r.rotary_dim) / dim;
    return out;
  }

  // By the root of the width, which has a flag, or by any other number.
  Json output() const {
    const bool root = is_same(spec_.embedding_scale, std::sqrt(static_cast<double>(spec_.hidden)));
    return {{"finalLogitSoftcapping", or_null(spec_.final_softcap > 0, spec_.final_softcap)},
            {"tieWordEmbeddings", spec_.tied_head},
            {"scaleEmbeddings", root},
            {"embeddingScale", or_null(!root && spec_.embedding_scale != 1, spec_.embedding_scale)},
            {"logitInputScale", spec_.logit_scale},
            {"embeddingTranspose", false},
            {"embeddingVocabSize", nullptr}};
  }

  Json pattern() const {
    Json types = Json::array();
    std::vector<std::int64_t> full;
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      const bool whole = spec_.layers[i].attention.kind == AttentionKind::kFull;
      types.push_back(whole ? "full_attention" : "sliding_attention");
      if (whole) full.push_back(static_cast<std::int64_t>(i));
    }
    Json out = {{"type", "uniform"}, {"globalPattern", nullptr}, {"period", nullptr}, {"offset", nullptr}};
    if (sliding_ == nullptr) return out;
    out["type"] = "custom";
    out["layerTypes"] = std::move(types);
    if (full.size() < 2) return out;
    const std::int64_t period = full[1] - full[0];
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      const bool whole = spec_.layers[i].attention.kind == AttentionKind::kFull;
      if (((static_cast<std::int64_t>(i) - full[0]) % period == 0) != whole) return out;
    }
    out["type"] = "every_n";
    out["period"] = period;
    out["offset"] = full[0];
    return out;
  }

  const ModelSpec& spec_;
  const TensorStore& tensors_;
  const LayerSpec* first_ = nullptr;  // that attends; null in models without attention
  const LayerSpec* sliding_ = nullptr;
  const LayerSpec* full_ = nullptr;
  const LayerSpec* ffn_ = nullptr;
};

// Values that other programs leave at a default, or fill in otherwise, where they mean nothing.
bool is_compared(std::string_view group, std::string_view key, const Json& said, const Json& found) {
  if (group == "layerPattern" || group == "chatTemplate" || group == "pipeline") return false;
  if (key == "embeddingVocabSize" || key == "embeddingTranspose" || key == "embeddingScale") return false;
  if (key == "ropeScalingFactor") return false;  // 1 or null without a scaling
  return !said.is_null() || found.is_boolean() || !found.is_null();
}

}  // namespace

Json rdrr_description(const ModelSpec& spec, const TensorStore& tensors) {
  return Describer(spec, tensors).describe();
}

Result<std::vector<std::string>> compare_rdrr_description(const RdrrManifest& manifest, const ModelSpec& spec,
                                                          const TensorStore& tensors) {
  const Json found = rdrr_description(spec, tensors);
  const Json& said = *manifest.document;
  const auto sizes = said.find("architecture");
  if (sizes != said.end() && sizes->is_object()) {
    for (const auto& [key, value] : found["architecture"].items()) {
      const auto other = sizes->find(key);
      if (other == sizes->end() || other->is_null() || is_same(*other, value)) continue;
      return fail(
          ErrorCode::kMismatch,
          "The manifest says architecture.{} = {}, but by its config and tensors it is {}. Download the "
          "package again, or correct manifest.json.",
          key, printable(dump_json(*other), 60), dump_json(value));
    }
  }
  std::vector<std::string> sentences;
  const auto inference = said.find("inference");
  if (inference == said.end() || !inference->is_object()) return sentences;
  for (const auto& [group, values] : found["inference"].items()) {
    const auto other = inference->find(group);
    if (!values.is_object() || other == inference->end() || !other->is_object()) continue;
    for (const auto& [key, value] : values.items()) {
      const auto claim = other->find(key);
      if (claim == other->end() || !is_compared(group, key, *claim, value) || is_same(*claim, value))
        continue;
      sentences.push_back(
          fmt::format("The manifest says inference.{}.{} = {}, but config and tensors say {}, which counts.",
                      group, key, printable(dump_json(*claim), 60), dump_json(value)));
    }
  }
  return sentences;
}

}  // namespace doppler
