// Which kernels the cpu backend runs for each kind of op, and why: a table for people.
#pragma once

#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace doppler::cpu {

// In the plan's order; ops of several layers that run alike are one row.
std::vector<VariantRow> describe_ops(const Kernels& kernels, const Plan& plan, const Weights& weights,
                                     const BackendOptions& options);

}  // namespace doppler::cpu
