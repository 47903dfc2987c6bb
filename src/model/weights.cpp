#include "model/weights.h"

#include <algorithm>
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
  counts_.push_back(1);
  alias(role, layer, id);
  return id;
}

void Weights::add_expert(WeightRole role, int layer, TensorView tensor) {
  const WeightId first = find(role, layer);
  if (first == kNoWeight) {
    add(role, layer, std::move(tensor));
    return;
  }
  tensors_.push_back(std::move(tensor));
  counts_.push_back(1);
  ++counts_[first];
}

bool is_known_surplus(std::string_view name) {
  // Old Llama exports store the rope frequencies that follow from the config.
  if (name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn_rot_embd.weight")) return true;
  // Heads that guess several tokens ahead (Qwen 3.5, Qwen 3 Next): not run.
  if (name.starts_with("mtp.") || name.starts_with("model.mtp.")) return true;
  // The vision half of a multimodal model; Doppler runs its language half.
  for (const std::string_view part :
       {"vision_tower.", "multi_modal_projector.", "vision_model.", "audio_tower.", "visual."}) {
    if (name.starts_with(part) || name.starts_with(fmt::format("model.{}", part))) return true;
  }
  return false;
}

namespace {

Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Whether `name` is the pattern, whose {} stands for a number if there is one.
bool is_numbered(std::string_view pattern, std::string_view name) {
  const std::size_t braces = pattern.find("{}");
  if (braces == std::string_view::npos) return pattern == name;
  const std::string_view before = pattern.substr(0, braces), after = pattern.substr(braces + 2);
  if (!name.starts_with(before) || !name.ends_with(after) || name.size() <= before.size() + after.size())
    return false;
  const std::string_view number = name.substr(braces, name.size() - before.size() - after.size());
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

class Binder {
 public:
  Binder(const ModelSpec& spec, const WeightNames& names, const TensorStore& store)
      : spec_(spec), names_(names), store_(store), nesting_(find_nesting(names, store)) {}

  Result<Weights> bind() {
    for (WeightTensor& tensor : weight_tensors(spec_, names_)) {
      tensor.name = nested_name(nesting_, tensor.name);
      if (tensor.info->kind == WeightKind::kRopeFactors || tensor.info->kind == WeightKind::kNumber)
        used_.insert(tensor.name);  // the spec holds its values
      else
        DOPPLER_TRY(take(tensor));
    }
    if (spec_.tied_head) DOPPLER_TRY(tie_head());
    DOPPLER_TRY(check_surplus());
    return std::move(weights_);
  }

 private:
  // The tensor, if it is there with the right shape and a type that can be computed with.
  Result<TensorView> checked(const WeightTensor& wanted) {
    const std::string reason = weight_reason(wanted.info->role);
    if (wanted.name.empty()) {
      return fail(ErrorCode::kMismatch,
                  "The {} family with {} needs a tensor ({}, {}) for which Doppler knows no name in files of "
                  "this kind. Use another model.",
                  spec_.family, reason, wanted.info->label, describe_shape(wanted.shape));
    }
    const TensorView* tensor = store_.find(wanted.name);
    if (tensor == nullptr) {
      return fail(ErrorCode::kMismatch,
                  "The tensor {} ({}) is missing, but the {} family with {} needs it. Check that all weight "
                  "files are there and belong to this {}.",
                  wanted.name, describe_shape(wanted.shape), spec_.family, reason, spec_.described_by);
    }
    TensorView found = *tensor;
    // The weights of each head's own norm are stored as [heads, head_dim].
    if (wanted.info->kind == WeightKind::kNorm && found.shape.size() == 2 &&
        element_count(found.shape) == element_count(wanted.shape))
      found.shape = wanted.shape;
    // [1, n] and [n] hold the same.
    if (without_ones(found.shape) == without_ones(wanted.shape)) found.shape = wanted.shape;
    // A depthwise convolution is stored as [channels, 1, taps].
    const bool depthwise = wanted.info->kind == WeightKind::kConvolution && found.shape.size() == 3 &&
                           found.shape[0] == wanted.shape[0] && found.shape[1] == 1;
    if (depthwise && found.shape[2] == wanted.shape[1]) found.shape = wanted.shape;
    if (found.shape != wanted.shape) {
      return fail(ErrorCode::kMismatch,
                  "The tensor {} has the shape {}, but the spec ({}) asks for {}. Check that {} belongs "
                  "to these weights.",
                  wanted.name, describe_shape(tensor->shape), reason, describe_shape(wanted.shape),
                  spec_.described_by);
    }
    const DTypeInfo& dtype = dtype_info(tensor->dtype);
    if (!dtype.computable) {
      return fail(
          ErrorCode::kUnsupported,
          "The tensor {} is stored as {}, but Doppler computes with F32, F16 and BF16 weights and GGUF's "
          "block types. Convert it.",
          wanted.name, dtype.name);
    }
    used_.insert(wanted.name);
    return found;
  }

  // Experts' matrices become weights of their own, one after the other.
  Status take_experts(const WeightTensor& wanted, TensorView whole) {
    if (wanted.expert >= 0) {
      weights_.add_expert(wanted.info->role, wanted.layer, std::move(whole));
      return {};
    }
    std::vector<WeightRole> parts(wanted.info->fused_parts().begin(), wanted.info->fused_parts().end());
    if (parts.empty()) parts.push_back(wanted.info->role);
    std::uint64_t begin = 0;  // of the part's rows
    for (const WeightRole part : parts) {
      const std::uint64_t rows = weight_shape(spec_, part, wanted.layer)[1];
      for (std::uint64_t i = 0; i < wanted.shape[0]; ++i) {
        const std::string name = fmt::format("{}[{}]", whole.name, i);
        DOPPLER_ASSIGN(TensorView own, slice_rows(whole, i, 1, name));
        own.shape.erase(own.shape.begin());
        if (parts.size() > 1) {
          DOPPLER_ASSIGN(own,
                         slice_rows(own, begin, rows, fmt::format("{}[{}:{}]", name, begin, begin + rows)));
        }
        weights_.add_expert(part, wanted.layer, std::move(own));
      }
      begin += rows;
    }
    return {};
  }

  // A stack's matrices become weights of their own, each under its number.
  Status take_stack(const WeightTensor& wanted, const TensorView& whole) {
    for (std::uint64_t i = 0; i < wanted.shape[0]; ++i) {
      DOPPLER_ASSIGN(TensorView own, take_matrix(whole, i));
      weights_.add(wanted.info->role, static_cast<int>(i), std::move(own));
    }
    return {};
  }

  // A fused tensor becomes row slices with the parts' roles.
  Status take(const WeightTensor& wanted) {
    DOPPLER_ASSIGN(TensorView whole, checked(wanted));
    if (wanted.stack) return take_stack(wanted, whole);
    if (wanted.info->per_expert()) return take_experts(wanted, std::move(whole));
    const std::span<const WeightRole> parts = wanted.info->fused_parts();
    if (parts.empty()) {
      weights_.add(wanted.info->role, wanted.layer, std::move(whole));
      return {};
    }
    std::uint64_t begin = 0;
    for (const WeightRole part : parts) {
      const std::uint64_t count = weight_shape(spec_, part, wanted.layer)[0];
      DOPPLER_ASSIGN(
          TensorView slice,
          slice_rows(whole, begin, count, fmt::format("{}[{}:{}]", whole.name, begin, begin + count)));
      weights_.add(part, wanted.layer, std::move(slice));
      begin += count;
    }
    return {};
  }

  Status tie_head() {
    const WeightId embedding = weights_.find(WeightRole::kTokenEmbedding);
    weights_.alias(WeightRole::kHead, -1, embedding);
    // Some exports write the tied head a second time; then it must be the same matrix.
    const std::string name = nested_name(nesting_, weight_name(names_, WeightRole::kHead));
    const TensorView* head = store_.find(name);
    if (head == nullptr) return {};
    const TensorView& tied = weights_[embedding];
    DOPPLER_ASSIGN(const bool same, same_bytes(*head, tied));
    if (head->dtype != tied.dtype || head->shape != tied.shape || !same) {
      return fail(ErrorCode::kMismatch,
                  "The spec says tie_word_embeddings = true, but the tensor {} ({}) is there and differs "
                  "from {} ({}). Set "
                  "tie_word_embeddings to false in config.json, or remove the tensor.",
                  name, describe_shape(head->shape), tied.name, describe_shape(tied.shape));
    }
    used_.insert(name);
    return {};
  }

  // A tensor of the layers behind the last one.
  bool predicts(std::string_view name) const {
    for (std::size_t i = 0; i < spec_.predicting_layers; ++i) {
      const std::size_t layer = spec_.layers.size() + i;
      const std::string own = names_.style == NameStyle::kGguf
                                  ? fmt::format("blk.{}.", layer)
                                  : nested_name(nesting_, fmt::format("model.layers.{}.", layer));
      if (name.starts_with(own)) return true;
    }
    return false;
  }

  Status check_surplus() const {
    for (const auto& [name, tensor] : store_.tensors()) {
      if (used_.contains(name) || is_known_surplus(name) || is_unread_kv(name) || predicts(name)) continue;
      const auto ends = [&name](std::string_view ending) { return name.ends_with(ending); };
      if (std::ranges::any_of(names_.needless, ends)) continue;
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

  // Checkpoints keep keys and values, from training, of layers that read those of another.
  bool is_unread_kv(std::string_view name) const {
    constexpr WeightRole kOwn[] = {WeightRole::kK, WeightRole::kV, WeightRole::kKNorm};
    const std::vector<NamedWeight> roles = find_weights(names_.style, name);
    return std::ranges::any_of(roles, [&](const NamedWeight& named) {
      return std::ranges::find(kOwn, named.info->role) != std::end(kOwn) && named.layer >= 0 &&
             static_cast<std::size_t>(named.layer) < spec_.layers.size() &&
             !spec_.layers[static_cast<std::size_t>(named.layer)].attention.has_own_kv();
    });
  }

  // The spec's value because of which this model does not use a tensor that other models have; nothing if no
  // layer of this model could have a tensor of that name.
  std::string_view flag_against(std::string_view name) const {
    for (const NamedWeight& named : find_weights(names_.style, name)) {
      const bool exists = named.layer < static_cast<int>(spec_.layers.size());
      const std::string_view flag = unmet_condition(named.when);
      if (exists && !flag.empty() && !meets(spec_, named.when, named.layer)) return flag;
    }
    for (const WeightName& own : names_.own) {
      const WeightCondition when = weight_info(own.role).when;
      for (int layer = 0; layer < static_cast<int>(spec_.layers.size()); ++layer) {
        const std::string own_name = numbered_name(own.name, static_cast<std::uint64_t>(layer));
        if (is_numbered(nested_name(nesting_, own_name), name) && !meets(spec_, when, layer))
          return unmet_condition(when);
      }
    }
    return {};
  }

  const ModelSpec& spec_;
  const WeightNames& names_;
  const TensorStore& store_;
  const Nesting nesting_;
  Weights weights_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

Nesting find_nesting(const WeightNames& names, const TensorStore& store) {
  const std::string embedding = weight_name(names, WeightRole::kTokenEmbedding);
  const auto found = std::ranges::find_if(kNestings, [&](const Nesting& nesting) {
    return store.find(nested_name(nesting, embedding)) != nullptr;
  });
  return found == kNestings.end() ? kNestings[0] : *found;
}

Result<Weights> bind_weights(const ModelSpec& spec, const WeightNames& names, const TensorStore& store) {
  return Binder(spec, names, store).bind();
}

}  // namespace doppler
