// Trace lines about the values of stages: the categories embed, attn, ffn and logits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/tap.h"
#include "backend/tap_list.h"
#include "base/log.h"
#include "model/spec.h"
#include "plan/plan.h"

namespace doppler::diagnosis {

// Whether any of the four categories is traced, so that a TraceTap has something to do.
bool traces_taps();

// Each line is written through the log's trace(), whose filters of layers and steps decide what is looked at.
class TraceTap final : public Tap {
 public:
  using TokenText = std::function<std::string(std::int32_t id)>;  // empty where there is none
  // Spec and plan must outlive the tap.
  TraceTap(const ModelSpec& spec, const Plan& plan, TokenText text);

  // To be called before a prompt runs.
  void begin(std::size_t prompt_tokens) { prompt_tokens_ = static_cast<std::int64_t>(prompt_tokens); }

  bool wants(Stage stage, int layer) const override;
  void on_stage(const TapEvent& event) override;

 private:
  std::int64_t step_of(const TapEvent& event) const;
  void embed(const TapEvent& event, std::int64_t step) const;
  void attention_geometry(const TapEvent& event, std::int64_t step) const;
  void head(const TapEvent& event, std::int64_t step) const;
  void logits(const TapEvent& event, std::int64_t step) const;

  const ModelSpec& spec_;
  const Plan& plan_;
  const TokenText text_;
  std::int64_t prompt_tokens_ = 0;
  std::int64_t newest_step_ = 0;  // wants() is asked before anything of the coming step is known
};

}  // namespace doppler::diagnosis
