#include "backend/cpu/larger_than_memory.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace doppler::cpu {

WeightBytes weight_bytes(const Plan& plan, const Weights& weights) {
  WeightBytes bytes;
  std::set<TensorPlace> seen;  // a tied head is the embedding
  for (const Op& op : plan.ops) {
    const auto* experts = std::get_if<ExpertParams>(&op.params);
    const std::uint32_t count = experts != nullptr ? experts->experts : 1;
    for (const WeightId first : op.weights) {
      for (std::uint32_t e = 0; e < count; ++e) {
        const TensorView& weight = weights[first + e];
        if (seen.insert(weight.place()).second) bytes.all += weight.bytes();
      }
      const TensorView& weight = weights[first];
      if (experts != nullptr)
        bytes.per_token += weight.bytes() * experts->chosen;
      else if (op.kind == OpKind::kEmbed)
        bytes.per_token += weight.bytes() / std::max<std::uint64_t>(weight.rows(), 1);
      else
        bytes.per_token += weight.bytes();
    }
  }
  return bytes;
}

std::optional<Fallback> larger_than_memory(const WeightBytes& bytes, bool quantised,
                                           std::uint64_t available) {
  if (bytes.all <= available) return std::nullopt;
  return Fallback{fmt::format("Weights are read from the pages of their file{}, which is slower.",
                              quantised ? ", and their rows become floats for every product" : ""),
                  fmt::format("They are {}, and the machine has {} of memory left; a token reads {} of them.",
                              human_bytes(bytes.all), human_bytes(available), human_bytes(bytes.per_token))};
}

}  // namespace doppler::cpu
