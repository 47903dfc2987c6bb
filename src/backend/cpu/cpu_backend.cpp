#include "backend/cpu/cpu_backend.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>

#include "backend/cpu/attention.h"
#include "backend/cpu/describe.h"
#include "backend/cpu/expert_rows.h"
#include "backend/cpu/larger_than_memory.h"
#include "backend/cpu/matmul.h"
#include "backend/cpu/recurrent.h"
#include "backend/cpu/rope_angles.h"
#include "backend/cpu/weight_memory.h"
#include "backend/host_backend.h"
#include "backend/routing.h"
#include "backend/shared_weights.h"
#include "base/checked.h"
#include "base/text.h"
#include "base/thread_choice.h"
#include "base/thread_pool.h"
#include "plan/buffers.h"
#include "plan/fuse.h"
#include "system/memory.h"
#include "system/threads.h"

namespace doppler {
namespace {

using namespace cpu;

// Values that a thread should at least get of an op that touches each once: about 5 us of work, as much as
// waking costs.
constexpr std::size_t kElementGrain = 16384;

// Weights that a thread should at least get of a step: with less, handing over its part costs more than it
// saves.
constexpr std::uint64_t kBytesOfAThread = 2 << 20;

constexpr std::string_view kPasses[] = {kPassReadValues, kPassGatedFfn, kPassGroupMatmuls, kPassLateRows};

// The name of what backends of one model share.
constexpr std::string_view kSharedPanels = "cpu panels";

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

// An op with the parts that are prepared once: decoded norm weights and biases, and its matrices.
struct Prepared {
  const Op* op = nullptr;
  std::vector<float> norm;  // kRmsNorm: weight + offset; kScale: its weights
  // By product; empty where there is none. kAttention: sinks; kChoose, kWeigh: what experts have.
  std::vector<std::vector<float>> biases;
  // kMatmul, kGatedMatmul, kHeadMatmul; kExpertMatmul: the products of each expert in turn. `out` is filled
  // in per step.
  std::vector<Product> products;
  const TensorView* table = nullptr;  // kEmbed
  std::vector<float> positions;       // kEmbed: [learned positions, width]
  std::vector<float> matrices;        // kHeadMatmul: [heads, outputs, inputs], a product each
  RecurrentWeights recurrent;         // of the ops of recurrent layers
};

class CpuBackend final : public HostBackend {
 public:
  static Result<std::unique_ptr<Backend>> create(const Kernels& kernels, const ModelSpec& spec,
                                                 const Weights& weights, const BackendOptions& options) {
    DOPPLER_ASSIGN(Plan plan, plan_for(spec, weights, options));
    std::vector<std::string> disabled = options.disabled_passes;
    if (options.fault != nullptr) disabled.emplace_back("gated_ffn");  // it does not store every stage
    DOPPLER_TRY(fuse_plan(plan, weights, kPasses, disabled));
    BackendOptions chosen = options;
    chosen.kv_type = choose_kv_type(options, plan, weights);
    chosen.max_step_tokens = step_tokens(options);
    DOPPLER_ASSIGN(KvCache cache, KvCache::create(plan.kv_layers, cache_extent(chosen), *chosen.kv_type));
    const bool quantised = std::ranges::any_of(
        weights.tensors(), [](const TensorView& weight) { return is_quantised(weight.dtype); });
    // What an engine of the same model has laid out needs no memory again.
    const auto nothing = []() -> Result<std::shared_ptr<const WeightMemory>> {
      return fail(ErrorCode::kNotFound, "Nothing is laid out.");
    };
    const bool laid_out =
        options.shared != nullptr && options.shared->get<WeightMemory>(kSharedPanels, nothing).has_value();
    std::optional<Fallback> in_place;
    // What lies in a source has no pages to be read from.
    const bool mapped = std::ranges::none_of(
        weights.tensors(), [](const TensorView& weight) { return weight.source != nullptr; });
    if (!laid_out && mapped)
      in_place = larger_than_memory(weight_bytes(plan, weights), quantised, system::available_memory());
    chosen.exact = chosen.exact || in_place.has_value();
    std::unique_ptr<CpuBackend> backend(
        new CpuBackend(kernels, std::move(plan), weights, std::move(chosen), std::move(cache)));
    DOPPLER_TRY(backend->allocate());
    DOPPLER_TRY(backend->prepare());
    backend->token_threads_.emplace(backend->threads_for(1));
    if (in_place) backend->note(std::move(*in_place));
    return backend;
  }

