// debug_run: a prompt and some decode steps with everything measured, then the same tokens once more as a
// prompt, and a look at the embedding: what `doppler debug` prints and triage judges.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/look/attention_patterns.h"
#include "diagnosis/look/magnitudes.h"
#include "diagnosis/look/stage_records.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler::diagnosis {

struct DebugOptions {
  std::vector<TokenId> prompt_ids;
  std::uint32_t decode_steps = 16;
  std::vector<TokenId> watched_ids;       // whose logits and ranks are kept
  std::vector<AttentionQuery> attention;  // heads whose patterns are kept
  // The token after `history`; nothing given: the likeliest.
  std::function<Result<TokenId>(std::span<const float> logits, std::span<const TokenId> history,
                                std::size_t drawn)>
      choose;
  bool all_logits = false;  // of every token of the prompt; else of the last thirty-two
  Tap* besides = nullptr;   // sees the prompt and the decode steps, not what runs after them
  // Ids from here on have no token (a vocabulary that was padded); 0: all have.
  std::uint32_t known_ids = 0;
};

// The logits after one token.
struct PositionLogits {
  std::int64_t token = 0;  // the position they follow
  bool decode = false;
  Statistics all;
  std::vector<Choice> top;  // five
  double entropy = 0;       // nats
  std::vector<Rank> watched;
  std::optional<double> loss;  // of the prompt's next token, in nats
  double likeness = 0;         // correlation with the logits of the position before; 0 for the first
};

// A decode step against the same token in a prompt.
struct DecodeCheck {
  std::int64_t token = 0;
  double error = 0;  // of the logits, as a share of the largest
  bool same_choice = true;
  std::string
      first_stage;  // the first stage that differs by more than the tolerance, "layers.0.k_rope"; empty: none
  double stage_error = 0;
};

// Rows of the embedding: as the file has them, and as the backend looks them up.
struct EmbeddingCheck {
  std::size_t file_rows = 0, file_zero = 0;  // looked at, and nothing but zeros
  std::optional<TokenId> first_zero;         // in the file
  std::size_t ran = 0, ran_zero = 0,
              ran_wrong = 0;  // through the backend; zero or different though the file's are not
  std::optional<TokenId> first_ran_zero, first_ran_wrong;
};

struct DebugRun {
  std::vector<TokenId> prompt_ids, ids;  // `ids` were generated
  std::vector<StageRecord> stages;
  std::vector<PositionLogits> logits;  // of the prompt's last tokens, then of each decode step
  std::vector<float> last_prompt_logits;
  std::vector<DecodeCheck> decode;
  std::vector<HeadPattern> attention;
  EmbeddingCheck embedding;
  double tolerance = 0;  // that decode and prefill were compared with
  std::string stopped;   // why decoding ended early; empty if it did not
};

// Uses slot 0 and leaves it empty. Errors: kUsage for a prompt without tokens, ids out of range, or heads
// that are not there; kLimit for more than the context; those of the backend. NaN is no error: it is what
// triage is for.
Result<DebugRun> debug_run(Backend& backend, const ModelSpec& spec, const Weights& weights,
                           const DebugOptions& options);

}  // namespace doppler::diagnosis
