// Where the values of a DecodeProgram lie. Nothing shares memory, so that taps find all that was stored after
// a token; the layers' values of one stage lie side by side in one buffer, so that one copy takes them all.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/values.h"

namespace doppler::gpu {

class DecodeValues {
 public:
  explicit DecodeValues(const Context& context);

  bool has(ValueId id) const { return views_[id].has_value(); }
  const ValueView& operator[](ValueId id) const { return *views_[id]; }
  // For a value that lies there already, or under another name.
  void set(ValueId id, ValueView view) { views_[id] = std::move(view); }

  // Room for values side by side, in a buffer that none of `read` lies in: a kernel must not write into a
  // buffer that it reads.
  Status place(std::span<const ValueId> ids, std::span<const ValueId> read);
  // Whether zeros follow the value, placed alone, up to the next unit of 64 values. So it is with
  // activations, whose products then read whole units.
  bool is_padded(ValueId id) const { return padded_[id]; }

  // The places of all values, to return to when a group's kernels cannot be made.
  using State = std::vector<std::optional<ValueView>>;
  const State& state() const { return views_; }
  void restore(State state) { views_ = std::move(state); }

 private:
  const Context& context_;
  State views_;                     // by ValueId
  std::vector<std::size_t> slice_;  // by ValueId: its op's number among those of the same stage
  std::vector<bool> padded_;
  std::map<Stage, std::size_t> slices_;
  // By stage, or else value; by floats; and how many buffers could not be taken, because they are read.
  using Key = std::tuple<Stage, ValueId, std::uint64_t, std::size_t>;
  std::map<Key, Buffer> buffers_;
};

}  // namespace doppler::gpu
