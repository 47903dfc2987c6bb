// Probes and traces of a running model, and the messages about them at the end, for the commands that run a
// model.
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
  std::vector<std::string> probes;  // the texts of --probe
};
void add_look_flags(Command& command, LookFlags& flags);

// The subtree runtime.shared.debug of the resolved settings.
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

  // The tap to give to a session or a backend; null if there is nothing to watch.
  Tap* tap() { return taps_.get(); }
  // To be called before each prompt. Errors: kUsage for a probe that cannot fire on it.
  Status begin(std::size_t prompt_tokens, bool all_logits);
  // The printed probe values, if --json was given. Null if there are no probes.
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
  // Turned into JSON at the end: during the run that would cost too much.
  std::vector<diagnosis::ProbeHit> hits_;
};

}  // namespace doppler::cli
