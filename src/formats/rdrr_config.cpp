// What an RDRR manifest says of its model, in config.json's words. The manifest is explicit where config.json
// has defaults: a null means that there is no such thing.
#include <array>
#include <cmath>

#include "base/json.h"
#include "formats/rdrr.h"

namespace doppler {
namespace {

const Json* manifest_value(const Json& object, std::string_view group, std::string_view key) {
  const auto inner = object.find(std::string(group));
  if (inner == object.end() || !inner->is_object()) return nullptr;
  const auto found = inner->find(std::string(key));
  return found == inner->end() || found->is_null() ? nullptr : &*found;
}

struct ManifestWord {
  std::string_view group, key, config;
};
constexpr std::array kOfArchitecture = {
    ManifestWord{"architecture", "numLayers", "num_hidden_layers"},
    ManifestWord{"architecture", "hiddenSize", "hidden_size"},
    ManifestWord{"architecture", "intermediateSize", "intermediate_size"},
    ManifestWord{"architecture", "numAttentionHeads", "num_attention_heads"},
    ManifestWord{"architecture", "numKeyValueHeads", "num_key_value_heads"},
    ManifestWord{"architecture", "headDim", "head_dim"},
    ManifestWord{"architecture", "vocabSize", "vocab_size"},
    ManifestWord{"architecture", "maxSeqLen", "max_position_embeddings"},
    ManifestWord{"architecture", "ropeTheta", "rope_theta"},
    ManifestWord{"tokenizer", "bosTokenId", "bos_token_id"},
    ManifestWord{"tokenizer", "padTokenId", "pad_token_id"},
    ManifestWord{"architecture", "linearNumKeyHeads", "linear_num_key_heads"},
    ManifestWord{"architecture", "linearNumValueHeads", "linear_num_value_heads"},
    ManifestWord{"architecture", "linearKeyHeadDim", "linear_key_head_dim"},
    ManifestWord{"architecture", "linearValueHeadDim", "linear_value_head_dim"},
    ManifestWord{"architecture", "linearConvKernelDim", "linear_conv_kernel_dim"},
    ManifestWord{"moeConfig", "numExperts", "num_experts"},
    ManifestWord{"moeConfig", "numExpertsPerToken", "num_experts_per_tok"},
};
constexpr std::array kOfInference = {
    ManifestWord{"attention", "queryPreAttnScalar", "query_pre_attn_scalar"},
    ManifestWord{"attention", "attnLogitSoftcapping", "attn_logit_softcapping"},
    ManifestWord{"attention", "slidingWindow", "sliding_window"},
    ManifestWord{"attention", "attentionBias", "attention_bias"},
    ManifestWord{"normalization", "rmsNormEps", "rms_norm_eps"},
    ManifestWord{"rope", "partialRotaryFactor", "partial_rotary_factor"},
    ManifestWord{"output", "finalLogitSoftcapping", "final_logit_softcapping"},
    ManifestWord{"output", "tieWordEmbeddings", "tie_word_embeddings"},
    ManifestWord{"output", "embeddingScale", "embedding_multiplier"},
    ManifestWord{"output", "logitInputScale", "logit_scale"},
    ManifestWord{"layerPattern", "layerTypes", "layer_types"},
    ManifestWord{"layerPattern", "residualBranchScale", "residual_multiplier"},
};

class ManifestTranslator {
 public:
  explicit ManifestTranslator(const RdrrManifest& manifest)
      : manifest_(manifest), document_(*manifest.document) {
    const auto found = document_.find("inference");
    if (found != document_.end() && found->is_object()) inference_ = *found;
  }

  Json translate() {
    config_["model_type"] = manifest_.model_type;
    for (const ManifestWord& word : kOfArchitecture) take(document_, word);
    for (const ManifestWord& word : kOfInference) take(inference_, word);
    if (const Json* eos = document_.contains("eos_token_id") ? &document_["eos_token_id"] : nullptr)
      config_["eos_token_id"] = *eos;
    take_activation();
    take_flags();
    take_layers();
    take_ropes();
    return std::move(config_);
  }