  std::string_view name() const override { return "cpu"; }

  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    pool_.use(input.size() == 1 ? token_threads_->threads() : threads_for(input.size()));
    if (input.size() != 1 || tap != nullptr || threads_for(1) == 1) return HostBackend::step(input, tap);
    const auto start = std::chrono::steady_clock::now();
    const double before = system::thread_seconds();
    auto logits = HostBackend::step(input, tap);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    token_threads_->note(passed.count(), system::thread_seconds() - before);
    return logits;
  }
  Precision precision() const override {
    if (weight_memory_->has_panels() || cache_.type() == KvType::kQ8_0)
      return {.rounding = Rounding::kEightBits};
    return {.rounding = cache_.type() == KvType::kF16 ? Rounding::kHalfCache : Rounding::kFloat};
  }

  MemoryUse memory() const override {
    const std::uint64_t floats = arena_.size() + wanted_arena_.size() + emitted_ffn_.size();
    return {.cache = cache_.bytes(),
            .activations = floats * sizeof(float) + score_bytes() + matmul_->bytes() + attention_->bytes() +
                           angles_->bytes(),
            .weights = weight_memory_->bytes() + constants_ * sizeof(float)};
  }

  Result<std::vector<VariantRow>> describe() override {
    return describe_ops(kernels_, plan_, weights_, options_);
  }

