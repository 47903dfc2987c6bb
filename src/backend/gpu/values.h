// Where a plan's values live on the device: each in a buffer that no other value uses while it is alive,
// because barriers are tracked per buffer. The outputs of one op lie side by side in one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"
#include "plan/plan.h"

namespace doppler::gpu {

// Row r of a value begins at float r * stride + offset of a part of a buffer, which is what kernels bind.
struct ValueView {
  Buffer buffer;
  std::uint32_t stride = 0, offset = 0, width = 0;
  std::uint64_t begin = 0, bytes = 0;  // the part; 0 bytes: to the buffer's end
  Bound bound(std::string_view name) const { return {name, buffer, begin, bytes}; }
};

// Whether an op computes nothing, a cap that no model has: its output lies where its input does.
bool keeps_its_input(const Op& op);

class ValueBuffers {
 public:
  // Room for `rows` tokens, and for `wanted_rows` of the values after the selection. Ops of one time
  // (`times`, by op, never falling; empty: each op has its own) run as one: what they write and read is all
  // there together.
  static Result<ValueBuffers> create(Device& device, const Plan& plan, std::uint32_t rows,
                                     std::uint32_t wanted_rows, std::span<const std::size_t> times = {});
  const ValueView& operator[](ValueId id) const { return views_[id]; }

 private:
  std::vector<ValueView> views_;  // by ValueId
};

}  // namespace doppler::gpu
