// A stable sort whose comparison may fail: it stops at the first error and never trusts the comparison to be
// an order (NaN is none). std::stable_sort promises nothing there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/result.h"

namespace doppler::chat::jinja {

// `less(a, b)` returns Result<bool>.
template <typename T, typename Less>
Status merge_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged(items.size());
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(begin + 2 * width, items.size());
      std::size_t left = begin, right = middle, out = begin;
      while (left < middle && right < end) {
        DOPPLER_ASSIGN(const bool right_first, less(items[right], items[left]));
        merged[out++] = right_first ? items[right++] : items[left++];
      }
      while (left < middle) merged[out++] = items[left++];
      while (right < end) merged[out++] = items[right++];
    }
    std::swap(items, merged);
  }
  return {};
}

}  // namespace doppler::chat::jinja
