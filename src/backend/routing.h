// Which experts a token is sent to and what each counts, from the router's logits: the arithmetic of the ops
// kChoose and kWeigh for one token, in double. Sources: Shazeer et al. 2017 (softmax, top-k), DeepSeek-AI
// 2024 (groups, correction), Liu et al. 2023 (SparseMixer).
#pragma once

#include <span>
#include <vector>

#include "model/spec.h"

namespace doppler {

// What experts are chosen by; -inf for those outside of the best groups.
std::vector<double> choice_scores(const RouterSpec& router, std::span<const float> logits,
                                  std::span<const float> correction);

// The ids of the router.top_k chosen experts, best first; of equals the first. `correction` is empty or has
// one value for each expert. Logits that are not numbers still choose experts that exist.
void choose_experts(const RouterSpec& router, std::span<const float> logits,
                    std::span<const float> correction, std::span<float> ids);

// Their weights. `scales` is empty or has one value for each expert. An id that no expert has counts as
// nothing.
void weigh_experts(const RouterSpec& router, std::span<const float> logits, std::span<const float> ids,
                   std::span<const float> scales, std::span<float> weights);

}  // namespace doppler
