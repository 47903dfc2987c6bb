// The kernels of single ops, for any number of tokens: where a program fuses nothing, its ops run as these. A
// kernel is described here and made by the program that runs it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/values.h"
#include "plan/fuse.h"

namespace doppler::gpu {

struct KernelCall {
  std::string_view file;
  ShaderValues values;
  std::vector<Bound> buffers;
  std::uint32_t x = 1;  // workgroups for each row
  std::uint32_t z = 1;
};

// Threads of the kernels that touch each value once.
inline constexpr std::uint32_t kElementThreads = 128;
// Those of batch_norm.wgsl: as a row is summed in one order whatever their number, one for each vector of
// four where the device allows it, so that a few rows wait for little; whole subgroups.
std::uint32_t norm_threads(const Device& device, std::uint32_t width);
std::uint32_t groups_for(std::uint64_t items);
// NAME_STRIDE, NAME_OFFSET.
void add_view(ShaderValues& values, const std::string& name, const ValueView& view);
// Whether rows of it can be loaded four values at a time.
bool has_vectors(const ValueView& view);

Result<KernelCall> norm_kernel(Context& context, const Op& op, const ValueView& x, const ValueView& out);
KernelCall rope_kernel(const Context& context, const Op& op, const ValueView& x, const ValueView& out);
// The two halves of an attention: the cache is written, then read. `v` is null where values are parts of
// keys; `scores` may be null.
KernelCall append_kernel(const Context& context, const Op& op, const ValueView& k, const ValueView* v);
Result<KernelCall> attention_kernel(Context& context, const Op& op, const ValueView& q, const ValueView& out,
                                    const Buffer* scores);
// kAdd, kGated, kSelect, kSoftcap and kScaleQuery; `b` is null where the op has one input.
KernelCall element_kernel(const Context& context, const Op& op, const ValueView& a, const ValueView* b,
                          const ValueView& out);
// The values of gate.wgsl.
void add_gated(const GatedParams& p, ShaderValues& values);
// kChoose (`weigh` and `weights` are null), kWeigh (`choose` is null), or both in one.
Result<KernelCall> route_kernel(Context& context, const Op* choose, const Op* weigh, const ValueView& logits,
                                const ValueView& ids, const ValueView* weights);
// The matrices of all experts of one of a kExpertMatmul's outputs, from row first_row on; outputs of one
// format lie under each other.
struct ExpertMatrix {
  const GpuMatrix* matrix = nullptr;
  std::uint32_t first_row = 0, rows = 0;  // `rows` of each expert
  Buffer bias;                            // of each expert in turn; empty: none
};
Result<ExpertMatrix> expert_matrix(Context& context, const Op& op, std::size_t output);
// kExpertMatmul: a kernel for each shard of each output's matrices.
Result<std::vector<KernelCall>> expert_kernels(Context& context, const Op& op, const ValueView& x,
                                               const ValueView& ids, std::span<const ValueView> outs);
// Whether the products of experts with their activation and sum have kernels together for a single token.
// Errors: kUnsupported, with the reason, where they have none; those of expert_matrix().
Status check_expert_group(Context& context, const OpGroup& group);
// kSpread: `a` is x, `b` the weights. kExpertSum: `a` is the parts, `b` the weights and `z` what is added,
// null where the op has none.
KernelCall parts_kernel(const Op& op, const ValueView& a, const ValueView* b, const ValueView* z,
                        const ValueView& out);
// The same, the views being found by `view_of`, ValueId to const ValueView*.
template <typename ViewOf>
KernelCall parts_call(const Op& op, const ViewOf& view_of) {
  const auto* sum = std::get_if<ExpertSumParams>(&op.params);
  const bool weighted = sum == nullptr || sum->weighted, adds = sum != nullptr && sum->adds;
  return parts_kernel(op, *view_of(op.inputs[0]), weighted ? view_of(op.inputs[1]) : nullptr,
                      adds ? view_of(op.inputs.back()) : nullptr, *view_of(op.outputs[0]));
}
// kScale, kJoin, kHeadMatmul, kMix, kMatchRms and kCutoff; `in` in the order of the op's inputs.
Result<KernelCall> column_kernel(Context& context, const Op& op, std::span<const ValueView* const> in,
                                 const ValueView& out);
KernelCall copy_kernel(const ValueView& from, const ValueView& to);
// Activations in 8 bits, `units` of 64 in a row, for products; `wide`: eight blocks share their scale.
KernelCall quantise_kernel(const ValueView& x, std::uint32_t units, const Buffer& x8, const Buffer& xs,
                           bool wide = false);
// Whether blocks of such a value, in rows of that width, can share scales.
bool can_be_wide(const ValueView& x, std::uint32_t width);

}  // namespace doppler::gpu
