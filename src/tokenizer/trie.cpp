#include "tokenizer/trie.h"

#include <algorithm>

namespace doppler::tokenizer {

Trie::Trie(std::vector<Key> keys) {
  std::erase_if(keys, [](const Key& key) { return key.text.empty(); });
  if (keys.empty()) return;
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return a.text != b.text ? a.text < b.text : a.value < b.value;
  });
  const auto same = [](const Key& a, const Key& b) { return a.text == b.text; };
  keys.erase(std::unique(keys.begin(), keys.end(), same), keys.end());

  // A node is the range of sorted keys that share its path; a level of the trie is a list of ranges.
  struct Range {
    std::uint32_t begin, end;
  };
  std::vector<Range> level = {{0, static_cast<std::uint32_t>(keys.size())}}, next;
  labels_.push_back(0);
  values_.push_back(-1);
  for (std::size_t depth = 0; !level.empty(); ++depth) {
    next.clear();
    for (const Range range : level) {
      first_child_.push_back(static_cast<std::uint32_t>(labels_.size()));
      std::uint32_t i = range.begin;
      if (i < range.end && keys[i].text.size() == depth) ++i;  // the key that ends at this node
      while (i < range.end) {
        const char label = keys[i].text[depth];
        std::uint32_t end = i + 1;
        while (end < range.end && keys[end].text[depth] == label) ++end;
        labels_.push_back(static_cast<unsigned char>(label));
        values_.push_back(keys[i].text.size() == depth + 1 ? keys[i].value : -1);
        next.push_back({i, end});
        i = end;
      }
    }
    level.swap(next);
  }
  first_child_.push_back(static_cast<std::uint32_t>(labels_.size()));
}

}  // namespace doppler::tokenizer
