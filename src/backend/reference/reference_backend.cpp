#include "backend/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/kv_cache.h"

namespace doppler {
namespace {

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));  // sqrt(2 / pi)
    case Activation::kGeluErf:
      return 0.5 * x * (1 + std::erf(x * 0.7071067811865476));  // 1 / sqrt(2)
  }
  return x;
}

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend(Plan plan, const Weights& weights, BackendOptions options, KvCache cache)
      : plan_(std::move(plan)),
        weights_(weights),
        options_(std::move(options)),
        cache_(std::move(cache)),
        lengths_(options_.slots),
        values_(plan_.values.size()) {}

  std::string_view name() const override { return "reference"; }
  const Plan& plan() const override { return plan_; }
  const BackendOptions& options() const override { return options_; }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_[slot] = 0; }

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
    DOPPLER_TRY(check_step(input, plan_, options_, lengths_));
    input_ = &input;
    tap_ = tap;
    wanted_.clear();
    for (std::size_t t = 0; t < input.size(); ++t) {
      if (input.wants_logits[t]) wanted_.push_back(t);
    }
    for (const Op& op : plan_.ops) {
      DOPPLER_TRY(execute(op));
      for (const ValueId id : op.outputs) report(id);
    }
    for (const std::int32_t slot : input.slots) ++lengths_[static_cast<std::size_t>(slot)];
    return std::span<const float>(values_[plan_.logits]);
  }

 private:
  const Value& info(ValueId id) const { return plan_.values[id]; }
  std::size_t rows(ValueId id) const { return info(id).rows == Rows::kAll ? input_->size() : wanted_.size(); }
  std::vector<float>& fresh(ValueId id) {
    values_[id].assign(rows(id) * info(id).width, 0.0f);
    return values_[id];
  }

  void report(ValueId id) {
    const Value& v = info(id);
    if (tap_ == nullptr || v.stage == Stage::kNone) return;
    const auto send = [&](Stage stage, int layer) {
      if (!tap_->wants(stage, layer)) return;
      tap_->on_stage({stage, layer, values_[id], rows(id), v.width, v.heads, input_});
    };
    send(v.stage, v.layer);
    // The residual stream that enters a layer is what the embedding or the layer before has left.
    const bool feeds_layer = v.stage == Stage::kEmbedOut || v.stage == Stage::kLayerOut;
    if (feeds_layer && static_cast<std::size_t>(v.layer + 1) < plan_.kv_layers.size())
      send(Stage::kAttnInput, v.layer + 1);
  }

  // One row of a weight matrix as floats.
  Result<std::span<const float>> weight_row(const TensorView& weight, std::uint64_t row) {
    row_.resize(weight.cols());
    DOPPLER_TRY(decode_f32(weight, row * weight.cols(), row_));
    return std::span<const float>(row_);
  }

  Status execute(const Op& op) {
    switch (op.kind) {
      case OpKind::kEmbed:
        return embed(op);
      case OpKind::kRmsNorm:
        return rms_norm(op);
      case OpKind::kMatmul:
        return matmul(op);
      case OpKind::kRope:
        return rope(op);
      case OpKind::kAttention:
        return attention(op);
      case OpKind::kAdd:
        return each(op, [](double a, double b) { return a + b; });
      case OpKind::kGated: {
        const Activation activation = std::get<GatedParams>(op.params).activation;
        return each(op, [activation](double gate, double up) { return activate(activation, gate) * up; });
      }
      case OpKind::kSelect:
        return select(op);
      case OpKind::kSoftcap:
        return softcap(op);
      case OpKind::kGatedMatmul:
      case OpKind::kCount:
        break;
    }
    return fail(ErrorCode::kInternal, "The reference backend does not run the fused op {}.",
                op_name(op.kind));
  }

  Status embed(const Op& op) {
    const TensorView& table = weights_[op.weights[0]];
    const double scale = std::get<EmbedParams>(op.params).scale;
    auto& out = fresh(op.outputs[0]);
    const std::size_t width = info(op.outputs[0]).width;
    for (std::size_t t = 0; t < input_->size(); ++t) {
      DOPPLER_ASSIGN(const auto row, weight_row(table, static_cast<std::uint64_t>(input_->ids[t])));
      for (std::size_t i = 0; i < width; ++i) out[t * width + i] = static_cast<float>(row[i] * scale);
    }
    return {};
  }

  Status rms_norm(const Op& op) {
    const auto& p = std::get<NormParams>(op.params);
    const auto& in = values_[op.inputs[0]];
    auto& out = fresh(op.outputs[0]);
    const std::size_t dim = info(op.outputs[0]).width / info(op.outputs[0]).heads;
    DOPPLER_ASSIGN(const auto weight, weight_row(weights_[op.weights[0]], 0));
    for (std::size_t begin = 0; begin < in.size(); begin += dim) {
      double sum = 0;
      for (std::size_t i = 0; i < dim; ++i) sum += static_cast<double>(in[begin + i]) * in[begin + i];
      const double inverse = 1 / std::sqrt(sum / static_cast<double>(dim) + p.eps);
      for (std::size_t i = 0; i < dim; ++i) {
        out[begin + i] = static_cast<float>(in[begin + i] * inverse * (weight[i] + p.weight_offset));
      }
    }
    return {};
  }

  Status matmul(const Op& op) {
    const auto& in = values_[op.inputs[0]];
    const std::size_t cols = info(op.inputs[0]).width;
    for (std::size_t i = 0; i < op.outputs.size(); ++i) {
      auto& out = fresh(op.outputs[i]);
      const std::size_t width = info(op.outputs[i]).width, tokens = rows(op.outputs[i]);
      if (tokens == 0) continue;
      std::vector<float> bias(width, 0.0f);
      if (!op.biases.empty() && op.biases[i] != kNoWeight)
        DOPPLER_TRY(decode_f32(weights_[op.biases[i]], 0, bias));
      for (std::size_t r = 0; r < width; ++r) {
        DOPPLER_ASSIGN(const auto row, weight_row(weights_[op.weights[i]], r));
        for (std::size_t t = 0; t < tokens; ++t) {
          double sum = bias[r];
          for (std::size_t c = 0; c < cols; ++c) sum += static_cast<double>(row[c]) * in[t * cols + c];
          out[t * width + r] = static_cast<float>(sum);
        }
      }
    }
    return {};
  }

  Status rope(const Op& op) {
    const auto& p = std::get<RopeParams>(op.params);
    const RopeTable& table = plan_.rope_tables[p.table];
    const auto& in = values_[op.inputs[0]];
    auto& out = fresh(op.outputs[0]);
    out = in;  // dims beyond the rotary ones pass through
    const Value& v = info(op.outputs[0]);
    const std::size_t dim = v.width / v.heads, pairs = table.inverse_frequency.size();
    for (std::size_t t = 0; t < input_->size(); ++t) {
      for (std::size_t i = 0; i < pairs; ++i) {
        const double angle = input_->positions[t] * table.inverse_frequency[i];
        const double cos = std::cos(angle) * table.magnitude, sin = std::sin(angle) * table.magnitude;
        const std::size_t first = p.layout == RopeLayout::kHalf ? i : 2 * i;
        const std::size_t second = p.layout == RopeLayout::kHalf ? i + pairs : 2 * i + 1;
        for (std::size_t h = 0; h < v.heads; ++h) {
          const std::size_t at = t * v.width + h * dim;
          const double x = in[at + first], y = in[at + second];
          out[at + first] = static_cast<float>(x * cos - y * sin);
          out[at + second] = static_cast<float>(y * cos + x * sin);
        }
      }
    }
    return {};
  }

  // The cache is float32 here whatever the options say: this backend is what others are compared with.
  static float* floats(std::uint8_t* row) { return reinterpret_cast<float*>(row); }

  void append(const Op& op, const AttentionParams& a) {
    const auto layer = static_cast<std::size_t>(op.layer);
    for (std::size_t t = 0; t < input_->size(); ++t) {
      for (std::uint32_t h = 0; h < a.kv_heads; ++h) {
        const std::size_t from = (t * a.kv_heads + h) * a.head_dim;
        const auto slot = static_cast<std::uint32_t>(input_->slots[t]);
        const auto position = static_cast<std::uint64_t>(input_->positions[t]);
        std::copy_n(&values_[op.inputs[1]][from], a.head_dim, floats(cache_.key(layer, slot, h, position)));
        std::copy_n(&values_[op.inputs[2]][from], a.head_dim, floats(cache_.value(layer, slot, h, position)));
      }
    }
  }

  Status attention(const Op& op) {
    const auto& a = std::get<AttentionParams>(op.params);
    const auto layer = static_cast<std::size_t>(op.layer);
    append(op, a);
    const auto& q = values_[op.inputs[0]];
    auto& out = fresh(op.outputs[0]);
    const bool emit = tap_ != nullptr && tap_->wants(Stage::kAttnScores, op.layer);
    const std::size_t longest =
        1 + static_cast<std::size_t>(*std::max_element(input_->positions.begin(), input_->positions.end()));
    std::vector<float> emitted(emit ? input_->size() * a.heads * longest : 0,
                               -std::numeric_limits<float>::infinity());
    std::vector<double> scores(longest), sum(a.head_dim);
    for (std::size_t t = 0; t < input_->size(); ++t) {
      const auto slot = static_cast<std::uint32_t>(input_->slots[t]);
      const auto position = static_cast<std::uint64_t>(input_->positions[t]);
      const std::uint64_t first = a.window != 0 && position + 1 > a.window ? position + 1 - a.window : 0;
      for (std::uint32_t h = 0; h < a.heads; ++h) {
        const std::uint32_t kv_head = h / (a.heads / a.kv_heads);
        const std::size_t at = (t * a.heads + h) * a.head_dim;
        double largest = -std::numeric_limits<double>::infinity();
        for (std::uint64_t p = first; p <= position; ++p) {
          const float* key = floats(cache_.key(layer, slot, kv_head, p));
          double score = 0;
          for (std::size_t i = 0; i < a.head_dim; ++i) score += static_cast<double>(q[at + i]) * key[i];
          score *= a.scale;
          if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
          if (emit) emitted[(t * a.heads + h) * longest + p] = static_cast<float>(score);
          scores[p] = score;
          largest = std::max(largest, score);
        }
        double total = 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (std::uint64_t p = first; p <= position; ++p) {
          const double weight = std::exp(scores[p] - largest);
          total += weight;
          const float* value = floats(cache_.value(layer, slot, kv_head, p));
          for (std::size_t i = 0; i < a.head_dim; ++i) sum[i] += weight * value[i];
        }
        for (std::size_t i = 0; i < a.head_dim; ++i) out[at + i] = static_cast<float>(sum[i] / total);
      }
    }
    if (emit)
      tap_->on_stage(
          {Stage::kAttnScores, op.layer, emitted, input_->size(), a.heads * longest, a.heads, input_});
    return {};
  }

  template <typename Function>
  Status each(const Op& op, Function function) {
    const auto &a = values_[op.inputs[0]], &b = values_[op.inputs[1]];
    auto& out = fresh(op.outputs[0]);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(function(a[i], b[i]));
    return {};
  }

  Status select(const Op& op) {
    const auto& in = values_[op.inputs[0]];
    auto& out = fresh(op.outputs[0]);
    const std::size_t width = info(op.outputs[0]).width;
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      std::copy_n(&in[wanted_[i] * width], width, &out[i * width]);
    return {};
  }

  Status softcap(const Op& op) {
    const double cap = std::get<SoftcapParams>(op.params).cap;
    const auto& in = values_[op.inputs[0]];
    auto& out = fresh(op.outputs[0]);
    for (std::size_t i = 0; i < in.size(); ++i)
      out[i] = cap > 0 ? static_cast<float>(cap * std::tanh(in[i] / cap)) : in[i];
    return {};
  }

  Plan plan_;
  const Weights& weights_;
  BackendOptions options_;
  KvCache cache_;
  std::vector<std::uint64_t> lengths_;
  std::vector<std::vector<float>> values_;
  std::vector<float> row_;
  std::vector<std::size_t> wanted_;
  const StepInput* input_ = nullptr;
  Tap* tap_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_reference_backend(const ModelSpec& spec, const Weights& weights,
                                                        const BackendOptions& options) {
  DOPPLER_ASSIGN(Plan plan, build_plan(spec, weights, options.context));
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
  return std::make_unique<ReferenceBackend>(std::move(plan), weights, std::move(chosen), std::move(cache));
}

}  // namespace doppler
