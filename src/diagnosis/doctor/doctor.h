// The doctor: examines a model from its files to its chosen tokens, and names the faults. Without a recording
// it compares the parts with each other; with one it re-runs every op from the recorded inputs, and where an
// op is wrong it tries repairs on that op alone until one restores agreement.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/json_fwd.h"
#include "base/result.h"
#include "diagnosis/compare/recording.h"
#include "diagnosis/doctor/causes.h"
#include "diagnosis/doctor/fix.h"
#include "engine/loaded.h"

namespace doppler::diagnosis {

// One fault. Several layers with the same cause are one finding, which names the first.
struct Finding {
  std::string cause;       // an id of all_causes()
  std::string stage;       // "k_norm"; empty for findings about no stage: files, tokenizer
  int layer = -1;          // -1: outside the layers
  std::size_t places = 1;  // how many ops (mostly layers) show it
  // What is wrong, with values: "k_norm of layer 0 agrees when the weight offset is 1."
  std::string explanation;
  std::string repair;     // what to do: "Set rms_norm_weight_offset."
  double confidence = 1;  // 0 to 1; below 1 where other causes would explain it as well, or nearly
  std::string ruled_out;  // repairs that were tried and did not help; may be empty
  // Stages, by key, that the fault may lie in as well, because the recording has nothing between them.
  std::vector<std::string> among;
  std::string check;            // the check that found it
  std::vector<Fix> fixes = {};  // what --fix writes; empty: nothing that a program can do
  std::string unwritten = {};   // why a value of the repair stands in no file; empty: each does
};

enum class CheckState : std::uint8_t { kOk, kFinding, kSkipped };

struct CheckResult {
  std::string_view name, asks;
  CheckState state = CheckState::kOk;
  std::string text;  // the observation, or why the check was skipped
  double seconds = 0;
};

// An op that a check ran alone, on inputs taken as right.
struct JudgedOp {
  std::string_view check;  // whose rows it was judged by: "truth", the recording's; "ops", the backend's
  Stage stage = Stage::kNone;
  int layer = -1;
  double excess = 0;  // its error over what rounding explains; above 1 it is wrong
};

struct Diagnosis {
  std::vector<Finding> findings;  // in the order of a step
  std::vector<CheckResult> checks;
  std::vector<JudgedOp> ops;          // by check, in the order of a step
  std::vector<Fallback> fallbacks;    // of the backend under examination: slower, but not wrong
  std::vector<std::string> untested;  // what the recording cannot show, a sentence each
  bool healthy() const { return findings.empty(); }
};

// The examined model, with exchangeable parts, so that a fault can be put into any of them.
struct Subject {
  const Model* model = nullptr;  // never null: the files and their contents
  ModelSpec spec;
  Weights weights;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: there is none
  const chat::ChatTemplate* chat = nullptr;
  // Changes the unfused plan, as a fault would; mostly empty.
  std::function<void(Plan&)> alter_plan;
  // Makes the backend under examination; empty: the one called backend_name, from spec and weights.
  std::function<Result<std::unique_ptr<Backend>>(const Subject& subject, const BackendOptions& options)>
      backend;
  std::string backend_name = "cpu";
  BackendOptions options;
  // A prompt's ids, as run would feed them; a conversation's likewise.
  std::function<Result<std::vector<TokenId>>(std::string_view text)> prompt_ids;
  std::function<Result<std::vector<TokenId>>(std::span<const Message> messages)> chat_ids;
  // The rest of what it makes of text; tokenizer, prompt_ids, the spec's EOS and PAD count where they are
  // there.
  TextSide text;
  // Replaces the engine's Sampler.
  std::function<Result<TokenId>(const GenerateOptions& options, TokenId pad_id, std::span<const float> logits,
                                std::span<const TokenId> history, std::uint64_t draw)>
      sample;

  Result<Plan> make_plan(std::uint64_t context) const;
  Result<std::unique_ptr<Backend>> make(const BackendOptions& with) const;
};

// The model as it was loaded; `loaded` must outlive the subject. Backends are made anew by `backend_name`.
Subject subject_of(const Loaded& loaded, std::string backend_name);

struct DoctorOptions {
  const Recording* reference = nullptr;  // taken as the truth; null: none
  const Loaded* source = nullptr;        // the model that this one was converted from; null: unknown
  bool hashes = false;                   // SHA-256 of every file, however long it takes
  double seconds = 30;                   // rough limit for all checks together
  std::vector<std::string> only;         // ids of ailments; empty: all
  std::function<void(const CheckResult&)> on_check;  // called as each ends
};

// Errors: kUsage for a check that does not exist. Every fault of the model is a finding, not an error.
Result<Diagnosis> diagnose(const Subject& subject, const DoctorOptions& options);

// For a model that the loader refuses: the cause that matches the error's message.
Diagnosis diagnose_refusal(const std::filesystem::path& model, const Error& error);

// {"healthy", "findings": [{"stage", "layer", "cause", "explanation", "repair", "confidence", ...}],
// "checks": [...], "ops": [{"check", "stage", "layer", "excess"}], "fallbacks": [{"what", "why"}]}
Json to_json(const Diagnosis& diagnosis);
// One line: "FINDING k_norm of layer 0 ...".
std::string describe(const Finding& finding);
std::string_view name_of(CheckState state);  // "ok", "finding", "skipped"

}  // namespace doppler::diagnosis
