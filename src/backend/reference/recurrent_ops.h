// The ops that go along a sequence, in plain loops: a token after the one before it, in double, from and to a
// state in float32.
#pragma once

#include "backend/reference/ops.h"

namespace doppler::reference {

// Errors: kInternal for an op that keeps no state; those of decode_f32.
Status run_recurrent_op(const OpCall& call, Threads& threads);

}  // namespace doppler::reference
