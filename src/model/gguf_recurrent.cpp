#include "model/gguf_recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/json.h"

namespace doppler {
namespace {

// Families' words for one key.
struct SharedKey {
  std::string_view suffix;
  std::array<std::string_view, 6> paths;
};
constexpr std::array kSharedKeys = {
    SharedKey{"ssm.conv_kernel", {"linear_conv_kernel_dim", "mamba_d_conv", "conv_kernel"}},
    SharedKey{"ssm.state_size", {"linear_key_head_dim", "mamba_d_state", "state_size", "ssm_state_size"}},
    SharedKey{"ssm.group_count", {"linear_num_key_heads", "mamba_n_groups", "n_groups"}},
    // Of Mamba 1 this is the rank of the time step; of others, whose time step has none, the heads.
    SharedKey{
        "ssm.time_step_rank",
        {"linear_num_value_heads", "mamba_n_heads", "mamba_num_heads", "mamba_dt_rank", "time_step_rank"}},
    SharedKey{"ssm.inner_size", {"mamba_d_ssm"}},
    SharedKey{"shortconv.l_cache", {"conv_L_cache"}},
    SharedKey{"full_attention_interval", {"full_attention_interval"}},
    SharedKey{"moe_latent_size", {"moe_latent_size"}},
    SharedKey{"leading_dense_block_count", {"num_dense_layers"}},
    SharedKey{"expert_shared_feed_forward_length",
              {"moe_shared_expert_intermediate_size", "shared_intermediate_size"}},
    SharedKey{"expert_count", {"num_local_experts"}},
};
constexpr std::array<std::string_view, 3> kHeadDims = {"linear_value_head_dim", "mamba_d_head",
                                                       "mamba_head_dim"};

struct TensorFlag {
  std::string_view path;
  WeightRole role;
};
constexpr std::array kFlags = {
    TensorFlag{"mamba_conv_bias", WeightRole::kConvolutionBias},
    TensorFlag{"use_conv_bias", WeightRole::kConvolutionBias},
    TensorFlag{"conv_bias", WeightRole::kConvolutionBias},
    TensorFlag{"mamba_proj_bias", WeightRole::kMixerInBias},
    TensorFlag{"use_bias", WeightRole::kMixerInBias},
    TensorFlag{"attention_bias", WeightRole::kQBias},
    TensorFlag{"mlp_bias", WeightRole::kUpBias},
    TensorFlag{"projectors_bias", WeightRole::kMixerOutBias},
    TensorFlag{"mamba_rms_norm", WeightRole::kMixerNorm},
    TensorFlag{"use_expert_bias", WeightRole::kRouterCorrection},
};

// The first layer with such a tensor; -1: none.
int first_with(const GgufConfig& config, WeightRole role) {
  for (int i = 0; i < static_cast<int>(config.layers()); ++i) {
    if (config.tensor(role, i) != nullptr) return i;
  }
  return -1;
}

Status read_sizes(GgufConfig& config) {
  for (const SharedKey& shared : kSharedKeys) {
    DOPPLER_ASSIGN(const auto value, config.get_uint(shared.suffix));
    if (!value) continue;
    for (const std::string_view path : shared.paths) {
      if (!path.empty()) config.set_from_key(path, *value, shared.suffix);
    }
  }
  DOPPLER_ASSIGN(const auto inner, config.get_uint("ssm.inner_size"));
  DOPPLER_ASSIGN(const auto heads, config.get_uint("ssm.time_step_rank"));
  if (!inner) return {};
  const auto hidden = config.json()["hidden_size"].get<std::uint64_t>();
  if (hidden > 0 && *inner % hidden == 0) {
    for (const std::string_view path : {"mamba_expand", "expand"})
      config.derive(path, *inner / hidden,
                    fmt::format("{} / {}", config.key("ssm.inner_size"), config.key("embedding_length")));
  }
  if (!heads || first_with(config, WeightRole::kStepProjection) >= 0) return {};
  if (*heads == 0 || *inner % *heads != 0) {
    return fail(ErrorCode::kCorrupt,
                "The GGUF metadata says {} = {} and {} = {}, but the first must be a multiple of the second. "
                "Download the file again.",
                config.key("ssm.inner_size"), *inner, config.key("ssm.time_step_rank"), *heads);
  }
  const std::string quotient =
      fmt::format("{} / {}", config.key("ssm.inner_size"), config.key("ssm.time_step_rank"));
  for (const std::string_view path : kHeadDims) config.derive(path, *inner / *heads, quotient);
  if (first_with(config, WeightRole::kO) >= 0) return {};
  // Where nothing attends, the heads of the recurrent layers are the only ones.
  config.set_from_key("num_heads", *heads, "ssm.time_step_rank");
  config.derive("head_dim", *inner / *heads, quotient);
  return {};
}

void read_tensor_flags(GgufConfig& config) {
  for (const TensorFlag& flag : kFlags) {
    const int layer = first_with(config, flag.role);
    const std::string name = config.tensor_name(flag.role, std::max(layer, 0));
    if (name.empty()) continue;
    config.derive(flag.path, layer >= 0, fmt::format("{}tensor {}", layer >= 0 ? "" : "no ", name));
  }
}

// Which half a layer has, where layers differ, shows in its tensors: those that give the halves' results.
void read_layer_kinds_of(GgufConfig& config) {
  Json kinds = Json::array();
  bool differ = false, both = false;
  for (int i = 0; i < static_cast<int>(config.layers()); ++i) {
    const bool attends = config.tensor(WeightRole::kO, i) != nullptr;
    const bool recurs = config.tensor(WeightRole::kMixerOut, i) != nullptr;
    const bool sends = config.tensor(WeightRole::kRouter, i) != nullptr;
    both = both || (attends && recurs);
    kinds.push_back(attends ? "full_attention" : recurs ? "linear_attention" : sends ? "moe" : "mlp");
    differ = differ || kinds.back() != kinds.front();
  }
  if (!both && (differ || kinds.front() != "full_attention"))
    config.derive("layer_types", std::move(kinds), "which tensors layers have");
}

// The layers without experts in a model that has some.
void read_dense_layers(GgufConfig& config) {
  const int first = first_with(config, WeightRole::kRouter);
  if (first < 0) return;
  if (!config.json().contains("num_dense_layers"))
    config.derive("num_dense_layers", first, "the first layer with a router");
  Json dense = Json::array();
  for (int i = 0; i < static_cast<int>(config.layers()); ++i) {
    if (config.tensor(WeightRole::kRouter, i) == nullptr) dense.push_back(i);
  }
  if (!dense.empty()) config.derive("mlp_only_layers", std::move(dense), "which layers have a router");
}

bool is_delta_net(const LayerSpec& layer) {
  return layer.recurrent.kind == RecurrentKind::kDeltaNet;
}

}  // namespace

Status translate_recurrent(GgufConfig& config) {
  if (first_with(config, WeightRole::kMixerOut) < 0) return {};
  DOPPLER_TRY(read_sizes(config));
  read_tensor_flags(config);
  read_layer_kinds_of(config);
  read_dense_layers(config);
  return {};
}

Status settle_recurrent(SpecBuilder& builder, const GgufConfig& config, bool tiled_heads) {
  for (std::size_t i = 0; i < builder.spec().layers.size(); ++i) {
    LayerSpec& layer = builder.spec().layers[i];
    RecurrentSpec& r = layer.recurrent;
    if (is_delta_net(layer) && config.tensor(WeightRole::kMixerInConv, static_cast<int>(i)) != nullptr)
      r.in_projection = InProjection::kSeparate;
    if (is_delta_net(layer) && tiled_heads && r.heads > r.groups && r.groups > 1) {
      r.tiled_output = true;
      if (r.heads / r.groups > RecurrentSpec::kMostTiled) {
        return fail(ErrorCode::kUnsupported,
                    "The GGUF metadata gives each key head {} value heads, but Doppler runs files of the "
                    "architecture with at most {}. Run the model's folder instead.",
                    r.heads / r.groups, RecurrentSpec::kMostTiled);
      }
    }
    const TensorView* norm = config.tensor(WeightRole::kMixerNorm, static_cast<int>(i));
    if (norm == nullptr || r.one_norm_for_heads || norm->shape.size() != 2) continue;
    // A norm of several parts is stored with a row for each.
    if (norm->shape[0] == 0 || r.inner() % norm->shape[0] != 0) {
      return fail(ErrorCode::kCorrupt,
                  "The tensor {} has {} rows, which do not divide an inner width of {}. Download the file "
                  "again.",
                  norm->name, norm->shape[0], r.inner());
    }
    r.norm_groups = static_cast<std::uint32_t>(norm->shape[0]);
  }
  return {};
}

namespace {

const std::string kAnew = " (restored)";

class RecurrentRestorer {
 public:
  RecurrentRestorer(const ModelSpec& spec, const WeightNames& names, TensorStore& store)
      : spec_(spec), names_(names), store_(store) {}

