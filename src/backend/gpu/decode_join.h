// Two products of a DecodeProgram in one dispatch, the second waiting for what the first adds to the residual
// stream: shaders/joined.wgsl. It saves a launch, and the second's weights are on their way meanwhile.
#pragma once

#include <span>
#include <vector>

#include "backend/gpu/tune.h"

namespace doppler::gpu {

// Whether workgroups of lower numbers begin first on this adapter, and what is handed over may lie in memory
// as zero before.
bool can_join(const Device& device);

// Joins the pairs of the program that were faster so when they were measured (Context::tuned, by the pair's
// key); `measures`: those that are not known yet are measured. Pairs of one second are all joined or none.
// The second of a joined pair has at least 256 threads where it can, and the first takes a shape of as many.
// Returns what was measured: of each pair the seconds of both apart, which is a row without a shape, then
// those of each of the first's shapes. Errors: those of the device.
Result<std::vector<TuneRow>> join_products(Context& context, DecodeProgram& program, bool measures);

// Makes these pairs, whose first ones have shapes of as many threads as the second, one dispatch each. Every
// such dispatch clears what the one before it has handed over, so all of them run in every token: of two
// pairs whose first ones take turns by position both are joined or none.
Status join_pairs(Context& context, DecodeProgram& program, std::span<const DecodeProgram::Pair> pairs);

// Gives the first of every pair that can be joined, measured or not, such a shape, and returns these pairs.
Result<std::vector<DecodeProgram::Pair>> shape_for_joining(Context& context, DecodeProgram& program);

}  // namespace doppler::gpu
