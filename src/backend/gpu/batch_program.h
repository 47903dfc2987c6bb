// BatchProgram: the plan for any number of tokens of any sequences, an op after the other, each value in
// memory: prompts, several sequences in a step, and the yardstick of the fused program for single tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/values.h"

namespace doppler::gpu {

// A kernel and how many workgroups it takes: x always, y once per token, per wanted row, or 1.
struct Dispatch {
  enum class Per : std::uint8_t { kOnce, kToken, kWanted };
  BoundKernel kernel;
  std::uint32_t x = 1;
  Per per = Per::kToken;
};

class BatchProgram {
 public:
  // Room for `wanted_rows` rows of logits at a time.
  static Result<BatchProgram> create(Context& context, std::uint32_t wanted_rows);

  // Records ops [begin, end) for so many tokens and wanted rows.
  void record(Recorder& recorder, std::size_t begin, std::size_t end, std::uint32_t tokens,
              std::uint32_t wanted) const;
  // The same op with its scores stored in `scores`: [token, head, longest].
  Result<Dispatch> attention_with_scores(Context& context, std::size_t op, const Buffer& scores) const;

  const ValueView& value(ValueId id) const { return values_[id]; }
  std::size_t first_wanted_op() const { return first_wanted_op_; }
  std::uint32_t wanted_rows() const { return wanted_rows_; }

 private:
  friend class BatchBuilder;
  ValueBuffers values_;
  std::vector<std::vector<Dispatch>> ops_;
  std::size_t first_wanted_op_ = 0;
  std::uint32_t wanted_rows_ = 0;
};

}  // namespace doppler::gpu
