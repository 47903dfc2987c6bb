#include "backend/gpu/kernel_report.h"

#include <algorithm>
#include <array>

#include "backend/gpu/timing.h"
#include "base/text.h"

namespace doppler::gpu {
namespace {

// Values of templates that somebody has chosen; the others follow from the model's shape.
constexpr auto kChoices = std::to_array<std::string_view>(
    {"R", "LANES", "UNITS", "THREADS", "ACT", "PRO", "EPI", "TILE_M", "TILE_N", "KV_HALF"});

std::string_view file_of(std::string_view label) {
  return label.substr(0, label.find(' '));
}

// The matrices of an op as they lie on the device.
std::vector<const GpuMatrix*> matrices_of(const Context& context, const Op& op) {
  std::vector<const GpuMatrix*> found;
  for (std::size_t begin = 0; begin < op.weights.size(); ++begin) {
    for (std::size_t end = op.weights.size(); end > begin; --end) {
      const auto at = context.matrices.find({op.weights.begin() + static_cast<std::ptrdiff_t>(begin),
                                             op.weights.begin() + static_cast<std::ptrdiff_t>(end)});
      if (at == context.matrices.end()) continue;
      found.push_back(&at->second);
      begin = end - 1;
      break;
    }
  }
  return found;
}

std::string why_matmul(const Context& context, const Op& op) {
  std::vector<std::string> types;
  for (const WeightId id : op.weights) {
    std::string name(dtype_name(context.weights[id].dtype));
    if (std::ranges::find(types, name) == types.end()) types.push_back(std::move(name));
  }
  bool eight_bits = false, quantised = false;
  for (const GpuMatrix* matrix : matrices_of(context, op)) {
    eight_bits = eight_bits || context.eight_bits(*matrix);
    quantised = quantised || matrix->format.quantised();
  }
  const std::string_view activations = eight_bits  ? "quantised, so activations are rounded to 8 bits"
                                       : quantised ? "quantised, but --exact keeps activations as floats"
                                                   : "floats, so activations are too";
  return fmt::format("weights are {}: {}", join(types, ", "), activations);
}

std::string why_attention(const Context& context, const Op& op) {
  const auto& a = std::get<AttentionParams>(op.params);
  return fmt::format(
      "keys and values are {}, {} of them to a head; {}",
      kv_type_name(context.options.kv_type.value_or(KvType::kF32)), a.head_dim,
      a.window == 0 ? "every position is seen" : fmt::format("a window of {} positions is seen", a.window));
}

std::string why(const Context& context, const Op& op) {
  switch (op.kind) {
    case OpKind::kMatmul:
      return why_matmul(context, op);
    case OpKind::kAttention:
      return why_attention(context, op);
    case OpKind::kEmbed:
      return fmt::format("rows of {}", dtype_name(context.weights[op.weights[0]].dtype));
    case OpKind::kRmsNorm:
      return context.device->features().subgroups
                 ? fmt::format("sums by subgroups of {}", context.device->features().subgroup_size)
                 : "sums in workgroup memory: the adapter has no usable subgroups";
    default:
      return "the only one";
  }
}

// Weights and cache that a kernel of the op reads for one token at the end of a sequence.
std::uint64_t bytes_of(const Context& context, const Op& op, std::string_view file, std::uint64_t length) {
  const bool attends = op.kind == OpKind::kAttention && file.starts_with("attention");
  const bool multiplies = op.kind == OpKind::kMatmul && file.starts_with("gem");
  std::uint64_t bytes = 0;
  if (multiplies) {
    for (const GpuMatrix* matrix : matrices_of(context, op)) bytes += matrix->bytes;
  } else if (op.kind == OpKind::kEmbed) {
    for (const GpuMatrix* matrix : matrices_of(context, op)) bytes += matrix->bytes / matrix->rows;
  } else if (attends) {
    const auto& a = std::get<AttentionParams>(op.params);
    const std::uint64_t seen = a.window == 0 ? length : std::min<std::uint64_t>(a.window, length);
    const KvType type = context.options.kv_type.value_or(KvType::kF32);
    bytes = 2 * seen * a.kv_heads * kv_row_bytes(type, a.head_dim);
  }
  return bytes;
}

// The kernels of one file that all layers' ops of one title run.
struct Group {
  std::string what;
  std::string_view file;
  std::vector<const Dispatch*> dispatches;
  std::uint64_t bytes = 0;
};

Group& group_of(std::vector<Group>& groups, const std::string& what, std::string_view file) {
  for (Group& group : groups) {
    if (group.what == what && group.file == file) return group;
  }
  return groups.emplace_back(what, file);
}

std::vector<Group> group_kernels(const Context& context, const BatchProgram& program, std::uint64_t length) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < context.plan.ops.size(); ++i) {
    const Op& op = context.plan.ops[i];
    const std::string what = op_title(context.plan, op);
    std::string_view counted;
    for (const Dispatch& dispatch : program.dispatches(i)) {
      const std::string_view file = file_of(dispatch.kernel.kernel().label());
      Group& group = group_of(groups, what, file);
      group.dispatches.push_back(&dispatch);
      // Several dispatches of one op are parts of it.
      if (counted != file) group.bytes += bytes_of(context, op, file, length);
      counted = file;
    }
  }
  return groups;
}

}  // namespace

std::string variant_of(std::string_view label) {
  std::string variant(file_of(label));
  for (std::size_t at = variant.size(); at < label.size();) {
    const std::size_t end = std::min(label.find(' ', at + 1), label.size());
    const std::string_view value = label.substr(at + 1, end - at - 1);
    if (std::ranges::find(kChoices, value.substr(0, value.find('='))) != kChoices.end())
      variant += fmt::format(" {}", value);
    at = end;
  }
  return variant;
}

std::vector<VariantRow> describe_batch(const Context& context, const BatchProgram& program) {
  std::vector<VariantRow> rows;
  for (std::size_t i = 0; i < context.plan.ops.size(); ++i) {
    const Op& op = context.plan.ops[i];
    for (const Dispatch& dispatch : program.dispatches(i)) {
      VariantRow row{.what = op_title(context.plan, op),
                     .variant = variant_of(dispatch.kernel.kernel().label()),
                     .why = why(context, op)};
      const bool known = std::ranges::any_of(rows, [&](const VariantRow& r) {
        return r.what == row.what && r.variant == row.variant && r.why == row.why;
      });
      if (!known) rows.push_back(std::move(row));
    }
  }
  return rows;
}

Result<std::vector<KernelTime>> time_batch(Context& context, const BatchProgram& program,
                                           std::uint64_t length) {
  std::vector<KernelTime> times;
  for (const Group& group : group_kernels(context, program, length)) {
    // One token and one wanted row: a workgroup row each.
    DOPPLER_ASSIGN(const double seconds,
                   time_on_device(*context.device, group.dispatches.size(), [&](Recorder& recorder) {
                     for (const Dispatch* d : group.dispatches) recorder.dispatch(d->kernel, {d->x, 1, 1});
                   }));
    times.push_back({.what = group.what,
                     .kernel = std::string(group.file),
                     .calls = group.dispatches.size(),
                     .seconds = seconds,
                     .bytes = group.bytes});
  }
  return times;
}

}  // namespace doppler::gpu