  Status run() {
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
      const RecurrentSpec& r = spec_.layers[static_cast<std::size_t>(layer_)].recurrent;
      if (!r.exists()) continue;
      for (const WeightRole role : {WeightRole::kDecayRate, WeightRole::kDecayRates}) {
        if (meets(spec_, weight_info(role).when, layer_)) DOPPLER_TRY(restore_rates(name(role)));
      }
      if (r.kind != RecurrentKind::kDeltaNet) continue;
      if (r.in_projection == InProjection::kSeparate) DOPPLER_TRY(part_shares(r));
      if (r.tiled_output) DOPPLER_TRY(restore_heads(r));
    }
    return {};
  }

 private:
  std::string name(WeightRole role) const { return weight_name(names_, role, layer_, &spec_); }

  // Files have what the state decays by for a step of 1, -exp(A_log).
  Status restore_rates(const std::string& name) {
    const TensorView* found = store_.find(name);
    if (found == nullptr) return {};
    const TensorView from = *found;
    if (is_quantised(from.dtype)) {
      return fail(ErrorCode::kUnsupported,
                  "The tensor {} is stored as {}, but decay rates must be floats. Use another conversion.",
                  from.name, dtype_name(from.dtype));
    }
    std::vector<float> rates(element_count(from.shape).value_or(0));
    DOPPLER_TRY(decode_f32(from, 0, rates));
    for (float& rate : rates) {
      if (!(rate < 0) || !std::isfinite(rate)) {
        return fail(ErrorCode::kCorrupt,
                    "The tensor {} holds the value {}, but a state decays by negative rates. Download the "
                    "file again.",
                    from.name, rate);
      }
      rate = static_cast<float>(std::log(-static_cast<double>(rate)));
    }
    DOPPLER_ASSIGN(const std::span<std::byte> to, store_.create(name + kAnew, DType::kF32, from.shape));
    std::memcpy(to.data(), rates.data(), to.size());
    store_.drop(name);
    return store_.rename(name + kAnew, name);
  }

