#include "chat/jinja/value.h"

#include <algorithm>

#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

// Scanning a handful of keys is faster than hashing one.
constexpr std::size_t kScannedEntries = 8;

int deepest(const Values& values) {
  int depth = 0;
  for (const Value& value : values) depth = std::max(depth, value.depth());
  return depth;
}

}  // namespace

StringObject::StringObject(Heap& owner, std::string s)
    : Object(owner, sizeof(StringObject) + s.size()),
      text(std::move(s)),
      characters(count_code_points(text)) {}

ListObject::ListObject(Heap& owner, Values values)
    : Object(owner, sizeof(ListObject) + values.size() * sizeof(Value)), items(std::move(values)) {
  depth = deepest(items) + 1;
}

DictObject::DictObject(Heap& owner, std::vector<Entry> list)
    : Object(owner, sizeof(DictObject) + list.size() * sizeof(Entry)), entries(std::move(list)) {
  for (const Entry& entry : entries)
    depth = std::max({depth, entry.first.depth() + 1, entry.second.depth() + 1});
  if (entries.size() <= kScannedEntries) return;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].first.is_string()) index_.emplace(entries[i].first.text(), i);
  }
}

const Value* DictObject::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries[found->second].second;
  }
  for (const Entry& entry : entries) {
    if (entry.first.is_string() && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

}  // namespace doppler::chat::jinja
