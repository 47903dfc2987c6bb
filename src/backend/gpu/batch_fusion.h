// Which neighbouring ops of a plan the batch program runs as one kernel, decided once, by the plan alone.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/context.h"

namespace doppler::gpu {

// The names that BackendOptions::disabled_passes may give beside those of plan/fuse.h.
struct BatchPass {
  std::string_view name;
  std::string_view does;
};
inline constexpr std::string_view kPassGemm = "batch_gemm", kPassNorm = "batch_norm",
                                  kPassGated = "batch_gated", kPassRope = "batch_rope",
                                  kPassAttention = "batch_attention";
std::span<const BatchPass> all_batch_passes();
bool is_batch_pass(std::string_view name);
bool has_pass(const BackendOptions& options, std::string_view name);

// Ops [first, first + count) that run as one; what they compute is there when the first has run.
struct BatchGroup {
  enum class Kind : std::uint8_t {
    kSingle,  // an op by itself
    kNorm,    // [norm of the branch], [residual + branch], [norm], and 8-bit blocks of it
    kGated,   // activation(gate) * up, and 8-bit blocks of it
    kRope,    // [norms of q and k], the turns of both; and the cache, for the attention that follows
  };
  Kind kind = Kind::kSingle;
  std::size_t first = 0, count = 1;
  // kNorm: the parts, where they are there.
  std::optional<std::size_t> post, add, norm;
  // kRope
  std::optional<std::size_t> q_norm, k_norm;
  std::size_t q_rope = 0, k_rope = 0, attention = 0;
  // What the kernel leaves in 8-bit blocks, for products; and whether anything reads it as floats too.
  std::optional<ValueId> blocks;
  bool floats = true;
  // Values that exist in memory only when someone asks for them.
  std::vector<ValueId> swallowed;
};

struct BatchGroups {
  std::vector<BatchGroup> groups;  // in order; together all ops
  std::vector<std::size_t> of_op;  // the group of each op
  // Each op's time for the allocation of values: the first op of its group.
  std::vector<std::size_t> times() const;
  const BatchGroup& of(std::size_t op) const { return groups[of_op[op]]; }
};

BatchGroups group_ops(const Context& context);

// Who reads a value: products in 8 bits, products of floats, anything else.
struct Readers {
  bool blocks = false, floats = false;
};
Readers readers_of(const Context& context, ValueId id);

}  // namespace doppler::gpu
