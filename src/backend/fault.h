// Fault: something wrong in a backend's execution, put in on purpose, so that whoever looks for faults can be
// measured by what it finds. Every backend asks it around each op: as which tokens does the op see the step,
// and what becomes of the values it has computed. The table of faults is diagnosis/faults/faults.h; nothing
// else makes any.
//
// A backend with a fault computes every stage as a value of its own (passes that keep one to themselves stay
// off) and continues no sequence by itself.
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

// What the fault makes of the step for this op. Errors: kInternal for tokens that do not exist.
Result<const StepInput*> as_seen(Fault& fault, const Op& op, Fault::Moment moment, const StepInput& step,
                                 const Plan& plan, const BackendOptions& options);

}  // namespace doppler
