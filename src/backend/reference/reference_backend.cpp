#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <limits>

#include "backend/fault.h"
#include "backend/host_cache.h"
#include "backend/kv_cache.h"
#include "backend/reference/ops.h"
#include "plan/residual.h"

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

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
      : plan_(std::move(plan)),
        weights_(weights),
        options_(std::move(options)),
        cache_(std::move(cache)),
        lengths_(plan_.kv_layers, options_.context, options_.slots, options_.max_step_tokens),
        values_(plan_.values.size()),
        threads_(options_.threads) {}

  std::string_view name() const override { return "reference"; }
  const Plan& plan() const override { return plan_; }
  const BackendOptions& options() const override { return options_; }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_.clear(slot); }
  CacheAccess* cache() override { return &cache_access_; }

  Result<std::vector<VariantRow>> describe() override {
    return std::vector<VariantRow>{{.what = "every op",
                                    .variant = "plain loops, sums in double",
                                    .why = "what others are compared with must be simple"}};
  }
  std::uint64_t memory_bytes() const override {
    std::uint64_t floats = 0;
    for (const auto& value : values_) floats += value.size();
    return cache_.bytes() + floats * sizeof(float);
  }

  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    DOPPLER_TRY(check_step(input, plan_, options_, lengths_.all()));
    step_ = input_ = &input;
    tap_ = tap;
    wanted_.clear();
    for (std::size_t t = 0; t < input.size(); ++t) {
      if (input.wants_logits[t]) wanted_.push_back(t);
    }
    for (const Op& op : plan_.ops) {
      if (options_.fault != nullptr) DOPPLER_TRY(look(op, Fault::Moment::kOp));
      DOPPLER_TRY(execute(op));
      for (const ValueId id : op.outputs) {
        if (options_.fault != nullptr) spoil(id);
        report(id);
      }
    }
    for (const std::int32_t slot : input.slots) lengths_.grow(static_cast<std::size_t>(slot));
    return std::span<const float>(values_[plan_.logits]);
  }

 private:
  const Value& info(ValueId id) const { return plan_.values[id]; }
  std::size_t rows(ValueId id) const { return info(id).rows == Rows::kAll ? input_->size() : wanted_.size(); }
  std::vector<float>& fresh(ValueId id) {
    values_[id].assign(rows(id) * info(id).width, 0.0f);
    return values_[id];
  }

  // With a fault: the tokens as the op sees them, and its value as it becomes.
  Status look(const Op& op, Fault::Moment moment) {
    DOPPLER_ASSIGN(input_, as_seen(*options_.fault, op, moment, *step_, plan_, options_));
    return {};
  }
  void spoil(ValueId id) {
    if (options_.fault->wants(plan_, id)) options_.fault->after({plan_, id, *step_, values_[id], rows(id)});
  }

  void report(ValueId id) {
    const Value& v = info(id);
    if (tap_ == nullptr) return;
    for_each_name(plan_, v, [&](Stage stage, int layer) {
      if (tap_->wants(stage, layer))
        tap_->on_stage({stage, layer, values_[id], rows(id), v.width, v.heads, step_});
    });
  }

  Status execute(const Op& op) {
    reference::OpCall call{.kind = op.kind, .params = op.params};
    for (const ValueId id : op.inputs) call.inputs.push_back({values_[id], info(id).width});
    for (const ValueId id : op.outputs) call.outputs.push_back({fresh(id), info(id).width, info(id).heads});
    for (const WeightId id : op.weights) call.weights.push_back(&weights_[id]);
    for (const WeightId id : op.biases) call.biases.push_back(id == kNoWeight ? nullptr : &weights_[id]);
    call.ids = input_->ids;
    call.positions = input_->positions;
    call.wanted = wanted_;
    if (const auto* rope = std::get_if<RopeParams>(&op.params)) call.rope = &plan_.rope_tables[rope->table];
    if (op.kind == OpKind::kAttention) return attend(op, call);
    return reference::run_op(call, threads_);
  }

  // Appends to the cache first, then attends.
  Status attend(const Op& op, reference::OpCall& call) {
    const auto& a = std::get<AttentionParams>(op.params);
    const auto layer = static_cast<std::size_t>(op.layer);
    if (options_.fault != nullptr) DOPPLER_TRY(look(op, Fault::Moment::kAppend));
    CachedLayer(cache_, layer, *input_).append(values_[op.inputs[1]], values_[op.inputs[2]], a);
    if (options_.fault != nullptr) DOPPLER_TRY(look(op, Fault::Moment::kAttend));
    const CachedLayer cache(cache_, layer, *input_);
    call.cache = &cache;
    call.positions = input_->positions;
    std::vector<float> scores;
    if (tap_ != nullptr && tap_->wants(Stage::kAttnScores, op.layer)) {
      call.longest =
          1 + static_cast<std::size_t>(*std::max_element(input_->positions.begin(), input_->positions.end()));
      scores.assign(input_->size() * a.heads * call.longest, -std::numeric_limits<float>::infinity());
      call.scores = scores;
    }
    DOPPLER_TRY(reference::run_op(call, threads_));
    if (!scores.empty()) {
      tap_->on_stage(
          {Stage::kAttnScores, op.layer, scores, input_->size(), a.heads * call.longest, a.heads, step_});
    }
    return {};
  }

  Plan plan_;
  const Weights& weights_;
  BackendOptions options_;
  KvCache cache_;
  SlotLengths lengths_;
  HostCache cache_access_{plan_, options_, cache_, lengths_};
  std::vector<std::vector<float>> values_;
  reference::Threads threads_;
  std::vector<std::size_t> wanted_;
  const StepInput* step_ = nullptr;   // as it was given
  const StepInput* input_ = nullptr;  // as the op sees it: the same, but for a fault
  Tap* tap_ = nullptr;
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
  DOPPLER_ASSIGN(KvCache cache,
                 KvCache::create(plan.kv_layers, options.context, options.slots, options.max_step_tokens));
  BackendOptions chosen = options;
  chosen.kv_type = cache.type();
  chosen.shared.reset();  // it reads weights in place
  return std::make_unique<ReferenceBackend>(std::move(plan), weights, std::move(chosen), std::move(cache));
}

}  // namespace doppler
