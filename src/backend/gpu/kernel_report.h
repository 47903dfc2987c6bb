// Which kernels the gpu backend's programs run, why, and how long those of a token take. All of it is read
// from the kernels' labels, so that a new kernel shows up by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/batch_program.h"
#include "backend/gpu/context.h"
#include "backend/gpu/decode_program.h"

namespace doppler::gpu {

// A kernel's label taken apart: "gemv.wgsl ACT=1 R=8".
struct KernelLabel {
  explicit KernelLabel(std::string_view label);
  std::string file;
  ShaderValues values;
  bool has(std::string_view name) const { return values.contains(name); }
  std::int64_t get(std::string_view name, std::int64_t otherwise = 0) const;

  // File and the values that somebody chose, without those that follow from the model's shape.
  std::string variant() const;
  std::string why(const Context& context) const;
  // Weights that one dispatch reads, as they lie on the device, and keys and values of `length` tokens.
  std::uint64_t bytes(std::uint64_t length) const;
};

// One row for each kernel of each kind of op, in the order in which they run: "decode: ..." for single
// tokens, "batch: ..." for prompts and several sequences. `decode` may be null; `why_not` then says why.
std::vector<VariantRow> describe_programs(const Context& context, const BatchProgram& batch,
                                          const DecodeProgram* decode, std::string_view why_not);

// The kernels of one token whose sequence has `length` tokens with it; the buffer `step` says which. The
// layers' kernels of one kind run one after the other, so that each finds its weights where a real step does:
// not in the cache. Overwrites the values, the newest position of the slot's cache, and `step`.
Result<std::vector<KernelTime>> time_programs(Context& context, const BatchProgram& batch,
                                              const DecodeProgram* decode, std::uint64_t length);

}  // namespace doppler::gpu
