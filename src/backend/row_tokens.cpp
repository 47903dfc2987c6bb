#include "backend/row_tokens.h"

#include "backend/backend.h"

namespace doppler {

bool only_wanted_rows(Stage stage) {
  return stage >= Stage::kPreFinalNorm && stage <= Stage::kLogitsFinal;
}

const std::vector<std::size_t>& RowTokens::of(const TapEvent& event) {
  tokens_.clear();
  if (!only_wanted_rows(event.stage)) {
    for (std::size_t row = 0; row < event.rows; ++row) tokens_.push_back(row);
    return tokens_;
  }
  std::size_t wanted = 0;
  std::size_t& shown = shown_[static_cast<std::size_t>(event.stage)];
  for (std::size_t token = 0; token < event.input->size(); ++token) {
    if (event.input->wants_logits[token] == 0) continue;
    if (wanted >= shown && wanted < shown + event.rows) tokens_.push_back(token);
    ++wanted;
  }
  shown += event.rows;
  if (shown >= wanted) shown = 0;  // the next event of this stage belongs to another step
  return tokens_;
}

}  // namespace doppler