 private:
  CpuBackend(const Kernels& kernels, Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
      : HostBackend(std::move(plan), weights, std::move(options), std::move(cache)),
        kernels_(kernels),
        element_(*kernels.element),
        pool_(options_.threads),
        buffers_(plan_buffers(plan_)) {}

  std::size_t threads_for(std::size_t tokens) const {
    return static_cast<std::size_t>(
        std::clamp<std::uint64_t>(weight_bytes_ * tokens / kBytesOfAThread, 1, pool_.size()));
  }

  // --- creation

  Status allocate() {
    const std::uint64_t rows = most_tokens();
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
    MatmulRoom room{.tokens = static_cast<std::size_t>(rows)};
    std::size_t widest_head = 0;
    for (const Op& op : plan_.ops) {
      if (op.kind == OpKind::kMatmul || op.kind == OpKind::kGatedMatmul || op.kind == OpKind::kHeadMatmul)
        room.cols = std::max<std::size_t>(room.cols, info(op.inputs[0]).width);
      if (const auto* heads = std::get_if<HeadMatmulParams>(&op.params)) {
        const std::size_t gives = info(op.outputs[0]).width / heads->heads;
        widest_head = std::max({widest_head, gives, std::size_t{info(op.inputs[0]).width}});
      }
      if (op.kind != OpKind::kExpertMatmul) continue;
      const auto& p = std::get<ExpertParams>(op.params);
      room.cols = std::max<std::size_t>(room.cols, weights_[op.weights[0]].cols());
      room.expert_rows = std::max<std::size_t>(room.expert_rows, rows * p.chosen);
      room.experts = std::max<std::size_t>(room.experts, p.experts);
    }
    DOPPLER_ASSIGN(head_in_, LazyFloats::allocate(widest_head * rows));
    DOPPLER_ASSIGN(head_out_, LazyFloats::allocate(widest_head * rows));
    DOPPLER_ASSIGN(matmul_, Matmul::create(kernels_, pool_, room));
    DOPPLER_ASSIGN(attention_, Attention::create(*kernels_.attention, pool_, plan_, options_));
    DOPPLER_ASSIGN(angles_, RopeAngles::create(plan_.rope_tables, rows));
    return {};
  }

  Status prepare() {
    for (const Op& op : plan_.ops) {
      Prepared prepared{.op = &op, .norm = {}, .biases = {}, .products = {}, .recurrent = {}};
      if (op.kind == OpKind::kRmsNorm) {
        DOPPLER_TRY(prepare_norm(op, prepared.norm));
        prepared.biases.resize(1);
        if (!op.biases.empty() && op.biases[0] != kNoWeight)
          DOPPLER_TRY(decode_all(weights_[op.biases[0]], prepared.biases[0]));
      }
      if (op.kind == OpKind::kScale) DOPPLER_TRY(decode_all(weights_[op.weights[0]], prepared.norm));
      if (op.kind == OpKind::kHeadMatmul) DOPPLER_TRY(prepare_heads(op, prepared));
      if (op.kind == OpKind::kEmbed) {
        prepared.table = &weights_[op.weights[0]];
        DOPPLER_TRY(form_of(*prepared.table, options_.exact));
        if (op.weights.size() > 1) DOPPLER_TRY(decode_all(weights_[op.weights[1]], prepared.positions));
      }
      if (op.kind == OpKind::kMatmul || op.kind == OpKind::kGatedMatmul)
        DOPPLER_TRY(prepare_products(op, prepared));
      if (op.kind == OpKind::kExpertMatmul) DOPPLER_TRY(prepare_experts(op, prepared));
      if (op.kind == OpKind::kAttention || op.kind == OpKind::kChoose || op.kind == OpKind::kWeigh) {
        prepared.biases.resize(1);
        if (!op.weights.empty()) DOPPLER_TRY(decode_all(weights_[op.weights[0]], prepared.biases[0]));
      }
      DOPPLER_ASSIGN(prepared.recurrent, prepare_recurrent(op, weights_));
      prepared_.push_back(std::move(prepared));
    }
    DOPPLER_TRY(lay_out_weights());
    for (Prepared& prepared : prepared_) {
      for (std::size_t i = 0; i < prepared.products.size(); ++i) {
        Product& product = prepared.products[i];
        if (product.form == WeightForm::kPanels) product.panels = weight_memory_->panels(*product.blocks);
        if (product.form != WeightForm::kPanels && in_source(product.blocks)) {
          product.blocks = &copies_.emplace_back(weight_memory_->copy(*product.blocks));
          product.floats = matrix_of(*product.blocks);
        }
      }
      // The rows of a table are read when they are needed, unless it is in memory as the head.
      if (in_source(prepared.table))
        prepared.table = &copies_.emplace_back(weight_memory_->copy(*prepared.table));
    }
    return {};
  }

  static bool in_source(const TensorView* tensor) { return tensor != nullptr && tensor->source != nullptr; }

  // Laid out already if another backend of the model did it.
  Status lay_out_weights() {
    const auto make = [this]() -> Result<std::shared_ptr<const WeightMemory>> {
      const auto memory = std::make_shared<WeightMemory>();
      for (const Prepared& prepared : prepared_) {
        for (const Product& product : prepared.products) {
          if (product.form == WeightForm::kPanels)
            DOPPLER_TRY(memory->plan(*product.blocks));
          else if (in_source(product.blocks))
            DOPPLER_TRY(memory->plan_copy(*product.blocks));
        }
      }
      DOPPLER_TRY(memory->fill(pool_));
      return memory;
    };
    if (options_.shared == nullptr || options_.exact) {
      DOPPLER_ASSIGN(weight_memory_, make());
    } else {
      DOPPLER_ASSIGN(weight_memory_, options_.shared->get<WeightMemory>(kSharedPanels, make));
    }
    options_.shared.reset();  // other weights with these options must not find these
    return {};
  }

  Status decode_all(const TensorView& tensor, std::vector<float>& values) {
    values.resize(element_count(tensor.shape).value_or(0));
    constants_ += values.size();
    return decode_f32(tensor, 0, values);
  }

  // Each head's matrix as floats, [outputs, inputs], whichever way the weight has it.
  Status prepare_heads(const Op& op, Prepared& prepared) {
    const auto& p = std::get<HeadMatmulParams>(op.params);
    const TensorView& weight = weights_[op.weights[0]];
    DOPPLER_TRY(form_of(weight, options_.exact));
    const std::size_t cols = weight.cols(), each = p.rows * cols;
    const std::size_t takes = p.transposed ? p.rows : cols, gives = p.transposed ? cols : p.rows;
    prepared.matrices.resize(p.heads * each);
    constants_ += prepared.matrices.size();
    std::vector<float> matrix(each);
    for (std::size_t h = 0; h < p.heads; ++h) {
      DOPPLER_TRY(decode_f32(weight, (h * p.stride + p.begin) * cols, matrix));
      float* to = &prepared.matrices[h * each];
      for (std::size_t o = 0; o < gives; ++o) {
        for (std::size_t i = 0; i < takes; ++i)
          to[o * takes + i] = p.transposed ? matrix[i * cols + o] : matrix[o * cols + i];
      }
      prepared.products.push_back(
          {.form = WeightForm::kFloats,
           .floats = {reinterpret_cast<const std::uint8_t*>(to), DType::kF32, gives, takes},
           .panels = {},
           .blocks = nullptr,
           .bias = nullptr});
      prepared.products.back().rows = gives;
      prepared.products.back().cols = takes;
      weight_bytes_ += each * sizeof(float);
    }
    return {};
  }

  Status prepare_norm(const Op& op, std::vector<float>& norm) {
    const Value& v = info(op.outputs[0]);
    const auto& p = std::get<NormParams>(op.params);
    if (op.weights.empty()) {
      norm.assign(v.width / v.heads, static_cast<float>(p.factor));
      return {};
    }
    DOPPLER_TRY(decode_all(weights_[op.weights[0]], norm));
    const double offset = p.weight_offset;
    for (float& w : norm) w = static_cast<float>(w + offset);
    return {};
  }

  Status add_product(WeightId id, WeightId bias_id, Prepared& prepared) {
    const TensorView& weight = weights_[id];
    DOPPLER_ASSIGN(const WeightForm form, form_of(weight, options_.exact));
    std::vector<float>& bias = prepared.biases.emplace_back();
    if (bias_id != kNoWeight) DOPPLER_TRY(decode_all(weights_[bias_id], bias));
    prepared.products.push_back({.form = form,
                                 .floats = matrix_of(weight),
                                 .panels = {},
                                 .blocks = &weight,
                                 .rows = static_cast<std::size_t>(weight.rows()),
                                 .cols = static_cast<std::size_t>(weight.cols()),
                                 .bias = bias.empty() ? nullptr : bias.data()});
    return {};
  }

  Status prepare_products(const Op& op, Prepared& prepared) {
    prepared.biases.reserve(op.weights.size());
    for (std::size_t i = 0; i < op.weights.size(); ++i) {
      DOPPLER_TRY(add_product(op.weights[i], op.biases.empty() ? kNoWeight : op.biases[i], prepared));
      weight_bytes_ += weights_[op.weights[i]].bytes();
    }
    return {};
  }

  // A token reads the weights of its chosen experts only.
  Status prepare_experts(const Op& op, Prepared& prepared) {
    const auto& p = std::get<ExpertParams>(op.params);
    prepared.biases.reserve(op.weights.size() * p.experts);
    for (WeightId e = 0; e < p.experts; ++e) {
      for (std::size_t i = 0; i < op.weights.size(); ++i) {
        const WeightId bias = op.biases.empty() || op.biases[i] == kNoWeight ? kNoWeight : op.biases[i] + e;
        DOPPLER_TRY(add_product(op.weights[i] + e, bias, prepared));
        if (e < p.chosen) weight_bytes_ += weights_[op.weights[i] + e].bytes();
      }
    }
    return {};
  }

  // Logits are wide (262144 for Gemma 3) and usually wanted for one token of a step, so their arena grows
  // with the number that is wanted.
  Status grow_wanted() {
    if (wanted().size() <= wanted_rows_) return {};
    DOPPLER_ASSIGN(LazyFloats larger, LazyFloats::allocate(buffers_.extent(Rows::kWanted) * wanted().size()));
    wanted_arena_ = std::move(larger);
    wanted_rows_ = wanted().size();
    return {};
  }

  // --- values and taps

  std::uint64_t most_tokens() const { return *options_.max_step_tokens; }
  float* value(ValueId id) {
    const bool all = info(id).rows == Rows::kAll;
    return (all ? arena_.data() : wanted_arena_.data()) +
           buffers_.offsets[id] * (all ? most_tokens() : wanted_rows_);
  }
  std::span<float> value_of(ValueId id) override { return {value(id), rows(info(id)) * info(id).width}; }

  Status begin_step() override {
    angles_->begin_step();
    return grow_wanted();
  }
  void see_other_tokens() override { angles_->begin_step(); }

  bool wants_value(ValueId id) const {
    return info(id).stage != Stage::kNone && wants(info(id).stage, info(id).layer);
  }

  // --- ops

  // body(first_row, end_row) over rows of `width` values, on several threads if that pays.
  template <typename Body>
  void for_rows(std::size_t rows, std::size_t width, const Body& body) {
    pool_.parallel_for(rows, std::max<std::size_t>(1, kElementGrain / std::max<std::size_t>(width, 1)),
                       std::cref(body));
  }

  Status execute(std::size_t index) override {
    Prepared& prepared = prepared_[index];
    const Op& op = *prepared.op;
    switch (op.kind) {
      case OpKind::kEmbed:
        return embed(prepared);
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
        return attention(prepared);
      case OpKind::kAdd:
      case OpKind::kGated:
        combine(op);
        return {};
      case OpKind::kScaleQuery:
        scale_query(op);
        return {};
      case OpKind::kChoose:
      case OpKind::kWeigh:
        route(prepared);
        return {};
      case OpKind::kSpread:
        spread(op);
        return {};
      case OpKind::kExpertMatmul:
        expert_matmul(prepared);
        return {};
      case OpKind::kExpertSum:
        expert_sum(op);
        return {};
      case OpKind::kSelect:
        select(op);
        return {};
      case OpKind::kSoftcap:
        softcap(op);
        return {};
      case OpKind::kScale:
        scale(prepared);
        return {};
      case OpKind::kJoin:
        join(op);
        return {};
      case OpKind::kHeadMatmul:
        head_matmul(prepared);
        return {};
      case OpKind::kMix:
        mix(op);
        return {};
      case OpKind::kMatchRms:
        match_rms(op);
        return {};
      case OpKind::kCutoff:
        cutoff(op);
        return {};
      case OpKind::kColumns:
      case OpKind::kTimeStep:
      case OpKind::kDecay:
      case OpKind::kConvolution:
      case OpKind::kDeltaRule:
      case OpKind::kScan:
      case OpKind::kChannelScan:
        recurrent(prepared);
        return {};
      case OpKind::kCount:
        break;
    }
    return fail(ErrorCode::kInternal, "The cpu backend does not run the op {}.", op_name(op.kind));
  }

  Status embed(const Prepared& prepared) {
    const auto scale = static_cast<float>(std::get<EmbedParams>(prepared.op->params).scale);
    const TensorView& table = *prepared.table;
    const std::size_t width = table.cols();
    float* out = value(prepared.op->outputs[0]);
    std::vector<Status> rows(table.source == nullptr ? 0 : input().size());
    for_rows(input().size(), width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        // Tokens beyond a table of fewer rows than the vocabulary has read its first.
        const auto id = static_cast<std::size_t>(input().ids[t]);
        const std::size_t row = id < table.rows() ? id : 0;
        if (table.source != nullptr) {
          rows[t] = decode_f32(table, row * width, std::span(out + t * width, width));
          element_.scale(out + t * width, scale, width, out + t * width);
        } else if (!is_quantised(table.dtype)) {
          element_.decode_row(matrix_of(table), row, scale, out + t * width);
        } else {
          // Type and size were checked when the backend was made.
          (void)decode_f32(table, row * width, std::span(out + t * width, width));
          element_.scale(out + t * width, scale, width, out + t * width);
        }
        if (prepared.positions.empty()) continue;
        const float* place = &prepared.positions[static_cast<std::size_t>(input().positions[t]) * width];
        element_.add(out + t * width, place, 1, width, out + t * width);
      }
    });
    for (Status& row : rows) DOPPLER_TRY(row);
    return {};
  }

