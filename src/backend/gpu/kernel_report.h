// What the batch program runs for each kind of op, why, and how long that takes.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/batch_program.h"
#include "backend/gpu/context.h"

namespace doppler::gpu {

// "gemv.wgsl R=8 LANES=16 UNITS=1 ACT=1": of a kernel's label the values that are a choice, not a shape.
std::string variant_of(std::string_view label);

// One row for each kernel of each kind of op, in the plan's order; layers that run alike share one.
std::vector<VariantRow> describe_batch(const Context& context, const BatchProgram& program);

// The kernels of a step of one token whose sequence has `length` tokens. The layers' kernels of one kind run
// one after the other, so that each finds its weights where a real step does: not in the cache. Overwrites
// the values and the newest position of the cache.
Result<std::vector<KernelTime>> time_batch(Context& context, const BatchProgram& program,
                                           std::uint64_t length);

}  // namespace doppler::gpu
