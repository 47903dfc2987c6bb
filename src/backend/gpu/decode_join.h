// Which kernels of a DecodeProgram become one dispatch (joint.h): those that were measured to be faster so.
#pragma once

#include <span>
#include <vector>

#include "backend/gpu/joint.h"
#include "backend/gpu/tune.h"

namespace doppler::gpu {

// Whether workgroups of lower numbers begin first on this adapter, and what is handed over may lie in memory
// as zero before.
bool can_join(const Device& device);

// Joins the pairs of the program, and products beside one another, that were faster so when they were
// measured (Context::tuned, by the key of each); `measures`: those that are not known yet are measured. Pairs
// of one second are all joined or none. Returns what was measured: of each key the seconds of the kernels
// apart, which is a row without a shape, then those of each choice of shapes. Errors: those of the device.
Result<std::vector<TuneRow>> join_kernels(Context& context, DecodeProgram& program, bool measures);

// Makes these one dispatch each. Every such dispatch clears what the one before it has handed over, so all of
// them run in every token: of two pairs whose first ones take turns by position both are joined or none.
Status join(Context& context, DecodeProgram& program, std::span<const Joint> joints);

// Everything that can be joined, measured or not, in some shapes.
std::vector<Joint> all_joints(const Context& context, const DecodeProgram& program);

// Takes what was measured of the program's joints out of Context::tuned, and returns how much it was.
std::size_t forget_joined(Context& context, const DecodeProgram& program);

}  // namespace doppler::gpu
