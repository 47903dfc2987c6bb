// What the commands that run a model share for looking inside it while it runs: probes and traces, and what
// is said about them at the end.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/tap_list.h"
#include "base/json_fwd.h"
#include "base/result.h"
#include "cli/flags.h"
#include "cli/settings.h"
#include "diagnosis/look/probe.h"
#include "diagnosis/look/tap_trace.h"
#include "engine/loaded.h"

namespace doppler::cli {

struct LookFlags {
  std::vector<std::string> probes;  // as --probe was given
};
void add_look_flags(Command& command, LookFlags& flags);

// The subtree runtime.shared.debug of what was decided.
Json debug_settings(const SettingFlags& given);

class Looking {
 public:
  // Probes of the configuration first, then those of the flags. Spec, backend and tokenizer (null: none) must
  // outlive this. Errors: kUsage for a probe that can never fire.
  static Result<std::unique_ptr<Looking>> create(const LookFlags& flags, const SettingFlags& given,
                                                 const ModelSpec& spec, const Backend& backend,
                                                 const tokenizer::Tokenizer* tokenizer);
  static Result<std::unique_ptr<Looking>> create(const LookFlags& flags, const SettingFlags& given,
                                                 const Loaded& loaded) {
    return create(flags, given, loaded.model->spec, *loaded.backend,
                  loaded.tokenizer ? &*loaded.tokenizer : nullptr);
  }

  // What to hand to a session or a backend; null if nothing is looked at.
  Tap* tap() { return taps_.get(); }
  // The prompt that comes next. Errors: kUsage for a probe that cannot fire on it.
  Status begin(std::size_t prompt_tokens, bool all_logits);
  // What was printed, if --json was given. Null if there are no probes.
  Json probes() const;
  // Says on stderr which probes did not fire.
  void end() const;

 private:
  Looking() = default;
  void print(const diagnosis::ProbeHit& hit);
  std::optional<diagnosis::ProbeTap> probes_;
  std::optional<diagnosis::TraceTap> trace_;
  TapList taps_;
  bool keep_ = false;
  std::vector<diagnosis::ProbeHit>
      hits_;  // JSON is made of them at the end: during the run it would cost too much
};

}  // namespace doppler::cli
