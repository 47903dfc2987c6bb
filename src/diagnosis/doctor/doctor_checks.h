// The doctor's checks, one function each; diagnosis/ailments.cpp has the table.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis::doctor {

// The input of every check, to whose findings it adds.
struct Examination {
  const Subject& subject;
  const DoctorOptions& options;
  std::vector<Finding>& findings;
  std::vector<Fallback>& fallbacks;
  std::vector<JudgedOp>& ops;
  std::vector<std::string>& untested;
  std::string_view check;  // the one that runs
  std::chrono::steady_clock::time_point deadline;

  double seconds_left() const {
    return std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
  }
  // Adds a finding; explanation and repair default to those of its cause.
  void find(Finding finding) const;
};

struct Outcome {
  CheckState state = CheckState::kOk;
  std::string text;
  static Outcome ok(std::string text) { return {CheckState::kOk, std::move(text)}; }
  static Outcome skip(std::string why) { return {CheckState::kSkipped, std::move(why)}; }
  static Outcome found(std::string text) { return {CheckState::kFinding, std::move(text)}; }
};

// doctor_files.cpp
Result<Outcome> check_files(const Examination& examination);
Result<Outcome> check_spec(const Examination& examination);
Result<Outcome> check_memory(const Examination& examination);
// doctor_texts.cpp
Result<Outcome> check_texts(const Examination& examination);
// Whether a recording has told what texts should become, so that nothing needs to be guessed.
bool texts_are_known(const Examination& examination);
// doctor_text.cpp
Result<Outcome> check_vocabulary(const Examination& examination);
Result<Outcome> check_round_trips(const Examination& examination);
Result<Outcome> check_merges(const Examination& examination);
Result<Outcome> check_special_tokens(const Examination& examination);
Result<Outcome> check_chat(const Examination& examination);
Result<Outcome> check_sampler(const Examination& examination);
// doctor_weights.cpp
Result<Outcome> check_weights(const Examination& examination);
Result<Outcome> check_layers_alike(const Examination& examination);
Result<Outcome> check_tied_head(const Examination& examination);
Result<Outcome> check_neighbours(const Examination& examination);
// doctor_turns.cpp
Result<Outcome> check_token_order(const Examination& examination);
Result<Outcome> check_turns(const Examination& examination);
Result<Outcome> check_defaults(const Examination& examination);
// doctor_source.cpp
Result<Outcome> check_source(const Examination& examination);
// doctor_loss.cpp
Result<Outcome> check_loss(const Examination& examination);
// doctor_loss_texts.cpp: what other tokenizers make of a text that the model reads badly.
struct TextTrials {
  std::optional<Finding> finding;
  std::size_t tried = 0, left_out = 0;
};
TextTrials try_texts(const Examination& examination, double seconds);
// doctor_runs.cpp
Result<Outcome> check_ops(const Examination& examination);
Result<Outcome> check_again(const Examination& examination);
Result<Outcome> check_decode(const Examination& examination);
Result<Outcome> check_submit(const Examination& examination);
Result<Outcome> check_batch(const Examination& examination);
Result<Outcome> check_determinism(const Examination& examination);
Result<Outcome> check_fallbacks(const Examination& examination);
// doctor_recording.cpp
Result<Outcome> check_recording(const Examination& examination);
// doctor_truth.cpp
Result<Outcome> check_truth(const Examination& examination);
Result<Outcome> check_choices(const Examination& examination);

}  // namespace doppler::diagnosis::doctor
