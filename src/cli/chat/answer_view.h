// AnswerView: an answer on standard output while it is generated. On a terminal its words are wrapped and its
// thinking is dim; anywhere else it is written as the model gives it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/chat/thinking.h"
#include "cli/chat/wrap.h"

namespace doppler::cli {

struct ViewOptions {
  bool silent = false;    // nothing is shown
  bool terminal = false;  // standard output is one
  bool dim = false;       // thinking is shown dim, without its marks
  bool wrap = false;
};
// As standard output and --color have it.
ViewOptions usual_view();

// Pure: the texts that the view below prints.
class AnswerLayout {
 public:
  AnswerLayout(const ViewOptions& options, std::function<std::size_t()> columns)
      : options_(options), wrapper_(std::move(columns)) {}
  // `raw`: the next text as the model gives it; `parts`: those that it completes.
  std::string feed(std::string_view raw, std::span<const AnswerPart> parts);
  // The end of the answer, with a newline.
  std::string end();

 private:
  std::string flow(std::string_view text);
  const ViewOptions options_;
  Wrapper wrapper_;
  bool thinking_ = false;
  std::string tail_;  // the last two bytes of the thinking
};

class AnswerView {
 public:
  explicit AnswerView(const ViewOptions& options);
  // Errors: kIo.
  Status show(std::string_view raw, std::span<const AnswerPart> parts);
  Status end();

 private:
  const ViewOptions options_;
  AnswerLayout layout_;
};

}  // namespace doppler::cli
