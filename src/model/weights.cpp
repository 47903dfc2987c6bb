#include "model/weights.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>

#include "base/text.h"

namespace doppler {

WeightId Weights::find(WeightRole role, int layer) const {
  const auto index = static_cast<std::size_t>(layer + 1);
  return index < ids_.size() ? ids_[index][static_cast<std::size_t>(role)] : kNoWeight;
}

Weights::LayerIds& Weights::ids(int layer) {
  const auto index = static_cast<std::size_t>(layer + 1);
  while (ids_.size() <= index) ids_.emplace_back().fill(kNoWeight);
  return ids_[index];
}

WeightId Weights::add(WeightRole role, int layer, TensorView tensor) {
  const auto id = static_cast<WeightId>(tensors_.size());
  tensors_.push_back(std::move(tensor));
  alias(role, layer, id);
  return id;
}

std::string weight_name(std::span<const WeightName> names, WeightRole role, int layer) {
  const auto entry = std::ranges::find(names, role, &WeightName::role);
  if (entry == names.end()) return {};
  std::string name(entry->name);
  if (const auto braces = name.find("{}"); braces != std::string::npos)
    name.replace(braces, 2, std::to_string(layer));
  return name;
}

namespace {

// Tensors that checkpoints carry and inference does not need.
bool is_known_surplus(std::string_view name) {
  // Old Llama exports store the rope frequencies that follow from the config.
  if (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn_rot_embd.weight")) return true;
  // The vision half of a multimodal model; Doppler runs its language half.
  for (const std::string_view part :
       {"vision_tower.", "multi_modal_projector.", "vision_model.", "audio_tower."}) {
    if (name.starts_with(part) || name.starts_with(fmt::format("model.{}", part))) return true;
  }
  return false;
}

// Where the text model sits inside a checkpoint: names of the family
// tables begin with "model." or "lm_head.".
struct Nesting {
  std::string_view model, head;
};
constexpr std::array<Nesting, 3> kNestings = {{{"model.", "lm_head."},
                                               {"language_model.model.", "language_model.lm_head."},
                                               {"model.language_model.", "lm_head."}}};

constexpr std::string_view kGgufLayer = "blk.";

// A layer's tensors that some models have and others do not, as checkpoints of any family spell them, and
// what a spec says that leaves them out.
struct OptionalTensor {
  std::string_view suffix, flag;
};
constexpr std::array<OptionalTensor, 22> kOptionalTensors = {{
    {".self_attn.q_norm.weight", "attention.qk_norm = false"},
    {".self_attn.k_norm.weight", "attention.qk_norm = false"},
    {".self_attn.q_proj.bias", "attention.qkv_bias = false"},
    {".self_attn.k_proj.bias", "attention.qkv_bias = false"},
    {".self_attn.v_proj.bias", "attention.qkv_bias = false"},
    {".self_attn.o_proj.bias", "attention.o_bias = false"},
    {".mlp.gate_proj.bias", "ffn.bias = false"},
    {".mlp.up_proj.bias", "ffn.bias = false"},
    {".mlp.down_proj.bias", "ffn.bias = false"},
    // Beside it, post_attention_layernorm would be a norm of the attention result.
    {".pre_feedforward_layernorm.weight", "post_attn_norm = false"},
    {".post_feedforward_layernorm.weight", "post_ffn_norm = false"},
    // The same as GGUF spells them.
    {".attn_q_norm.weight", "attention.qk_norm = false"},
    {".attn_k_norm.weight", "attention.qk_norm = false"},
    {".attn_q.bias", "attention.qkv_bias = false"},
    {".attn_k.bias", "attention.qkv_bias = false"},
    {".attn_v.bias", "attention.qkv_bias = false"},
    {".attn_output.bias", "attention.o_bias = false"},
    {".ffn_gate.bias", "ffn.bias = false"},
    {".ffn_up.bias", "ffn.bias = false"},
    {".ffn_down.bias", "ffn.bias = false"},
    {".post_attention_norm.weight", "post_attn_norm = false"},
    {".post_ffw_norm.weight", "post_ffn_norm = false"},
}};

class Binder {
 public:
  Binder(const ModelSpec& spec, std::span<const WeightName> names, const TensorStore& store)
      : spec_(spec), names_(names), store_(store) {
    for (const Nesting& nesting : kNestings) {
      nesting_ = nesting;
      if (store.find(name_of_role(WeightRole::kTokenEmbedding, -1)) != nullptr) return;
    }
    nesting_ = kNestings[0];
  }

  Result<Weights> bind() {
    DOPPLER_TRY(take(WeightRole::kTokenEmbedding, -1, {spec_.vocab_size, spec_.hidden},
                     "vocab_size and hidden_size"));
    DOPPLER_TRY(take(WeightRole::kFinalNorm, -1, {spec_.hidden}, "hidden_size"));
    for (int i = 0; i < static_cast<int>(spec_.layers.size()); ++i) DOPPLER_TRY(bind_layer(i));
    DOPPLER_TRY(bind_head());
    for (const WeightRole role :
         {WeightRole::kRopeDivisors, WeightRole::kRopeShortFactors, WeightRole::kRopeLongFactors})
      used_.insert(name_of_role(role, -1));
    DOPPLER_TRY(check_surplus());
    return std::move(weights_);
  }

 private:
  std::string name_of_role(WeightRole role, int layer) const {
    const std::string name = weight_name(names_, role, layer);
    if (name.starts_with("model.")) return std::string(nesting_.model) + name.substr(6);
    if (name.starts_with("lm_head.")) return std::string(nesting_.head) + name.substr(8);
    return name;
  }

  // The tensor of a role, checked; `because` names the spec values that fix its shape.
  Result<TensorView> checked(WeightRole role, int layer, const Shape& shape, std::string_view because) {
    const std::string name = name_of_role(role, layer);
    const TensorView* tensor = name.empty() ? nullptr : store_.find(name);
    if (tensor == nullptr) {
      return fail(ErrorCode::kMismatch,
                  "The tensor {} ({}) is missing, but the {} family with {} needs it. Check that all weight "
                  "files are there and belong to this {}.",
                  name.empty() ? "of this role" : name, describe_shape(shape), spec_.family, because,
                  spec_.described_by);
    }
    if (tensor->shape != shape) {
      return fail(ErrorCode::kMismatch,
                  "The tensor {} has the shape {}, but the spec ({}) asks for {}. Check that {} belongs "
                  "to these weights.",
                  name, describe_shape(tensor->shape), because, describe_shape(shape), spec_.described_by);
    }
    const DTypeInfo& dtype = dtype_info(tensor->dtype);
    if (!dtype.computable) {
      return fail(
          ErrorCode::kUnsupported,
          "The tensor {} is stored as {}, but Doppler computes with F32, F16 and BF16 weights and GGUF's "
          "block types. Convert it.",
          name, dtype.name);
    }
    used_.insert(name);
    return *tensor;
  }

  Status take(WeightRole role, int layer, const Shape& shape, std::string_view because) {
    DOPPLER_ASSIGN(TensorView tensor, checked(role, layer, shape, because));
    weights_.add(role, layer, std::move(tensor));
    return {};
  }

  // A fused tensor, split into row slices that take the parts' roles.
  Status take_fused(WeightRole fused, int layer, std::span<const std::pair<WeightRole, std::uint64_t>> parts,
                    std::string_view because) {
    std::uint64_t rows = 0;
    for (const auto& part : parts) rows += part.second;
    DOPPLER_ASSIGN(const TensorView whole, checked(fused, layer, {rows, spec_.hidden}, because));
    std::uint64_t begin = 0;
    for (const auto& [role, count] : parts) {
      DOPPLER_ASSIGN(
          TensorView slice,
          slice_rows(whole, begin, count, fmt::format("{}[{}:{}]", whole.name, begin, begin + count)));
      weights_.add(role, layer, std::move(slice));
      begin += count;
    }
    return {};
  }

  Status bind_layer(int i) {
    const AttentionSpec& a = spec_.layers[i].attention;
    const FfnSpec& f = spec_.layers[i].ffn;
    const LayerSpec& layer = spec_.layers[i];
    const std::uint64_t hidden = spec_.hidden;
    DOPPLER_TRY(take(WeightRole::kAttnNorm, i, {hidden}, "hidden_size"));
    if (spec_.fused_qkv) {
      const std::array<std::pair<WeightRole, std::uint64_t>, 3> parts = {
          {{WeightRole::kQ, a.q_width()}, {WeightRole::kK, a.kv_width()}, {WeightRole::kV, a.kv_width()}}};
      DOPPLER_TRY(
          take_fused(WeightRole::kQkv, i, parts, "num_attention_heads, num_key_value_heads and head_dim"));
    } else {
      DOPPLER_TRY(
          take(WeightRole::kQ, i, {a.q_width(), hidden}, "num_attention_heads x head_dim and hidden_size"));
      DOPPLER_TRY(
          take(WeightRole::kK, i, {a.kv_width(), hidden}, "num_key_value_heads x head_dim and hidden_size"));
      DOPPLER_TRY(
          take(WeightRole::kV, i, {a.kv_width(), hidden}, "num_key_value_heads x head_dim and hidden_size"));
    }
    DOPPLER_TRY(
        take(WeightRole::kO, i, {hidden, a.q_width()}, "hidden_size and num_attention_heads x head_dim"));
    if (a.qkv_bias) {
      DOPPLER_TRY(take(WeightRole::kQBias, i, {a.q_width()}, "attention.qkv_bias = true"));
      DOPPLER_TRY(take(WeightRole::kKBias, i, {a.kv_width()}, "attention.qkv_bias = true"));
      DOPPLER_TRY(take(WeightRole::kVBias, i, {a.kv_width()}, "attention.qkv_bias = true"));
    }
    if (a.o_bias) DOPPLER_TRY(take(WeightRole::kOBias, i, {hidden}, "attention.o_bias = true"));
    if (a.qk_norm) {
      DOPPLER_TRY(take(WeightRole::kQNorm, i, {a.head_dim}, "attention.qk_norm = true and head_dim"));
      DOPPLER_TRY(take(WeightRole::kKNorm, i, {a.head_dim}, "attention.qk_norm = true and head_dim"));
    }
    if (layer.post_attn_norm)
      DOPPLER_TRY(take(WeightRole::kPostAttnNorm, i, {hidden}, "post_attn_norm = true and hidden_size"));
    DOPPLER_TRY(take(WeightRole::kFfnNorm, i, {hidden}, "hidden_size"));
    if (spec_.fused_gate_up) {
      const std::array<std::pair<WeightRole, std::uint64_t>, 2> parts = {
          {{WeightRole::kGate, f.width}, {WeightRole::kUp, f.width}}};
      DOPPLER_TRY(take_fused(WeightRole::kGateUp, i, parts, "intermediate_size"));
    } else {
      DOPPLER_TRY(take(WeightRole::kGate, i, {f.width, hidden}, "intermediate_size and hidden_size"));
      DOPPLER_TRY(take(WeightRole::kUp, i, {f.width, hidden}, "intermediate_size and hidden_size"));
    }
    DOPPLER_TRY(take(WeightRole::kDown, i, {hidden, f.width}, "hidden_size and intermediate_size"));
    if (f.bias) {
      DOPPLER_TRY(take(WeightRole::kGateBias, i, {f.width}, "ffn.bias = true"));
      DOPPLER_TRY(take(WeightRole::kUpBias, i, {f.width}, "ffn.bias = true"));
      DOPPLER_TRY(take(WeightRole::kDownBias, i, {hidden}, "ffn.bias = true"));
    }
    if (layer.post_ffn_norm)
      DOPPLER_TRY(take(WeightRole::kPostFfnNorm, i, {hidden}, "post_ffn_norm = true and hidden_size"));
    return {};
  }

  Status bind_head() {
    if (!spec_.tied_head)
      return take(WeightRole::kHead, -1, {spec_.vocab_size, spec_.hidden}, "tie_word_embeddings = false");
    const WeightId embedding = weights_.find(WeightRole::kTokenEmbedding);
    weights_.alias(WeightRole::kHead, -1, embedding);
    // Some exports write the tied head a second time; then it must be the same matrix.
    const std::string name = name_of_role(WeightRole::kHead, -1);
    const TensorView* head = store_.find(name);
    if (head == nullptr) return {};
    const TensorView& tied = weights_[embedding];
    if (head->dtype != tied.dtype || head->shape != tied.shape ||
        std::memcmp(head->data.data(), tied.data.data(), tied.data.size()) != 0) {
      return fail(ErrorCode::kMismatch,
                  "The spec says tie_word_embeddings = true, but the tensor {} ({}) is there and differs "
                  "from {} ({}). Set "
                  "tie_word_embeddings to false in config.json, or remove the tensor.",
                  name, describe_shape(head->shape), tied.name, describe_shape(tied.shape));
    }
    used_.insert(name);
    return {};
  }

  Status check_surplus() const {
    for (const auto& [name, tensor] : store_.tensors()) {
      if (used_.contains(name) || is_known_surplus(name)) continue;
      if (const std::string_view flag = flag_against(name); !flag.empty()) {
        return fail(ErrorCode::kMismatch,
                    "The tensor {} ({}) is in the weights, but the spec says {} (family {}). Check that {} "
                    "belongs to "
                    "these weights.",
                    printable(name), describe_shape(tensor.shape), flag, spec_.family, spec_.described_by);
      }
      return fail(ErrorCode::kMismatch,
                  "The tensor {} ({}, {}) is in the weights, but nothing in the {} family with "
                  "num_hidden_layers = {} "
                  "uses it. Check that {} belongs to these weights.",
                  printable(name), dtype_name(tensor.dtype), describe_shape(tensor.shape), spec_.family,
                  spec_.layers.size(), spec_.described_by);
    }
    return {};
  }

  // The spec's value because of which a layer's optional tensor goes unused, or nothing if the name is none
  // of one of the spec's layers.
  std::string_view flag_against(std::string_view name) const {
    const std::string prefix = std::string(nesting_.model) + "layers.";
    if (name.starts_with(prefix))
      name.remove_prefix(prefix.size());
    else if (name.starts_with(kGgufLayer))
      name.remove_prefix(kGgufLayer.size());
    else
      return {};
    std::uint32_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    if (error != std::errc() || layer >= spec_.layers.size()) return {};
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    for (const OptionalTensor& optional : kOptionalTensors) {
      if (name == optional.suffix) return optional.flag;
    }
    return {};
  }

  const ModelSpec& spec_;
  std::span<const WeightName> names_;
  const TensorStore& store_;
  Nesting nesting_;
  Weights weights_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

Result<Weights> bind_weights(const ModelSpec& spec, std::span<const WeightName> names,
                             const TensorStore& store) {
  return Binder(spec, names, store).bind();
}

}  // namespace doppler
