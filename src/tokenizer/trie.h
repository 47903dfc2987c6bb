// Trie: the keys that are prefixes of a text, in one walk. Read-only and compact: 9 bytes a node.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace doppler::tokenizer {

class Trie {
 public:
  struct Key {
    std::string_view text;
    std::int32_t value = 0;  // not negative
  };

  Trie() = default;
  // Empty keys are left out; of equal keys the one with the lowest value counts.
  explicit Trie(std::vector<Key> keys);

  bool empty() const { return values_.empty(); }

  // Calls found(length, value) for each key that `text` starts with, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, Found&& found) const {
    if (empty()) return;
    std::uint32_t node = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (values_[node] >= 0) found(i + 1, values_[node]);
    }
  }

  struct Match {
    std::size_t length = 0;  // 0: none
    std::int32_t value = -1;
  };
  Match longest(std::string_view text) const {
    Match best;
    prefixes(text, [&](std::size_t length, std::int32_t value) { best = {length, value}; });
    return best;
  }

 private:
  // Nodes lie in breadth-first order, so the children of node n are [first_child_[n], first_child_[n + 1]),
  // with ascending labels; node 0 is the root and no node's child.
  std::uint32_t child(std::uint32_t node, unsigned char label) const {
    std::uint32_t low = first_child_[node], high = first_child_[node + 1];
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (labels_[middle] < label)
        low = middle + 1;
      else if (labels_[middle] > label)
        high = middle;
      else
        return middle;
    }
    return 0;
  }

  std::vector<unsigned char> labels_;
  std::vector<std::uint32_t> first_child_;
  std::vector<std::int32_t> values_;
};

}  // namespace doppler::tokenizer
