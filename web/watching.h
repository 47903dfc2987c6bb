// Watching: what a call asks to be told while a model runs, probes and trace lines, as `doppler run --probe`
// and `--trace` tell it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/tap_list.h"
#include "base/json.h"
#include "base/result.h"
#include "diagnosis/look/probe.h"
#include "diagnosis/look/tap_trace.h"
#include "engine/loaded.h"

namespace doppler::web {

// Turns the trace on that {"trace": [categories], "trace_layers": [..], "trace_steps": n} asks for, or off.
// Errors: kUsage.
Status configure_trace(const Json& watch);

// Its lines come with answers: adds them as "said" if there are any.
void add_trace(Json& answer);

class Watching {
 public:
  // {"probes": [texts as --probe takes them], ...}. What was loaded must outlive this. Errors: kUsage.
  static Result<std::unique_ptr<Watching>> create(const Json& watch, const Loaded& loaded);
  // The tap for the session; null if nothing is watched.
  Tap* tap() { return taps_.get(); }
  // Before a prompt. Errors: kUsage for a probe that cannot fire on it.
  Status begin(std::size_t prompt_tokens);
  // Adds what was seen since the last time: lines as "said", values as "probes".
  void add_to(Json& answer);
  // Adds to "said" which probes did not fire.
  void end(Json& answer) const;

 private:
  Watching() = default;
  std::optional<diagnosis::ProbeTap> probes_;
  std::optional<diagnosis::TraceTap> trace_;
  TapList taps_;
  Json lines_ = Json::array(), hits_ = Json::array();
};

}  // namespace doppler::web
