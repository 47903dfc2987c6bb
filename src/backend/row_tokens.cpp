#include "backend/row_tokens.h"

#include "backend/backend.h"

namespace doppler {

bool only_wanted_rows(Stage stage) {
  return stage >= Stage::kPreFinalNorm && stage <= Stage::kLogitsFinal;
}

std::vector<std::size_t> row_tokens(const TapEvent& event) {
  std::vector<std::size_t> tokens;
  const bool all = !only_wanted_rows(event.stage);
  std::size_t row = 0;  // of all that this step has of the stage
  for (std::size_t token = 0; token < event.input->size() && tokens.size() < event.rows; ++token) {
    if (!all && event.input->wants_logits[token] == 0) continue;
    if (row++ >= event.first_row) tokens.push_back(token);
  }
  return tokens;
}

}  // namespace doppler
