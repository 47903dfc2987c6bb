#include "backend/reference/reference_backend.h"

#include <algorithm>

#include "backend/host_backend.h"
#include "backend/reference/ops.h"

namespace doppler {
namespace {

// The cache of one layer; float32 whatever the options say: this backend is what others are compared with.
class CachedLayer final : public reference::KeyValues {
 public:
  CachedLayer(KvCache& cache, std::size_t layer, const StepInput& input)
      : cache_(cache), layer_(layer), input_(input) {}
  const float* key(std::size_t token, std::uint32_t head, std::uint64_t position) const override {
    return floats(cache_.key(layer_, slot(token), head, position));
  }
  const float* value(std::size_t token, std::uint32_t head, std::uint64_t position) const override {
    return floats(cache_.value(layer_, slot(token), head, position));
  }
  void append(std::span<const float> keys, std::span<const float> values, const AttentionParams& a) {
    for (std::size_t t = 0; t < input_.size(); ++t) {
      const auto position = static_cast<std::uint64_t>(input_.positions[t]);
      for (std::uint32_t h = 0; h < a.kv_heads; ++h) {
        const std::size_t from = (t * a.kv_heads + h) * a.head_dim;
        std::copy_n(&keys[from], a.head_dim, floats(cache_.key(layer_, slot(t), h, position)));
        if (!values.empty())
          std::copy_n(&values[from], a.head_dim, floats(cache_.value(layer_, slot(t), h, position)));
      }
    }
  }

 private:
  static float* floats(std::uint8_t* row) { return reinterpret_cast<float*>(row); }
  std::uint32_t slot(std::size_t token) const { return static_cast<std::uint32_t>(input_.slots[token]); }

  KvCache& cache_;
  const std::size_t layer_;
  const StepInput& input_;
};

class CachedState final : public reference::RecurrentState {
 public:
  CachedState(KvCache& cache, const Op& op, const StepInput& input)
      : cache_(cache), layer_(static_cast<std::size_t>(op.layer)), kind_(op.kind), input_(input) {}
  float* of(std::size_t token) override {
    const auto slot = static_cast<std::uint32_t>(input_.slots[token]);
    return kind_ == OpKind::kConvolution ? cache_.conv_state(layer_, slot) : cache_.state(layer_, slot);
  }

 private:
  KvCache& cache_;
  const std::size_t layer_;
  const OpKind kind_;
  const StepInput& input_;
};

class ReferenceBackend final : public HostBackend {
 public:
  ReferenceBackend(Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
      : HostBackend(std::move(plan), weights, std::move(options), std::move(cache)),
        values_(plan_.values.size()),
        threads_(options_.threads) {}

  std::string_view name() const override { return "reference"; }

  Result<std::vector<VariantRow>> describe() override {
    return std::vector<VariantRow>{{.what = "every op",
                                    .variant = "plain loops, sums in double",
                                    .why = "what others are compared with must be simple"}};
  }
  MemoryUse memory() const override {
    std::uint64_t floats = 0;
    for (const auto& value : values_) floats += value.size();
    return {.cache = cache_.bytes(), .activations = floats * sizeof(float) + score_bytes(), .weights = 0};
  }

 private:
  std::span<float> value_of(ValueId id) override { return values_[id]; }
  std::vector<float>& fresh(ValueId id) {
    values_[id].assign(rows(info(id)) * info(id).width, 0.0f);
    return values_[id];
  }

  Status execute(std::size_t index) override {
    const Op& op = plan_.ops[index];
    reference::OpCall call{.kind = op.kind, .params = op.params};
    for (const ValueId id : op.inputs) call.inputs.push_back({values_[id], info(id).width});
    for (const ValueId id : op.outputs) call.outputs.push_back({fresh(id), info(id).width, info(id).heads});
    for (const WeightId id : op.weights) call.weights.push_back(&weights_[id]);
    for (const WeightId id : op.biases) call.biases.push_back(id == kNoWeight ? nullptr : &weights_[id]);
    call.ids = input().ids;
    call.positions = input().positions;
    call.wanted = wanted();
    if (const auto* rope = std::get_if<RopeParams>(&op.params)) call.rope = &plan_.rope_tables[rope->table];
    if (op.kind == OpKind::kAttention) return attend(op, call);
    if (!keeps_state(op.kind)) return reference::run_op(call, threads_);
    CachedState state(cache_, op, input());
    call.state = &state;
    return reference::run_op(call, threads_);
  }

  // Appends to the cache first, then attends.
  Status attend(const Op& op, reference::OpCall& call) {
    const auto& a = std::get<AttentionParams>(op.params);
    const std::size_t layer = a.cache_of(op.layer);
    DOPPLER_TRY(look(op, Fault::Moment::kAppend));
    if (op.inputs.size() > 1) {
      const std::span<const float> values =
          op.inputs.size() > 2 ? values_[op.inputs[2]] : std::span<const float>();
      CachedLayer(cache_, layer, input()).append(values_[op.inputs[1]], values, a);
    }
    DOPPLER_TRY(look(op, Fault::Moment::kAttend));
    const CachedLayer cache(cache_, layer, input());
    call.cache = &cache;
    call.positions = input().positions;
    DOPPLER_ASSIGN(call.scores, scores_for(op));
    call.longest = longest();
    DOPPLER_TRY(reference::run_op(call, threads_));
    report_scores(op, call.scores);
    return {};
  }

  std::vector<std::vector<float>> values_;
  reference::Threads threads_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_reference_backend(const ModelSpec& spec, const Weights& weights,
                                                        const BackendOptions& options) {
  DOPPLER_ASSIGN(Plan plan, plan_for(spec, weights, options));
  return make_reference_backend_for_plan(std::move(plan), weights, options);
}

Result<std::unique_ptr<Backend>> make_reference_backend_for_plan(Plan plan, const Weights& weights,
                                                                 const BackendOptions& options) {
  DOPPLER_TRY(check_backend_options(options));
  DOPPLER_TRY(check_plan(plan, weights));
  BackendOptions chosen = options;
  chosen.max_step_tokens = step_tokens(options);
  DOPPLER_ASSIGN(KvCache cache, KvCache::create(plan.kv_layers, cache_extent(chosen)));
  chosen.kv_type = cache.type();
  chosen.shared.reset();  // it reads weights in place
  return std::make_unique<ReferenceBackend>(std::move(plan), weights, std::move(chosen), std::move(cache));
}

}  // namespace doppler
