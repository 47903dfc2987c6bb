#include "backend/cpu/cpu_backend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/cpu/attention.h"
#include "backend/cpu/describe.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/rope_angles.h"
#include "backend/cpu/weight_memory.h"
#include "backend/fault.h"
#include "backend/host_cache.h"
#include "backend/kv_cache.h"
#include "backend/shared_weights.h"
#include "base/checked.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "plan/buffers.h"
#include "plan/fuse.h"
#include "plan/residual.h"
#include "system/memory.h"

namespace doppler {
namespace {

using namespace cpu;
using Clock = std::chrono::steady_clock;

// Values that a thread should at least get of an op that touches each once: about 5 us of work, as much as
// waking costs.
constexpr std::size_t kElementGrain = 16384;

constexpr std::string_view kPasses[] = {"gated_ffn", "group_matmuls"};

WeightMatrix matrix_of(const TensorView& tensor) {
  return {reinterpret_cast<const std::uint8_t*>(tensor.data.data()), tensor.dtype,
          static_cast<std::size_t>(tensor.rows()), static_cast<std::size_t>(tensor.cols())};
}

Result<WeightForm> form_of(const TensorView& tensor, bool exact) {
  if (tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16)
    return WeightForm::kFloats;
  if (is_quantised(tensor.dtype) && dtype_info(tensor.dtype).computable)
    return !exact && panel_format(tensor.dtype) != nullptr ? WeightForm::kPanels : WeightForm::kDecoded;
  return fail(ErrorCode::kUnsupported,
              "The tensor {} is stored as {}, which the cpu backend does not compute with. Convert it.",
              tensor.name, dtype_name(tensor.dtype));
}

// An op with what can be prepared once: decoded norm weights and biases, and its matrices.
struct Prepared {
  const Op* op = nullptr;
  std::vector<float> norm;                 // kRmsNorm: weight + offset
  std::vector<std::vector<float>> biases;  // by product; empty where there is none
  std::vector<Product> products;           // kMatmul, kGatedMatmul; `out` is filled in per step
  const TensorView* table = nullptr;       // kEmbed
};

class CpuBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const Kernels& kernels, const ModelSpec& spec,
                                                 const Weights& weights, const BackendOptions& options) {
    DOPPLER_ASSIGN(Plan plan, plan_for(spec, weights, options));
    std::vector<std::string> disabled = options.disabled_passes;
    if (options.fault != nullptr) disabled.emplace_back("gated_ffn");  // it keeps stages to itself
    DOPPLER_TRY(fuse_plan(plan, weights, kPasses, disabled));
    BackendOptions chosen = options;
    chosen.kv_type = choose_kv_type(options, plan, weights);
    DOPPLER_ASSIGN(KvCache cache, KvCache::create(plan.kv_layers, options.context, options.slots,
                                                  options.max_step_tokens, *chosen.kv_type));
    std::unique_ptr<CpuBackend> backend(
        new CpuBackend(kernels, std::move(plan), weights, std::move(chosen), std::move(cache)));
    DOPPLER_TRY(backend->allocate());
    DOPPLER_TRY(backend->prepare());
    return backend;
  }

