// Fault: an error put into a backend's execution on purpose, to measure how well the diagnosis finds errors.
// Every backend asks it around each op which tokens the op sees, and whether to change the values that it has
// computed. The table of faults is diagnosis/faults/faults.h; nothing else makes any.
//
// A backend with a fault stores every stage as a value of its own (passes that would not are off) and
// continues no sequence by itself.
#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"

namespace doppler {

class Fault {
 public:
  // When an op looks at the step's tokens: attention does so twice, as it writes the cache and as it reads
  // it.
  enum class Moment { kOp, kAppend, kAttend };
  // A value that was just computed, and may be changed before anything reads it.
  struct Computed {
    const Plan& plan;
    ValueId value;
    const StepInput& step;  // as it was given
    std::span<float> data;  // [rows, width]
    std::size_t rows;
  };

  virtual ~Fault() = default;
  // The tokens as an op sees them: the step itself, or another of the same size, valid until the next call,
  // whose ids, slots and positions exist.
  virtual const StepInput& seen_by(const Op& /*op*/, Moment /*moment*/, const StepInput& step) {
    return step;
  }
  // Whether after() is called for this value.
  virtual bool wants(const Plan& /*plan*/, ValueId /*value*/) const { return false; }
  // True if it changed something.
  virtual bool after(const Computed& /*computed*/) { return false; }
};

// The step as the fault shows it to this op. Errors: kInternal for tokens that do not exist.
Result<const StepInput*> as_seen(Fault& fault, const Op& op, Fault::Moment moment, const StepInput& step,
                                 const Plan& plan, const BackendOptions& options);

}  // namespace doppler
