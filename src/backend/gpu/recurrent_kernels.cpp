#include "backend/gpu/recurrent_kernels.h"

#include <cmath>
#include <string>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Columns of a head's state that a workgroup of the delta rule takes, as many as a cache line has floats, and
// the threads that share a column's rows.
constexpr std::uint32_t kColumns = 32, kParts = 8;
// Rows of states that a workgroup of a scan takes, and the threads that share one.
constexpr std::uint32_t kScanRows = 8, kScanLanes = 32;

class Maker {
 public:
  Maker(Context& context, const Op& op, const PlaceOf& place, bool batch)
      : context_(context), op_(op), place_(place), batch_(batch) {}

  Result<RecurrentKernel> make() {
    switch (op_.kind) {
      case OpKind::kColumns:
        return columns();
      case OpKind::kTimeStep:
      case OpKind::kDecay:
        return time_step();
      case OpKind::kConvolution:
        return convolution();
      case OpKind::kDeltaRule:
        return delta_rule();
      case OpKind::kScan:
      case OpKind::kChannelScan:
        return scan();
      default:
        return fail(ErrorCode::kInternal, "The gpu backend does not run the op {}.", op_name(op_.kind));
    }
  }

 private:
  const KvBuffers& cache() const { return context_.kv[static_cast<std::size_t>(op_.layer)]; }
  std::uint32_t width() const { return context_.plan.values[op_.outputs[0]].width; }

  void bind_input(std::size_t input, const std::string& name, std::string_view binding) {
    add_view(values_, name, place_(op_.inputs[input]));
    buffers_.push_back(place_(op_.inputs[input]).bound(binding));
  }
  void bind_output() {
    add_view(values_, "OUT", place_(op_.outputs[0]));
    buffers_.push_back(place_(op_.outputs[0]).bound("out"));
  }
  Status bind_weight(std::string_view binding, std::size_t weight, VectorForm form) {
    DOPPLER_ASSIGN(Buffer buffer, context_.vector(op_.weights[weight], form));
    buffers_.push_back({binding, std::move(buffer)});
    return {};
  }

  void bind_sequence() {
    values_["BATCH"] = batch_ ? 1 : 0;
    if (batch_) values_["COUNT"] = StepLayout::kCount;
    values_["POSITIONS"] = context_.layout.positions();
    values_["SLOTS"] = context_.layout.slots();
    buffers_.push_back({"step", context_.step});
  }

  RecurrentKernel made(std::string_view file, std::uint32_t x) {
    const bool along = keeps_state(op_.kind);
    return {.call = {.file = file, .values = std::move(values_), .buffers = std::move(buffers_), .x = x},
            .z = along && batch_ ? context_.options.slots : 1,
            .each_token = !along};
  }

  Result<RecurrentKernel> columns() {
    std::int64_t count = 0, to = 0;
    const std::uint32_t in_width = context_.plan.values[op_.inputs[0]].width;
    for (const ColumnRange& range : std::get<ColumnsParams>(op_.params).ranges) {
      if (range.width == 0) continue;
      const auto name = [&](const char* what) { return what + std::to_string(count); };
      values_[name("TO_")] = to;
      values_[name("WIDTH_")] = range.width;
      values_[name("GROUP_")] = in_width / range.groups;
      values_[name("FIRST_")] = range.first;
      values_[name("SCALE_")] = float_bits(range.scale);
      to += std::int64_t{range.groups} * range.width;
      ++count;
    }
    values_["RANGES"] = count;
    values_["THREADS"] = kElementThreads;
    values_["WIDTH"] = width();
    bind_input(0, "X", "x");
    bind_output();
    return made("columns.wgsl", groups_for(width()));
  }