  std::string_view name() const override { return "cpu"; }
  const Plan& plan() const override { return plan_; }
  const BackendOptions& options() const override { return options_; }
  Rounding rounding() const override {
    if (weight_memory_->bytes() > 0 || cache_.type() == KvType::kQ8_0) return Rounding::kEightBits;
    return cache_.type() == KvType::kF16 ? Rounding::kHalfCache : Rounding::kFloat;
  }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_.clear(slot); }
  CacheAccess* cache() override { return &cache_access_; }

  std::uint64_t memory_bytes() const override {
    const std::uint64_t floats =
        arena_.size() + wanted_arena_.size() + emitted_ffn_.size() + emitted_scores_.size() + constants_;
    return cache_.bytes() + floats * sizeof(float) + matmul_->bytes() + attention_->bytes() +
           angles_->bytes() + weight_memory_->bytes();
  }

  Result<std::vector<VariantRow>> describe() override {
    return describe_ops(kernels_, plan_, weights_, options_);
  }
  void observe(OpObserver* observer) override { observer_ = observer; }

  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    DOPPLER_TRY(check_step(input, plan_, options_, lengths_.all()));
    wanted_.clear();
    for (std::size_t t = 0; t < input.size(); ++t) {
      if (input.wants_logits[t]) wanted_.push_back(t);
    }
    DOPPLER_TRY(grow_wanted());
    step_ = input_ = &input;
    tap_ = tap;
    angles_->begin_step();
    auto last = observer_ == nullptr ? Clock::time_point() : Clock::now();
    for (std::size_t i = 0; i < prepared_.size(); ++i) {
      Prepared& prepared = prepared_[i];
      if (options_.fault != nullptr) DOPPLER_TRY(look(*prepared.op, Fault::Moment::kOp));
      DOPPLER_TRY(execute(prepared));
      if (options_.fault != nullptr) spoil(*prepared.op);
      for (const ValueId id : prepared.op->outputs) report(info(id), value(id), info(id).width);
      if (observer_ == nullptr) continue;
      const auto now = Clock::now();
      observer_->on_op(i, std::chrono::duration<double>(now - last).count());
      last = now;
    }
    for (const std::int32_t slot : input.slots) lengths_.grow(static_cast<std::size_t>(slot));
    return std::span<const float>(value(plan_.logits), wanted_.size() * plan_.vocab_size);
  }

 private:
  CpuBackend(const Kernels& kernels, Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
      : kernels_(kernels),
        element_(*kernels.element),
        plan_(std::move(plan)),
        weights_(weights),
        options_(std::move(options)),
        cache_(std::move(cache)),
        pool_(options_.threads),
        buffers_(plan_buffers(plan_)),
        lengths_(plan_.kv_layers, options_.context, options_.slots, options_.max_step_tokens) {}

  // --- creation

  Status allocate() {
    const std::uint64_t rows = options_.max_step_tokens;
    const auto floats = (Checked(buffers_.extent(Rows::kAll)) * Checked(rows)).get();
    const auto bytes =
        (Checked(floats.value_or(UINT64_MAX)) * Checked(sizeof(float)) + Checked(cache_.bytes())).get();
    if (const std::uint64_t available = system::available_memory(); !floats || !bytes || *bytes > available) {
      return fail(ErrorCode::kLimit,
                  "The KV cache and the activations of {} tokens need {}, but the machine has {} left. Lower "
                  "the context or the step size.",
                  rows, bytes ? human_bytes(*bytes) : "more than 2^64 bytes", human_bytes(available));
    }
    DOPPLER_ASSIGN(arena_, LazyFloats::allocate(*floats));
    std::size_t widest = 0;
    for (const Op& op : plan_.ops) {
      if (op.kind == OpKind::kMatmul || op.kind == OpKind::kGatedMatmul)
        widest = std::max<std::size_t>(widest, info(op.inputs[0]).width);
    }
    DOPPLER_ASSIGN(matmul_, Matmul::create(kernels_, pool_, rows, widest));
    DOPPLER_ASSIGN(attention_, Attention::create(*kernels_.attention, pool_, plan_, options_));
    DOPPLER_ASSIGN(angles_, RopeAngles::create(plan_.rope_tables, rows));
    return {};
  }

  Status prepare() {
    for (const Op& op : plan_.ops) {
      Prepared prepared{.op = &op, .norm = {}, .biases = {}, .products = {}};
      if (op.kind == OpKind::kRmsNorm) DOPPLER_TRY(prepare_norm(op, prepared.norm));
      if (op.kind == OpKind::kEmbed) {
        prepared.table = &weights_[op.weights[0]];
        DOPPLER_TRY(form_of(*prepared.table, options_.exact));
      }
      if (op.kind == OpKind::kMatmul || op.kind == OpKind::kGatedMatmul)
        DOPPLER_TRY(prepare_products(op, prepared));
      prepared_.push_back(std::move(prepared));
    }
    DOPPLER_TRY(lay_out_weights());
    for (Prepared& prepared : prepared_) {
      for (std::size_t i = 0; i < prepared.products.size(); ++i) {
        Product& product = prepared.products[i];
        if (product.form == WeightForm::kPanels)
          product.panels = weight_memory_->panels(weights_[prepared.op->weights[i]]);
      }
    }
    return {};
  }

  // Laid out already if another backend of the model did it.
  Status lay_out_weights() {
    const auto make = [this]() -> Result<std::shared_ptr<const WeightMemory>> {
      const auto memory = std::make_shared<WeightMemory>();
      for (const Prepared& prepared : prepared_) {
        for (const Product& product : prepared.products) {
          if (product.form == WeightForm::kPanels) DOPPLER_TRY(memory->plan(*product.blocks));
        }
      }
      DOPPLER_TRY(memory->fill(pool_));
      return memory;
    };
    if (options_.shared == nullptr || options_.exact) {
      DOPPLER_ASSIGN(weight_memory_, make());
    } else {
      DOPPLER_ASSIGN(weight_memory_, options_.shared->get<WeightMemory>("cpu panels", make));
    }
    options_.shared.reset();  // whoever takes these options for other weights must not find these
    return {};
  }

  Status prepare_norm(const Op& op, std::vector<float>& norm) {
    const TensorView& weight = weights_[op.weights[0]];
    norm.resize(weight.cols());
    constants_ += norm.size();
    DOPPLER_TRY(decode_f32(weight, 0, norm));
    const double offset = std::get<NormParams>(op.params).weight_offset;
    for (float& w : norm) w = static_cast<float>(w + offset);
    return {};
  }

  Status prepare_products(const Op& op, Prepared& prepared) {
    prepared.biases.resize(op.weights.size());
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      const TensorView& weight = weights_[op.weights[i]];
      DOPPLER_ASSIGN(const WeightForm form, form_of(weight, options_.exact));
      std::vector<float>& bias = prepared.biases[i];
      if (!op.biases.empty() && op.biases[i] != kNoWeight) {
        bias.resize(weights_[op.biases[i]].cols());
        constants_ += bias.size();
        DOPPLER_TRY(decode_f32(weights_[op.biases[i]], 0, bias));
      }
      prepared.products.push_back({.form = form,
                                   .floats = matrix_of(weight),
                                   .panels = {},
                                   .blocks = &weight,
                                   .rows = static_cast<std::size_t>(weight.rows()),
                                   .cols = static_cast<std::size_t>(weight.cols()),
                                   .bias = bias.empty() ? nullptr : bias.data()});
    }
    return {};
  }

  // Logits are wide (262144 for Gemma 3) and usually wanted for one token of a step, so their arena follows
  // the wish.
  Status grow_wanted() {
    if (wanted_.size() <= wanted_rows_) return {};
    DOPPLER_ASSIGN(LazyFloats larger, LazyFloats::allocate(buffers_.extent(Rows::kWanted) * wanted_.size()));
    wanted_arena_ = std::move(larger);
    wanted_rows_ = wanted_.size();
    return {};
  }

  // For what only taps ask for.
  static Status make_room(LazyFloats& memory, std::uint64_t floats) {
    if (memory.size() >= floats) return {};
    DOPPLER_ASSIGN(memory, LazyFloats::allocate(floats));
    return {};
  }

  // --- values and taps

  const Value& info(ValueId id) const { return plan_.values[id]; }
  std::size_t rows(const Value& v) const { return v.rows == Rows::kAll ? input_->size() : wanted_.size(); }
  float* value(ValueId id) {
    const bool all = info(id).rows == Rows::kAll;
    return (all ? arena_.data() : wanted_arena_.data()) +
           buffers_.offsets[id] * (all ? options_.max_step_tokens : wanted_rows_);
  }

  // With a fault: the tokens as the op sees them, and its values as they become.
  Status look(const Op& op, Fault::Moment moment) {
    DOPPLER_ASSIGN(input_, as_seen(*options_.fault, op, moment, *step_, plan_, options_));
    if (op.kind == OpKind::kRope) angles_->begin_step();  // the op before may have seen other positions
    return {};
  }
  void spoil(const Op& op) {
    for (const ValueId id : op.outputs) {
      const std::size_t count = rows(info(id));
      if (options_.fault->wants(plan_, id))
        options_.fault->after({plan_, id, *step_, std::span(value(id), count * info(id).width), count});
    }
  }

  void report(const Value& v, const float* data, std::size_t width) {
    if (tap_ == nullptr) return;
    const std::span<const float> all(data, rows(v) * width);
    for_each_name(plan_, v, [&](Stage stage, int layer) {
      if (tap_->wants(stage, layer)) tap_->on_stage({stage, layer, all, rows(v), width, v.heads, step_});
    });
  }

  bool wants(ValueId id) const {
    return tap_ != nullptr && info(id).stage != Stage::kNone && tap_->wants(info(id).stage, info(id).layer);
  }

  // --- ops

  // body(first_row, end_row) over rows of `width` values, on several threads if that pays.
  template <typename Body>
  void for_rows(std::size_t rows, std::size_t width, const Body& body) {
    pool_.parallel_for(rows, std::max<std::size_t>(1, kElementGrain / std::max<std::size_t>(width, 1)),
                       std::cref(body));
  }

  Status execute(Prepared& prepared) {
    const Op& op = *prepared.op;
    switch (op.kind) {
      case OpKind::kEmbed:
        embed(prepared);
        return {};
      case OpKind::kRmsNorm:
        rms_norm(prepared);
        return {};
      case OpKind::kMatmul:
        matmul(prepared);
        return {};
      case OpKind::kGatedMatmul:
        return gated_matmul(prepared);
      case OpKind::kRope:
        rope(op);
        return {};
      case OpKind::kAttention:
        return attention(op);
      case OpKind::kAdd:
      case OpKind::kGated:
        combine(op);
        return {};
      case OpKind::kSelect:
        select(op);
        return {};
      case OpKind::kSoftcap:
        softcap(op);
        return {};
      case OpKind::kCount:
        break;
    }
    return fail(ErrorCode::kInternal, "The cpu backend does not run the op {}.", op_name(op.kind));
  }

  void embed(const Prepared& prepared) {
    const auto scale = static_cast<float>(std::get<EmbedParams>(prepared.op->params).scale);
    const TensorView& table = *prepared.table;
    const std::size_t width = table.cols();
    float* out = value(prepared.op->outputs[0]);
    for_rows(input_->size(), width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const auto row = static_cast<std::size_t>(input_->ids[t]);
        if (!is_quantised(table.dtype)) {
          element_.decode_row(matrix_of(table), row, scale, out + t * width);
          continue;
        }
        // Type and size were checked when the backend was made.
        (void)decode_f32(table, row * width, std::span(out + t * width, width));
        for (std::size_t i = 0; i < width; ++i) out[t * width + i] *= scale;
      }
    });
  }

  void rms_norm(const Prepared& prepared) {
    const Value& v = info(prepared.op->outputs[0]);
    const double eps = std::get<NormParams>(prepared.op->params).eps;
    const std::size_t dim = v.width / v.heads;
    const float* in = value(prepared.op->inputs[0]);
    float* out = value(prepared.op->outputs[0]);
    for_rows(rows(v) * v.heads, dim, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r)
        element_.rms_norm(in + r * dim, prepared.norm.data(), dim, eps, out + r * dim);
    });
  }

  void matmul(Prepared& prepared) {
    const Op& op = *prepared.op;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) prepared.products[i].out = value(op.outputs[i]);
    matmul_->run(value(op.inputs[0]), rows(info(op.inputs[0])), prepared.products);
  }

  Status gated_matmul(Prepared& prepared) {
    const Op& op = *prepared.op;
    const Value& v = info(op.outputs[0]);
    Product &gate = prepared.products[0], &up = prepared.products[1];
    gate.out = up.out = nullptr;
    const bool emits = op.emits.size() == 2 && (wants(op.emits[0]) || wants(op.emits[1]));
    if (emits) {
      const std::uint64_t floats = std::uint64_t{options_.max_step_tokens} * v.width;
      DOPPLER_TRY(make_room(emitted_ffn_, 2 * floats));
      gate.out = emitted_ffn_.data();
      up.out = emitted_ffn_.data() + floats;
    }
    matmul_->run_gated(value(op.inputs[0]), rows(v), gate, up, std::get<GatedParams>(op.params).activation,
                       value(op.outputs[0]));
    if (emits) {
      report(info(op.emits[0]), gate.out, v.width);
      report(info(op.emits[1]), up.out, v.width);
    }
    return {};
  }

  void rope(const Op& op) {
    const auto& p = std::get<RopeParams>(op.params);
    const RopeAngles::Table angles = angles_->table(plan_.rope_tables, p.table, input_->positions);
    const Value& v = info(op.outputs[0]);
    const std::size_t dim = v.width / v.heads;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for_rows(rows(v), v.width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const float *cos = angles.cos + t * angles.pairs, *sin = angles.sin + t * angles.pairs;
        for (std::size_t h = 0; h < v.heads; ++h) {
          const std::size_t at = t * v.width + h * dim;
          element_.rope(in + at, cos, sin, angles.pairs, dim, p.layout, out + at);
        }
      }
    });
  }

  Status attention(const Op& op) {
    const auto& a = std::get<AttentionParams>(op.params);
    Attention::Call call{.params = &a,
                         .layer = static_cast<std::size_t>(op.layer),
                         .q = value(op.inputs[0]),
                         .k = value(op.inputs[1]),
                         .v = value(op.inputs[2]),
                         .out = value(op.outputs[0])};
    if (options_.fault != nullptr) DOPPLER_TRY(look(op, Fault::Moment::kAppend));
    attention_->append(call, *input_, cache_);
    if (options_.fault != nullptr) DOPPLER_TRY(look(op, Fault::Moment::kAttend));
    const bool emits = tap_ != nullptr && tap_->wants(Stage::kAttnScores, op.layer);
    if (emits) {
      call.longest =
          1 + static_cast<std::size_t>(*std::max_element(input_->positions.begin(), input_->positions.end()));
      const std::uint64_t floats = std::uint64_t{input_->size()} * a.heads * call.longest;
      DOPPLER_TRY(make_room(emitted_scores_, floats));
      call.emitted = emitted_scores_.data();
      std::fill_n(call.emitted, floats, -std::numeric_limits<float>::infinity());
    }
    attention_->attend(call, *input_, cache_);
    if (emits) {
      const Value scores{
          .width = 0, .heads = a.heads, .rows = Rows::kAll, .stage = Stage::kAttnScores, .layer = op.layer};
      report(scores, call.emitted, a.heads * call.longest);
    }
    return {};
  }

  void combine(const Op& op) {
    const Value& v = info(op.outputs[0]);
    const std::size_t width = v.width;
    const float* a = value(op.inputs[0]);
    const float* b = op.inputs.size() > 1 ? value(op.inputs[1]) : nullptr;
    float* out = value(op.outputs[0]);
    for_rows(rows(v), width, [&](std::size_t begin, std::size_t end) {
      // Row by row, so that an element's place among the vectors does not depend on the step.
      for (std::size_t r = begin; r < end; ++r) {
        const std::size_t at = r * width;
        if (op.kind == OpKind::kAdd) {
          element_.add(a + at, b + at, width, out + at);
        } else {
          element_.gated(std::get<GatedParams>(op.params).activation, a + at, b != nullptr ? b + at : nullptr,
                         width, out + at);
        }
      }
    });
  }

  void select(const Op& op) {
    const std::size_t width = info(op.outputs[0]).width;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      std::copy_n(in + wanted_[i] * width, width, out + i * width);
  }

  void softcap(const Op& op) {
    const auto cap = static_cast<float>(std::get<SoftcapParams>(op.params).cap);
    const Value& v = info(op.outputs[0]);
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    if (!(cap > 0)) {
      if (in != out) std::copy_n(in, rows(v) * v.width, out);
      return;
    }
    // Blocks of a row at places that are multiples of a vector: vocabularies are too wide for one thread.
    for (std::size_t r = 0; r < rows(v); ++r) {
      pool_.parallel_for(v.width, kElementGrain, [&](std::size_t begin, std::size_t end) {
        element_.softcap(in + r * v.width + begin, cap, end - begin, out + r * v.width + begin);
      });
    }
  }

  const Kernels& kernels_;
  const ElementKernels& element_;
  Plan plan_;
  const Weights& weights_;
  BackendOptions options_;
  KvCache cache_;
  ThreadPool pool_;
  std::shared_ptr<const WeightMemory> weight_memory_;
  BufferPlan buffers_;
  LazyFloats arena_, wanted_arena_;
  std::size_t wanted_rows_ = 0;  // that wanted_arena_ has room for
  LazyFloats emitted_ffn_, emitted_scores_;
  std::uint64_t constants_ = 0;  // floats of decoded norm weights and biases
  std::optional<Matmul> matmul_;
  std::optional<Attention> attention_;
  std::optional<RopeAngles> angles_;
  std::vector<Prepared> prepared_;
  SlotLengths lengths_;
  HostCache cache_access_{plan_, options_, cache_, lengths_};
  std::vector<std::size_t> wanted_;
  const StepInput* step_ = nullptr;   // as it was given
  const StepInput* input_ = nullptr;  // as the op sees it: the same, but for a fault
  Tap* tap_ = nullptr;
  OpObserver* observer_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend_for(const cpu::Kernels& kernels, const ModelSpec& spec,
                                                      const Weights& weights, const BackendOptions& options) {
  DOPPLER_TRY(check_backend_options(options));
  return CpuBackend::create(kernels, spec, weights, options);
}

Result<std::unique_ptr<Backend>> make_cpu_backend(const ModelSpec& spec, const Weights& weights,
                                                  const BackendOptions& options) {
  std::vector<std::string_view> known;
  for (const Kernels& kernels : all_kernels()) {
    if (options.cpu_target.empty() || kernels.target == options.cpu_target)
      return make_cpu_backend_for(kernels, spec, weights, options);
    known.push_back(kernels.target);
  }
  return fail(ErrorCode::kUsage, "This machine has no kernels {}. It has {}.", printable(options.cpu_target),
              fmt::join(known, ", "));
}

}  // namespace doppler
