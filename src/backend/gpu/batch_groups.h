// The groups of ops that the batch program runs as one kernel: those of plan/fuse.h that the device can bind
// and that save something, with the values that they leave in memory.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/gpu/context.h"
#include "plan/fuse.h"

namespace doppler::gpu {

// All results of a group are in memory once its first op has run.
struct BatchGroup : OpGroup {
  // The value that the kernel leaves in 8-bit blocks, for products; whether anything reads it as floats too.
  std::optional<ValueId> blocks;
  bool floats = true;
  // Values that are in memory only when a tap asks for them.
  std::vector<ValueId> swallowed;
};

struct BatchGroups {
  std::vector<BatchGroup> groups;  // in order; together all ops
  std::vector<std::size_t> of_op;  // the group of each op
  // Each op's time for the allocation of values: the first op of its group.
  std::vector<std::size_t> times() const;
  const BatchGroup& of(std::size_t op) const { return groups[of_op[op]]; }
};

Result<BatchGroups> make_batch_groups(const Context& context);

// How a value is read: by products in 8 bits, by anything else.
struct ReadAs {
  bool blocks = false, floats = false;
};
ReadAs read_as(const Context& context, ValueId id);

}  // namespace doppler::gpu
