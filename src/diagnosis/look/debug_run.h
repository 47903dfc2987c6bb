// debug_run: a prompt and some decode steps with every stage measured, then the same tokens once more as a
// prompt, and a check of the embedding. `doppler debug` prints the results and triage judges them.
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
#include "engine/logprobs.h"
#include "model/spec.h"
#include "model/weights.h"

namespace doppler::diagnosis {

struct DebugOptions {
  std::vector<TokenId> prompt_ids;
  std::uint32_t decode_steps = 16;
  std::vector<TokenId> watched_ids;       // tokens whose logits and ranks are kept
  std::vector<AttentionQuery> attention;  // heads whose patterns are kept
  // Chooses the token after `history`; empty: the likeliest. `drawn`: how many were chosen before.
  std::function<Result<TokenId>(std::span<const float> logits, std::span<const TokenId> history,
                                std::size_t drawn)>
      choose;
  bool all_logits = false;  // keeps those of every token of the prompt; else of its last 32
  Tap* besides = nullptr;   // sees the prompt and the decode steps, not the runs after them
  // The first id without a token (of a padded vocabulary); 0: every id has one.
  std::uint32_t known_ids = 0;
};

// The logits after one token.
struct PositionLogits {
  std::int64_t token = 0;  // the position they follow
  bool decode = false;
  Statistics all;           // of the whole row
  std::vector<Likely> top;  // the five likeliest
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
  // The first stage that differs by more than the tolerance, "layers.0.k_rope"; empty: none.
  std::string first_stage;
  double stage_error = 0;
};

// Rows of the embedding: as the file has them, and as the backend looks them up.
struct EmbeddingCheck {
  std::size_t file_rows = 0, file_zero = 0;  // rows checked; of them those with nothing but zeros
  std::optional<TokenId> first_zero;         // in the file
  // Rows that the backend looked up; of them those that are zero, or different, unlike the file's.
  std::size_t ran = 0, ran_zero = 0, ran_wrong = 0;
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
  double tolerance = 0;  // for the comparison of decode and prefill
  std::string stopped;   // why decoding ended early; empty if it did not
};

// Uses slot 0 and leaves it empty. Errors: kUsage for a prompt without tokens, ids out of range, or heads
// that do not exist; kLimit for more than the context; those of the backend. NaN is no error: it is what
// triage is for.
Result<DebugRun> debug_run(Backend& backend, const ModelSpec& spec, const Weights& weights,
                           const DebugOptions& options);

}  // namespace doppler::diagnosis
