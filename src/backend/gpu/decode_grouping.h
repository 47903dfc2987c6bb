// Whether single tokens run groups of ops as one kernel each, or op by op: on most GPUs groups win by far,
// but where subgroups have fewer than eight threads their kernels wait at many barriers, so it is measured.
#pragma once

#include "backend/gpu/decode_program.h"

namespace doppler::gpu {

// The program without groups, whatever Context::one_by_one says. Errors: as DecodeProgram::create().
Result<DecodeProgram> ungrouped(Context& context);

// Keeps the faster of the program and one without groups, at a position of some hundred tokens, and remembers
// in Context::tuned which it was; a choice that was remembered is not measured again. Where ops run one by
// one, Context::one_by_one says why, so that programs made later do the same. Nothing is done where subgroups
// have eight threads. The cache of slot 0 is overwritten.
Status choose_grouping(Context& context, DecodeProgram& program);

}  // namespace doppler::gpu
