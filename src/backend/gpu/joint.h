// Joints: kernels of a DecodeProgram that become one dispatch (shaders/joined.wgsl). It saves launches, and a
// product that waits for another has its weights on their way meanwhile.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "backend/gpu/decode_program.h"

namespace doppler::gpu {

// A pair, or a product by itself, and another one beside it; and the shapes of all, whose workgroups have as
// many threads.
struct Joint {
  std::size_t product;  // the number of its site, which is the pair's second
  std::optional<DecodeProgram::Pair> pair;
  std::optional<DecodeProgram::Beside> beside;
  GemvShape first, second, third;
};

// Whether neither of the two writes what the other one reads, but for what is handed over.
bool are_apart(const DecodeProgram& program, const DecodeProgram::Pair& pair);
bool are_apart(const DecodeProgram& program, const DecodeProgram::Beside& beside);

// Threads of a workgroup that has a product in that shape.
std::uint32_t threads_of(const GemvSite& site, const GemvShape& shape);

// Whether a thread of a product that waits has its next unit under way while it multiplies one: both have to
// fit into registers beside what the first product needs, so that a processor has room for workgroups of both
// (H100, us of output with gates and ups, joined, without and with it: Gemma Q4_0 9.8, 8.9, 8B Q4_K_M, 20
// words, 36.0, 34.6; Gemma Q5_0, 22 words, 9.7, 10.2; Llama BF16, 64 words, 30.9, 40.0).
bool loads_ahead(const GemvSite& site, const GemvShape& shape);

// Where a token's pairs hand over, each in a place of its own (those with one second in the same). Each
// clears what the one before it has left, so there must be several.
class Places {
 public:
  explicit Places(std::span<const Joint> joints);
  bool enough() const { return places_.size() > 1; }
  const Bound& before(const DecodeProgram::Pair& pair) const;

 private:
  std::map<std::size_t, Bound> places_;  // by the second's number, which grows along a token
};

KernelSource joined_source(const DecodeProgram& program, const Joint& joint, const Places& places);

// Errors: kUnsupported where the device cannot run or bind it.
Result<FixedDispatch> joined_dispatch(Context& context, const DecodeProgram& program, const Joint& joint,
                                      const Places& places);

}  // namespace doppler::gpu
