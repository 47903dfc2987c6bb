// The ops that scale, join, mix or cut the columns of rows, and products by head, in plain loops.
#pragma once

#include "backend/reference/ops.h"

namespace doppler::reference {

// Errors: kInternal for an op of another kind; those of decode_f32.
Status run_column_op(const OpCall& call, Threads& threads);

}  // namespace doppler::reference
