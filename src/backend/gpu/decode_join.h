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

// A pair, and the shapes of its products in one dispatch, whose workgroups have as many threads.
struct ShapedPair {
  DecodeProgram::Pair pair;
  GemvShape first, second;
};

// Joins the pairs of the program that were faster so when they were measured (Context::tuned, by the pair's
// key); `measures`: those that are not known yet are measured. Pairs of one second are all joined or none.
// Returns what was measured: of each pair the seconds of both apart, which is a row without a shape, then
// those of each choice of shapes. Errors: those of the device.
Result<std::vector<TuneRow>> join_products(Context& context, DecodeProgram& program, bool measures);

// Makes these pairs one dispatch each. Every such dispatch clears what the one before it has handed over, so
// all of them run in every token: of two pairs whose first ones take turns by position both are joined or
// none.
Status join_pairs(Context& context, DecodeProgram& program, std::span<const ShapedPair> pairs);

// Every pair that can be joined, measured or not, in some shapes.
std::vector<ShapedPair> pairs_to_join(const Context& context, const DecodeProgram& program);

// Takes what was measured of the program's pairs out of Context::tuned, and returns how much it was.
std::size_t forget_joined(Context& context, const DecodeProgram& program);

}  // namespace doppler::gpu