  // One tensor whose rows are, for each key head, what makes beta of its value heads, then what makes decay.
  Status part_shares(const RecurrentSpec& r) {
    const std::string both = name(WeightRole::kMixerInBa);
    const TensorView* found = store_.find(both);
    if (found == nullptr || found->shape != Shape{std::uint64_t{2} * r.heads, spec_.hidden}) return {};
    DOPPLER_ASSIGN(const HeldTensor held, hold(*found));
    const TensorView& from = held.view;
    const std::size_t row = from.data.size() / from.shape[0], share = r.heads / r.groups * row;
    for (const auto& [role, half] : {std::pair(WeightRole::kMixerInB, 0), {WeightRole::kMixerInA, 1}}) {
      DOPPLER_ASSIGN(const std::span<std::byte> to,
                     store_.create(name(role), from.dtype, {r.heads, spec_.hidden}));
      for (std::size_t g = 0; g < r.groups; ++g)
        std::memcpy(&to[g * share], &from.data[(2 * g + static_cast<std::size_t>(half)) * share], share);
    }
    store_.drop(both);
    return {};
  }

  Status restore_heads(const RecurrentSpec& r) {
    DOPPLER_TRY(restore_heads(WeightRole::kMixerInConv, r, 2 * std::uint64_t{r.keys()}, r.head_dim));
    DOPPLER_TRY(restore_heads(WeightRole::kConvolution, r, 2 * std::uint64_t{r.keys()}, r.head_dim));
    DOPPLER_TRY(restore_heads(WeightRole::kMixerInGate, r, 0, r.head_dim));
    for (const WeightRole role :
         {WeightRole::kMixerInB, WeightRole::kMixerInA, WeightRole::kStepBias, WeightRole::kDecayRate})
      DOPPLER_TRY(restore_heads(role, r, 0, 1));
    return {};
  }

  // Of the rows behind the first `kept`, `rows` to a head. Rows are whole blocks, so they move as bytes.
  Status restore_heads(WeightRole role, const RecurrentSpec& r, std::uint64_t kept, std::uint64_t rows) {
    const std::string tensor = name(role);
    const TensorView* found = store_.find(tensor);
    const std::uint64_t all = kept + r.heads * rows;
    if (found == nullptr || found->shape.empty() || found->shape[0] != all) return {};
    const TiledHeads order{r.groups, r.heads / r.groups};
    return store_.rewrite(
        tensor, [=, heads = r.heads](std::span<const std::byte> from, std::span<std::byte> to) {
          const std::size_t row = from.size() / all, head = rows * row, first = kept * row;
          std::memcpy(to.data(), from.data(), first);
          for (std::uint64_t i = 0; i < heads; ++i)
            std::memcpy(&to[first + i * head], &from[first + order.place_of(i) * head], head);
        });
  }

  const ModelSpec& spec_;
  const WeightNames& names_;
  TensorStore& store_;
  int layer_ = 0;
};

}  // namespace

Status restore_recurrent(const ModelSpec& spec, const WeightNames& names, TensorStore& store) {
  return RecurrentRestorer(spec, names, store).run();
}

}  // namespace doppler
