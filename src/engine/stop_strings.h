// StopStrings: watches streamed text for the first of several strings and holds back text that may still
// become one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next text and returns the text that is now certain to belong to the answer. After found() it
  // returns nothing.
  std::string feed(std::string_view text);
  // The text held back, when the answer ends without a stop string.
  std::string flush();
  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace doppler