  Result<RecurrentKernel> time_step() {
    const bool decay = op_.kind == OpKind::kDecay;
    values_["THREADS"] = kElementThreads;
    values_["WIDTH"] = width();
    values_["DECAY"] = decay ? 1 : 0;
    if (!decay) {
      const auto& p = std::get<TimeStepParams>(op_.params);
      const bool limited = std::isfinite(p.high);
      values_["LOW_BITS"] = float_bits(p.low);
      values_["LIMITED"] = limited ? 1 : 0;
      if (limited) values_["HIGH_BITS"] = float_bits(p.high);
    }
    bind_input(0, "X", "x");
    DOPPLER_TRY(bind_weight("weight", 0, decay ? VectorForm::kRates : VectorForm::kPlain));
    bind_output();
    return made("time_step.wgsl", groups_for(width()));
  }

  Result<RecurrentKernel> convolution() {
    const auto& p = std::get<ConvolutionParams>(op_.params);
    values_["THREADS"] = kElementThreads;
    values_["CHANNELS"] = width();
    values_["KEPT"] = p.taps - 1;
    values_["SILU"] = p.activation == Activation::kSilu ? 1 : 0;
    bind_sequence();
    bind_input(0, "X", "x");
    DOPPLER_TRY(bind_weight("weight", 0, VectorForm::kByTap));
    const bool bias = !op_.biases.empty() && op_.biases[0] != kNoWeight;
    values_["BIAS"] = bias ? 1 : 0;
    if (bias) {
      DOPPLER_ASSIGN(Buffer buffer, context_.vector(op_.biases[0], VectorForm::kPlain));
      buffers_.push_back({"bias", std::move(buffer)});
    }
    buffers_.push_back({"state", cache().conv_state});
    bind_output();
    return made("convolution.wgsl", groups_for(width()));
  }

  Result<RecurrentKernel> delta_rule() {
    const auto& p = std::get<DeltaParams>(op_.params);
    values_["HEADS"] = p.heads;
    values_["SHARE"] = p.heads / p.key_heads;
    values_["KEY_DIM"] = p.key_dim;
    values_["VALUE_DIM"] = p.value_dim;
    values_["COLUMNS"] = kColumns;
    values_["PARTS"] = kParts;
    values_["EACH"] = ceil_div(p.key_dim, kParts);
    bind_sequence();
    bind_input(0, "Q", "q");
    bind_input(1, "K", "k");
    bind_input(2, "V", "v");
    bind_input(3, "BETA", "beta");
    bind_input(4, "DECAY", "decay");
    buffers_.push_back({"state", cache().state});
    bind_output();
    return made("delta_rule.wgsl", p.heads * ceil_div(p.value_dim, kColumns));
  }

  Result<RecurrentKernel> scan() {
    const auto& p = std::get<ScanParams>(op_.params);
    const bool channels = op_.kind == OpKind::kChannelScan;
    values_["INNER"] = width();
    values_["HEAD_DIM"] = p.head_dim;
    values_["SHARE"] = p.heads / p.groups;
    values_["STATES"] = p.states;
    values_["CHANNELS"] = channels ? 1 : 0;
    values_["ROWS"] = kScanRows;
    values_["LANES"] = kScanLanes;
    values_["EACH"] = ceil_div(p.states, kScanLanes);
    bind_sequence();
    bind_input(0, "X", "x");
    bind_input(1, "B", "b");
    bind_input(2, "C", "c");
    bind_input(3, "DT", "dt");
    if (channels) {
      DOPPLER_TRY(bind_weight("rates", 0, VectorForm::kRates));
    } else {
      bind_input(4, "DECAY", "decay");
    }
    DOPPLER_TRY(bind_weight("skip", op_.weights.size() - 1, VectorForm::kPlain));
    buffers_.push_back({"state", cache().state});
    bind_output();
    return made("scan.wgsl", ceil_div(width(), kScanRows));
  }

  Context& context_;
  const Op& op_;
  const PlaceOf& place_;
  const bool batch_;
  ShaderValues values_;
  std::vector<Bound> buffers_;
};

}  // namespace

bool is_recurrent_kernel(OpKind kind) {
  return kind == OpKind::kColumns || kind == OpKind::kTimeStep || kind == OpKind::kDecay || keeps_state(kind);
}

Result<RecurrentKernel> recurrent_kernel(Context& context, const Op& op, const PlaceOf& place, bool batch) {
  return Maker(context, op, place, batch).make();
}

}  // namespace doppler::gpu