 private:
  void take(const Json& from, const ManifestWord& word) {
    if (const Json* value = manifest_value(from, word.group, word.key))
      config_[std::string(word.config)] = *value;
  }
  bool flag(std::string_view group, std::string_view key) const {
    const Json* value = manifest_value(inference_, group, key);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  double number(std::string_view group, std::string_view key, double fallback) const {
    const Json* value = manifest_value(inference_, group, key);
    return value != nullptr && value->is_number() ? value->get<double>() : fallback;
  }
  std::string text(std::string_view group, std::string_view key) const {
    const Json* value = manifest_value(inference_, group, key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }

  // Their "gelu" is the approximation by tanh.
  void take_activation() {
    const std::string name = text("ffn", "activation");
    const bool gelu = name == "gelu" || name == "geglu";
    if (!name.empty()) config_["hidden_act"] = gelu ? "gelu_pytorch_tanh" : name == "swiglu" ? "silu" : name;
  }

  void take_flags() {
    if (manifest_value(inference_, "normalization", "rmsNormWeightOffset") != nullptr)
      config_["norm_weight_offset"] = flag("normalization", "rmsNormWeightOffset") ? 1 : 0;
    if (config_.contains("embedding_multiplier")) return;
    const bool scaled = flag("output", "scaleEmbeddings");
    const Json* hidden = manifest_value(document_, "architecture", "hiddenSize");
    if (hidden == nullptr || !hidden->is_number()) return;
    // A float, as models hold it.
    config_["embedding_multiplier"] = scaled ? static_cast<float>(std::sqrt(hidden->get<double>())) : 1.0F;
  }

  // Which layers attend fully: every `period`-th from `offset` on, or those of even or odd number.
  void take_layers() {
    const Json* layers = manifest_value(document_, "architecture", "numLayers");
    if (config_.contains("layer_types") || !config_.contains("sliding_window") || layers == nullptr) return;
    const std::string type = text("layerPattern", "type"), global = text("layerPattern", "globalPattern");
    double period = 0, offset = 0;
    if (type == "every_n") {
      period = number("layerPattern", "period", 0);
      offset = number("layerPattern", "offset", 0);
    } else if (type == "alternating") {
      period = 2, offset = global == "odd" ? 1 : 0;
    }
    // Absent values, and such as no model has: the error of the window that is left says the rest.
    constexpr double kMost = 100'000;
    const double count = layers->get<double>();
    if (!(period >= 1 && period <= kMost && offset >= 0 && offset <= kMost && count <= kMost)) return;
    const auto every = static_cast<std::int64_t>(period), first = static_cast<std::int64_t>(offset);
    Json types = Json::array();
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(count); ++i)
      types.push_back((i - first) % every == 0 ? "full_attention" : "sliding_attention");
    config_["layer_types"] = std::move(types);
  }

  Json rope(std::string_view theta, std::string_view prefix) const {
    const auto key = [&](std::string_view name) { return std::string(prefix) + std::string(name); };
    Json out = Json::object();
    const Json* value = manifest_value(inference_, "rope", theta);
    if (value == nullptr) value = manifest_value(inference_, "rope", "ropeTheta");
    if (value == nullptr) value = manifest_value(document_, "architecture", "ropeTheta");
    if (value != nullptr) out["rope_theta"] = *value;
    const std::string type = text("rope", key("ScalingType"));
    out["rope_type"] = type.empty() ? "default" : type;
    if (type.empty()) return out;
    const std::string yarn = prefix == "rope" ? "yarn" : key("Yarn");
    const std::string longrope = prefix == "rope" ? "longrope" : key("Longrope");
    const std::array<std::pair<std::string, const char*>, 7> words = {
        {{key("ScalingFactor"), "factor"},
         {yarn + "BetaFast", "beta_fast"},
         {yarn + "BetaSlow", "beta_slow"},
         {yarn + "OriginalMaxPos", "original_max_position_embeddings"},
         {longrope + "ShortFactor", "short_factor"},
         {longrope + "LongFactor", "long_factor"},
         {longrope + "OriginalMaxPos", "original_max_position_embeddings"}}};
    for (const auto& [name, word] : words)
      if (const Json* found = manifest_value(inference_, "rope", name)) out[word] = *found;
    return out;
  }

  // Sliding layers have a rope of their own where a local theta is given.
  void take_ropes() {
    Json full = rope("ropeTheta", "rope");
    const bool local =
        manifest_value(inference_, "rope", "ropeLocalTheta") != nullptr && config_.contains("layer_types");
    config_.erase("rope_theta");
    if (!local) {
      config_["rope_parameters"] = std::move(full);
      return;
    }
    config_["rope_parameters"] = {{"full_attention", std::move(full)},
                                  {"sliding_attention", rope("ropeLocalTheta", "ropeLocal")}};
  }

  const RdrrManifest& manifest_;
  const Json& document_;
  Json inference_ = Json::object();
  Json config_ = Json::object();
};

}  // namespace

Json rdrr_config(const RdrrManifest& manifest) {
  const auto own = manifest.document->find("config");
  const bool describes = own != manifest.document->end() && own->is_object() && own->contains("model_type");
  return describes ? *own : ManifestTranslator(manifest).translate();
}

Json rdrr_generation_config(const RdrrManifest& manifest) {
  Json out = Json::object();
  const auto eos = manifest.document->find("eos_token_id");
  if (eos != manifest.document->end() && !eos->is_null()) out["eos_token_id"] = *eos;
  return out;
}

}  // namespace doppler
