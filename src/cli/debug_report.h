// The output of doppler debug: as text for people, as JSON for programs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "diagnosis/look/debug_run.h"
#include "diagnosis/look/triage.h"

namespace doppler::cli {

struct DebugView {
  std::string model, backend;
  std::vector<int> layers;                         // to print checkpoints of; empty: all, -1: none
  std::vector<std::int64_t> tokens;                // positions whose values checkpoints show
  std::function<std::string(std::int32_t)> piece;  // an id's text; null without a tokenizer
  std::optional<std::string> text;
  std::vector<diagnosis::Symptom> findings;
  Json probes;
  bool colour = false;
};

std::string debug_text(const diagnosis::DebugRun& run, const DebugView& view);
Json debug_json(const diagnosis::DebugRun& run, const DebugView& view);

}  // namespace doppler::cli
