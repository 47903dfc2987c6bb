// The patterns of the passes in fuse.h that group neighbouring ops: what the kernels compute, not what a
// device can bind. Each gives the longest group that begins with an op.
#pragma once

#include <optional>

#include "plan/fuse.h"

namespace doppler {

// [norm of a branch, which only the sum reads] [sum] [norm of it]: at least one of them. Rows are whole and
// multiples of four values, as they are loaded.
std::optional<OpGroup> match_sum(const Plan& plan, const Readers& readers, std::size_t first);
// activation(gate) * up, in rows of multiples of four values.
std::optional<OpGroup> match_gated(const Plan& plan, const Readers& readers, std::size_t first);
// [norms of q and k] turns of q and k, for the attention that follows, which is no part of the group.
std::optional<OpGroup> match_turns(const Plan& plan, const Readers& readers, std::size_t first);
// [norms of q and k] [turns of q and k] attention, [product of its result].
std::optional<OpGroup> match_attention(const Plan& plan, const Readers& readers, std::size_t first);
// The group of match_sum() with its norm, before which the wanted rows may be selected, then the products of
// the norm and, if it follows, their activation(gate) * up; or products with activation(gate) * up alone.
std::optional<OpGroup> match_product(const Plan& plan, const Readers& readers, std::size_t first);
// The same with the softcap that leaves the plan's logits, as its last op.
std::optional<OpGroup> match_head(const Plan& plan, const Readers& readers, std::size_t first);
// A choice of experts and what they count, from the same logits.
std::optional<OpGroup> match_route(const Plan& plan, const Readers& readers, std::size_t first);
// Products of experts with their gates and ups, activation(gate) * up, the downs of that, and their sum,
// which nothing comes between and nothing else reads.
std::optional<OpGroup> match_experts(const Plan& plan, const Readers& readers, std::size_t first);
// What a delta rule reads: an activation of its betas, time steps, their decays, a convolution, of which q, k
// and v are neighbouring columns, and the norms of q's and k's heads. Nothing else reads what the kernel does
// not store.
std::optional<OpGroup> match_delta(const Plan& plan, const Readers& readers, std::size_t first);
// Norm of each head, which only activation(gate) * norm reads.
std::optional<OpGroup> match_gated_norm(const Plan& plan, const Readers& readers, std::size_t first);

}  // namespace doppler
