#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace doppler {

std::string StopStrings::feed(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    found_ = true;
    std::string out = held_.substr(0, end);
    held_.clear();
    return out;
  }
  // The longest suffix of the text that is a prefix of a stop string is held back.
  std::size_t hold = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > hold; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) hold = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - hold);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::flush() {
  return std::exchange(held_, {});
}

}  // namespace doppler
