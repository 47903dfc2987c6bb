#include "cli/chat/paste.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.h"
#include "base/unicode.h"

namespace doppler::cli {
namespace {

// What still fits on a terminal of 24 lines beside what was said, and what an editor of lines redraws at
// once.
constexpr std::size_t kShownLines = 8, kShownBytes = 600;

}  // namespace

bool PasteCollector::take(char byte) {
  bytes_ += byte;
  if (bytes_.size() > kMostBytes + kPasteEnds.size()) {  // room for the mark stays
    bytes_.erase(kMostBytes, 1);
    cut_ = true;
  }
  if (!bytes_.ends_with(kPasteEnds)) return false;
  bytes_.resize(bytes_.size() - kPasteEnds.size());
  return true;
}

std::string PasteCollector::text() const {
  std::string text;
  text.reserve(bytes_.size());
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    const char byte = bytes_[i];
    const bool control = static_cast<unsigned char>(byte) < 0x20 || byte == 0x7f;
    if (byte == '\r') {  // terminals send it for a newline
      text += '\n';
      if (i + 1 < bytes_.size() && bytes_[i + 1] == '\n') ++i;
    } else if (!control || byte == '\n' || byte == '\t') {
      text += byte;
    }
  }
  return to_valid_utf8(std::move(text));
}

std::string PasteMarks::shown(std::string text, std::string_view what) {
  const auto newlines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  if (newlines < kShownLines && text.size() <= kShownBytes) return text;
  const std::size_t lines = newlines + (text.ends_with('\n') ? 0 : 1);
  std::string mark = fmt::format("[{} {}: {}, {}]", what, ++counts_[std::string(what)],
                                 counted(lines, "line"), human_bytes(text.size()));
  marks_.push_back({mark, std::move(text)});
  return mark;
}

std::string PasteMarks::expand(std::string_view line) const {
  std::string expanded;
  while (!line.empty()) {
    std::size_t at = line.size();
    const Mark* first = nullptr;
    for (const Mark& each : marks_) {
      const std::size_t found = line.find(each.mark);
      if (found < at) at = found, first = &each;
    }
    expanded += line.substr(0, at);
    line.remove_prefix(at);
    if (first == nullptr) continue;
    expanded += first->text;
    line.remove_prefix(first->mark.size());
  }
  return expanded;
}

}  // namespace doppler::cli
