#include "backend/cpu/describe.h"

#include <algorithm>

#include "backend/cpu/panel/panel.h"
#include "quant/dtype.h"

namespace doppler::cpu {
namespace {

struct Form {
  std::string how, why;
};

Form form_of_matrix(const TensorView& weight, const BackendOptions& options) {
  const std::string type(dtype_name(weight.dtype));
  if (!is_quantised(weight.dtype)) return {type + " in place x floats", "the weights are floats"};
  if (options.exact) return {type + " decoded by rows x floats", "--exact keeps activations floats"};
  if (panel_format(weight.dtype) == nullptr)
    return {type + " decoded by rows x floats", "there is no panel layout for this type"};
  return {type + " in panels x 8-bit activations", "the weights are quantised"};
}

VariantRow describe_op(const Kernels& kernels, const Plan& plan, const Weights& weights,
                       const BackendOptions& options, const Op& op) {
  VariantRow row{.what = op_title(plan, op), .variant = {}, .why = {}};
  switch (op.kind) {
    case OpKind::kMatmul:
    case OpKind::kExpertMatmul:
    case OpKind::kGatedMatmul: {
      // The products of a group may have several types.
      for (const WeightId id : op.weights) {
        const Form form = form_of_matrix(weights[id], options);
        if (row.variant.find(form.how) != std::string::npos) continue;
        row.variant += (row.variant.empty() ? "" : " and ") + form.how;
        row.why += (row.why.empty() ? "" : "; ") + form.why;
      }
      row.variant += fmt::format(", {}", kernels.target);
      break;
    }
    case OpKind::kAttention: {
      const auto& params = std::get<AttentionParams>(op.params);
      row.variant = fmt::format(
          "cache in {}, {}, {}", kv_type_name(options.kv_type.value_or(KvType::kF32)),
          params.window == 0 ? "all positions" : fmt::format("window of {}", params.window), kernels.target);
      row.why = params.window == 0 ? "the layer attends to the whole sequence" : "the layer has a window";
      break;
    }
    case OpKind::kEmbed:
      row.variant = fmt::format("rows of {}", dtype_name(weights[op.weights[0]].dtype));
      break;
    default:
      row.variant = fmt::format("floats, {}", kernels.target);
  }
  if (row.why.empty())
    row.why = options.cpu_target.empty() ? "the best instruction set of this machine" : "--cpu-target";
  return row;
}

}  // namespace

std::vector<VariantRow> describe_ops(const Kernels& kernels, const Plan& plan, const Weights& weights,
                                     const BackendOptions& options) {
  std::vector<VariantRow> rows;
  for (const Op& op : plan.ops) {
    VariantRow row = describe_op(kernels, plan, weights, options, op);
    const bool known = std::any_of(rows.begin(), rows.end(), [&](const VariantRow& other) {
      return other.what == row.what && other.variant == row.variant;
    });
    if (!known) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace doppler::cpu