  void rms_norm(const Prepared& prepared) {
    const Value& v = info(prepared.op->outputs[0]);
    const auto& p = std::get<NormParams>(prepared.op->params);
    const std::size_t parts = p.span == NormSpan::kProjection ? 1 : v.heads, dim = v.width / parts;
    const float* in = value(prepared.op->inputs[0]);
    float* out = value(prepared.op->outputs[0]);
    const std::vector<float>&weight = prepared.norm, &bias = prepared.biases[0];
    for_rows(rows(v) * parts, dim, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        // The weight is as wide as a part of a row, or as a row.
        const std::size_t own = r * dim % weight.size();
        const float* from = in + r * dim;
        float* to = out + r * dim;
        if (p.kind == NormKind::kLayer) {
          element_.center(from, dim, to);
          from = to;
        }
        element_.rms_norm(from, &weight[own], dim, p.eps, to);
        if (!bias.empty()) element_.add(to, &bias[own], 1, dim, to);
      }
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
    const bool emits = op.emits.size() == 2 && (wants_value(op.emits[0]) || wants_value(op.emits[1]));
    if (emits) {
      const std::uint64_t floats = most_tokens() * v.width;
      if (emitted_ffn_.size() < 2 * floats) {
        DOPPLER_ASSIGN(emitted_ffn_, LazyFloats::allocate(2 * floats));
      }
      gate.out = emitted_ffn_.data();
      up.out = emitted_ffn_.data() + floats;
    }
    matmul_->run_gated(value(op.inputs[0]), rows(v), gate, up, std::get<GatedParams>(op.params).activation,
                       value(op.outputs[0]));
    if (emits) {
      const std::size_t shown = rows(v) * v.width;
      report(info(op.emits[0]), {gate.out, shown}, v.width);
      report(info(op.emits[1]), {up.out, shown}, v.width);
    }
    return {};
  }

