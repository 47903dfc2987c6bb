// Which rows are sent to which expert in a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace doppler::cpu {

// Rows are places: token x chosen + the place among the token's chosen experts.
class ExpertRows {
 public:
  // `ids` [tokens, chosen] are whole floats; those that no expert has are sent nowhere.
  void sort(std::span<const float> ids, std::uint32_t experts) {
    firsts_.assign(experts + 1, 0);
    places_.resize(ids.size());
    for (const float id : ids) {
      if (is_expert(id, experts)) ++firsts_[static_cast<std::size_t>(id) + 1];
    }
    for (std::size_t e = 0; e < experts; ++e) firsts_[e + 1] += firsts_[e];
    next_.assign(firsts_.begin(), firsts_.end() - 1);
    for (std::size_t place = 0; place < ids.size(); ++place) {
      if (is_expert(ids[place], experts))
        places_[next_[static_cast<std::size_t>(ids[place])]++] = static_cast<std::uint32_t>(place);
    }
  }
  std::span<const std::uint32_t> of(std::size_t expert) const {
    return std::span(places_).subspan(firsts_[expert], firsts_[expert + 1] - firsts_[expert]);
  }

 private:
  static bool is_expert(float id, std::uint32_t experts) {
    return id >= 0 && id < static_cast<float>(experts);
  }
  std::vector<std::uint32_t> places_;  // expert after expert, in each in the order of tokens
  std::vector<std::size_t> firsts_, next_;
};

}  // namespace doppler::cpu