  void rope(const Op& op) {
    const auto& p = std::get<RopeParams>(op.params);
    const RopeAngles::Table angles = angles_->table(plan_.rope_tables, p.table, input().positions);
    const Value& v = info(op.outputs[0]);
    const std::size_t dim = v.width / v.heads;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for_rows(rows(v), v.width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const float *cos = angles.cos + t * angles.pairs, *sin = angles.sin + t * angles.pairs;
        for (std::size_t h = 0; h < v.heads; ++h) {
          const std::size_t at = t * v.width + h * dim;
          if (in != out) std::copy_n(in + at, p.begin, out + at);
          element_.rope(in + at + p.begin, cos, sin, angles.pairs, dim - p.begin, p.layout,
                        out + at + p.begin);
        }
      }
    });
  }

  void scale_query(const Op& op) {
    const auto& p = std::get<PositionScale>(op.params);
    const std::size_t width = info(op.outputs[0]).width;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for_rows(input().size(), width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const auto factor = static_cast<float>(position_factor(p, input().positions[t]));
        element_.scale(in + t * width, factor, width, out + t * width);
      }
    });
  }

  // Each token's choice by itself, in double: some hundred experts at most.
  void route(const Prepared& prepared) {
    const Op& op = *prepared.op;
    const RouterSpec& router = std::get<RouteParams>(op.params).router;
    const std::size_t experts = info(op.inputs[0]).width, chosen = info(op.outputs[0]).width;
    const float* logits = value(op.inputs[0]);
    const float* ids = op.inputs.size() > 1 ? value(op.inputs[1]) : nullptr;
    float* out = value(op.outputs[0]);
    const std::size_t count = rows(info(op.outputs[0]));
    // A score is worth some 16 plain values: an exponential, and a look at it for each choice.
    for_rows(count, 16 * experts, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const std::span<const float> own(logits + t * experts, experts);
        const std::span<float> to(out + t * chosen, chosen);
        if (ids == nullptr)
          choose_experts(router, own, prepared.biases[0], to);
        else
          weigh_experts(router, own, {ids + t * chosen, chosen}, prepared.biases[0], to);
      }
    });
  }

  void spread(const Op& op) {
    const std::size_t chosen = std::get<SpreadParams>(op.params).chosen, width = info(op.inputs[0]).width;
    const float *in = value(op.inputs[0]), *weights = value(op.inputs[1]);
    float* out = value(op.outputs[0]);
    for_rows(rows(info(op.outputs[0])) * chosen, width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        element_.scale(in + i / chosen * width, weights[i], width, out + i * width);
    });
  }

  void expert_matmul(Prepared& prepared) {
    const Op& op = *prepared.op;
    const auto& p = std::get<ExpertParams>(op.params);
    const std::size_t outputs = op.outputs.size();
    const bool own_rows = info(op.inputs[0]).width != prepared.products[0].cols;
    expert_rows_.sort({value(op.inputs[1]), rows(info(op.inputs[1])) * p.chosen}, p.experts);
    expert_work_.clear();
    for (std::size_t e = 0; e < p.experts; ++e) {
      const auto places = expert_rows_.of(e);
      if (places.empty()) continue;
      const auto products = std::span(prepared.products).subspan(e * outputs, outputs);
      for (std::size_t i = 0; i < outputs; ++i) products[i].out = value(op.outputs[i]);
      expert_work_.push_back({products, places});
    }
    matmul_->run_experts(value(op.inputs[0]), own_rows, p.chosen, expert_work_);
  }

  void expert_sum(const Op& op) {
    const auto& p = std::get<ExpertSumParams>(op.params);
    const Value& v = info(op.outputs[0]);
    const std::size_t width = v.width;
    const float* parts = value(op.inputs[0]);
    const float* weights = p.weighted ? value(op.inputs[1]) : nullptr;
    const float* added = p.adds ? value(op.inputs.back()) : nullptr;
    float* out = value(op.outputs[0]);
    for_rows(rows(v), width * p.chosen, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin * p.chosen; i < end * p.chosen; ++i) {
        const float weight = weights != nullptr ? weights[i] : 1;
        float* to = out + i / p.chosen * width;
        const bool first = i % p.chosen == 0;
        if (first && added == nullptr)
          element_.scale(parts + i * width, weight, width, to);
        else
          element_.add(first ? added + i / p.chosen * width : to, parts + i * width, weight, width, to);
      }
    });
  }

  Status attention(const Prepared& prepared) {
    const Op& op = *prepared.op;
    const auto& a = std::get<AttentionParams>(op.params);
    Attention::Call call{.params = &a,
                         .layer = a.cache_of(op.layer),
                         .q = value(op.inputs[0]),
                         .k = op.inputs.size() > 1 ? value(op.inputs[1]) : nullptr,
                         .v = op.inputs.size() > 2 ? value(op.inputs[2]) : nullptr,
                         .sinks = prepared.biases[0].empty() ? nullptr : prepared.biases[0].data(),
                         .out = value(op.outputs[0])};
    DOPPLER_TRY(look(op, Fault::Moment::kAppend));
    if (call.k != nullptr) attention_->append(call, input(), cache_);
    DOPPLER_TRY(look(op, Fault::Moment::kAttend));
    DOPPLER_ASSIGN(const std::span<float> scores, scores_for(op));
    call.emitted = scores.empty() ? nullptr : scores.data();
    call.longest = longest();
    attention_->attend(call, input(), cache_);
    report_scores(op, scores);
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
          const auto scale = static_cast<float>(std::get<AddParams>(op.params).scale);
          element_.add(a + at, b + at, scale, width, out + at);
        } else {
          gate_row(std::get<GatedParams>(op.params), a + r * info(op.inputs[0]).width,
                   b != nullptr ? b + at : nullptr, info(op.inputs[0]).width, width, out + at);
        }
      }
    });
  }

  // One row; `b` is null for an activation alone, and the gate one value for the row or as wide as it.
  void gate_row(const GatedParams& p, const float* a, const float* b, std::size_t gates, std::size_t width,
                float* out) const {
    if (p.activation == Activation::kXielu) {
      element_.xielu(p.xielu, a, width, out);
    } else if (gates != width) {
      float factor;
      element_.gated(p.activation, a, nullptr, 1, &factor);
      element_.scale(b, factor, width, out);
    } else if (p.is_plain()) {
      element_.gated(p.activation, a, b, width, out);
    } else {
      const float limit = p.clamp > 0 ? static_cast<float>(p.clamp) : std::numeric_limits<float>::infinity();
      element_.clamped(a, b, limit, static_cast<float>(p.alpha), static_cast<float>(p.up_offset), width, out);
    }
  }

  void recurrent(const Prepared& prepared) {
    const Op& op = *prepared.op;
    RecurrentCall call{.op = op,
                       .weights = prepared.recurrent,
                       .inputs = {},
                       .out = value(op.outputs[0]),
                       .in_width = info(op.inputs[0]).width,
                       .out_width = info(op.outputs[0]).width};
    for (const ValueId id : op.inputs) call.inputs.push_back(value(id));
    run_recurrent(kernels_, pool_, call, input(), cache_);
  }

  void select(const Op& op) {
    const std::size_t width = info(op.outputs[0]).width;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for (std::size_t i = 0; i < wanted().size(); ++i)
      std::copy_n(in + wanted()[i] * width, width, out + i * width);
  }

  void softcap(const Op& op) {
    const auto& p = std::get<SoftcapParams>(op.params);
    const auto cap = static_cast<float>(p.cap), scale = static_cast<float>(p.scale);
    const Value& v = info(op.outputs[0]);
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    if (!(cap > 0) && scale == 1) {
      if (in != out) std::copy_n(in, rows(v) * v.width, out);
      return;
    }
    // Blocks of a row at places that are multiples of a vector: vocabularies are too wide for one thread.
    for (std::size_t r = 0; r < rows(v); ++r) {
      pool_.parallel_for(v.width, kElementGrain, [&](std::size_t begin, std::size_t end) {
        const float* from = in + r * v.width + begin;
        float* to = out + r * v.width + begin;
        if (scale != 1) {
          element_.scale(from, scale, end - begin, to);
          from = to;
        }
        if (cap > 0 && !p.hard) element_.softcap(from, cap, end - begin, to);
        for (std::size_t i = 0; p.hard && i < end - begin; ++i)  // a NaN stays one
          to[i] = from[i] > cap ? cap : from[i] < -cap ? -cap : from[i];
      });
    }
  }

  void scale(const Prepared& prepared) {
    const Value& v = info(prepared.op->outputs[0]);
    const std::vector<float>& factors = prepared.norm;
    const float* in = value(prepared.op->inputs[0]);
    float* out = value(prepared.op->outputs[0]);
    for_rows(rows(v), v.width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        const float* from = in + r * v.width;
        float* to = out + r * v.width;
        if (factors.size() == 1) {
          element_.scale(from, factors[0], v.width, to);
        } else {
          for (std::size_t i = 0; i < v.width; ++i) to[i] = from[i] * factors[i];
        }
      }
    });
  }

  void join(const Op& op) {
    const std::size_t parts = std::get<JoinParams>(op.params).parts, b_width = info(op.inputs[1]).width;
    const std::size_t of_a = info(op.inputs[0]).width / parts;
    const std::size_t both = info(op.outputs[0]).width / parts, of_b = both - of_a;
    const float *a = value(op.inputs[0]), *b = value(op.inputs[1]);
    float* out = value(op.outputs[0]);
    for_rows(rows(info(op.outputs[0])) * parts, both, [&](std::size_t begin, std::size_t end) {
      for (std::size_t part = begin; part < end; ++part) {
        const std::size_t own = b_width == of_b ? 0 : part % parts;
        std::copy_n(a + part * of_a, of_a, out + part * both);
        std::copy_n(b + part / parts * b_width + own * of_b, of_b, out + part * both + of_a);
      }
    });
  }

  // Head by head, since a head's values lie between those of others: taken out, multiplied, put back.
  void head_matmul(Prepared& prepared) {
    const Op& op = *prepared.op;
    const std::size_t tokens = rows(info(op.outputs[0])), heads = prepared.products.size();
    const std::size_t takes = prepared.products[0].cols, gives = prepared.products[0].rows;
    const std::size_t in_width = info(op.inputs[0]).width, out_width = info(op.outputs[0]).width;
    const bool shared = in_width == takes;
    const std::size_t from_dim = shared ? takes : in_width / heads, to_dim = out_width / heads;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for (std::size_t h = 0; h < heads; ++h) {
      const float* x = in;
      if (!shared) {
        for (std::size_t t = 0; t < tokens; ++t)
          std::copy_n(in + t * in_width + h * from_dim, takes, head_in_.data() + t * takes);
        x = head_in_.data();
      }
      prepared.products[h].out = head_out_.data();
      matmul_->run(x, tokens, std::span(&prepared.products[h], 1));
      for (std::size_t t = 0; t < tokens; ++t) {
        float* to = out + t * out_width + h * to_dim;
        std::copy_n(head_out_.data() + t * gives, gives, to);
        std::copy_n(in + t * in_width + h * from_dim + takes, from_dim - takes, to + gives);
      }
    }
  }

  void mix(const Op& op) {
    const auto& p = std::get<MixParams>(op.params);
    const std::size_t width = info(op.inputs[0]).width, each = width / p.streams;
    const std::size_t x_width = info(op.inputs[1]).width, parts = x_width / each;
    const float *in = value(op.inputs[0]), *x = value(op.inputs[1]);
    const float* c = op.inputs.size() > 2 ? value(op.inputs[2]) : nullptr;
    float* out = value(op.outputs[0]);
    for_rows(rows(info(op.outputs[0])), width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        for (std::size_t j = 0; j < p.streams; ++j) {
          float* to = out + t * width + j * each;
          std::copy_n(in + t * width + j * each, each, to);
          for (std::size_t i = 0; i < parts && j >= p.first; ++i) {
            const float own = c == nullptr ? 0 : c[(t * p.streams + j) * parts + i];
            element_.add(to, x + t * x_width + i * each, static_cast<float>(p.offset + own), each, to);
          }
        }
      }
    });
  }

  static double mean_square(const float* x, std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * x[i];
    return sum / static_cast<double>(count);
  }

  void match_rms(const Op& op) {
    const Value& v = info(op.outputs[0]);
    const std::size_t dim = v.width / v.heads, like_width = info(op.inputs[1]).width;
    const double least = std::get<MatchRmsParams>(op.params).least;
    const float *in = value(op.inputs[0]), *like = value(op.inputs[1]);
    float* out = value(op.outputs[0]);
    for_rows(rows(v), v.width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; ++t) {
        const double target = mean_square(like + t * like_width, like_width);
        for (std::size_t h = 0; h < v.heads; ++h) {
          const std::size_t at = t * v.width + h * dim;
          const double own = std::max(mean_square(in + at, dim), least);
          element_.scale(in + at, static_cast<float>(std::sqrt(target / own)), dim, out + at);
        }
      }
    });
  }

  void cutoff(const Op& op) {
    const std::size_t width = info(op.outputs[0]).width;
    const double deviations = std::get<CutoffParams>(op.params).deviations;
    const float* in = value(op.inputs[0]);
    float* out = value(op.outputs[0]);
    for_rows(rows(info(op.outputs[0])), width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; ++r) {
        const float* from = in + r * width;
        double sum = 0, squares = 0;
        for (std::size_t i = 0; i < width; ++i) sum += from[i];
        const double mean = sum / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i) squares += (from[i] - mean) * (from[i] - mean);
        const auto least =
            static_cast<float>(mean + deviations * std::sqrt(squares / static_cast<double>(width)));
        for (std::size_t i = 0; i < width; ++i) out[r * width + i] = std::max(from[i] - least, 0.0f);
      }
    });
  }

  const Kernels& kernels_;
  const ElementKernels& element_;
  ThreadPool pool_;
  std::optional<ThreadChoice> token_threads_;  // for steps of one token
  std::uint64_t weight_bytes_ = 0;             // that the products of a step read
  std::shared_ptr<const WeightMemory> weight_memory_;
  std::deque<TensorView> copies_;  // of weights that lie in a source, in weight_memory_
  BufferPlan buffers_;
  LazyFloats arena_, wanted_arena_;
  std::size_t wanted_rows_ = 0;  // that wanted_arena_ has room for
  LazyFloats emitted_ffn_;
  LazyFloats head_in_, head_out_;  // one head of every token, for kHeadMatmul
  std::uint64_t constants_ = 0;    // floats of decoded norm weights and biases
  std::optional<Matmul> matmul_;
  std::optional<Attention> attention_;
  std::optional<RopeAngles> angles_;
  ExpertRows expert_rows_;
  std::vector<ExpertWork> expert_work_;
  std::vector<Prepared> prepared_;
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
