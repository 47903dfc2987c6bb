#include "cli/looking.h"

#include <fmt/core.h>

#include "base/screen.h"
#include "diagnosis/look/debug_config.h"

namespace doppler::cli {

void add_look_flags(Command& command, LookFlags& flags) {
  std::vector<std::string> stages;
  for (const StageInfo& stage : all_stages()) stages.push_back(fmt::format("stage={},", stage.name));
  command
      .add_option(
          "--probe", flags.probes,
          "print values while the model runs: stage=q_rope,layers=0:5,tokens=0,-1,dims=0:7; may be repeated")
      .one_value_each()
      .values(std::move(stages))
      .group("Looking inside");
}

Json debug_settings(const SettingFlags& given) {
  return given.flags.debug();
}

Result<std::unique_ptr<Looking>> Looking::create(const LookFlags& flags, const SettingFlags& given,
                                                 const ModelSpec& spec, const Backend& backend,
                                                 const tokenizer::Tokenizer* tokenizer) {
  std::unique_ptr<Looking> looking(new Looking());
  looking->keep_ = given.json;
  DOPPLER_ASSIGN(diagnosis::DebugConfig config, diagnosis::read_debug_config(debug_settings(given)));
  for (const std::string& text : flags.probes) {
    DOPPLER_ASSIGN(diagnosis::Probe probe, diagnosis::parse_probe(text));
    config.probes.push_back(std::move(probe));
  }
  if (!config.probes.empty()) {
    DOPPLER_ASSIGN(looking->probes_,
                   diagnosis::ProbeTap::create(
                       std::move(config.probes), backend.plan(), backend.options().context,
                       [to = looking.get()](const diagnosis::ProbeHit& hit) { to->print(hit); }));
    looking->taps_.add(&*looking->probes_);
  }
  if (diagnosis::traces_taps()) {
    looking->trace_.emplace(spec, backend.plan(), [tokenizer](std::int32_t id) {
      const auto piece = tokenizer != nullptr ? tokenizer->piece(id) : std::string();
      return piece ? *piece : std::string();
    });
    looking->taps_.add(&*looking->trace_);
  }
  return looking;
}

Status Looking::begin(std::size_t prompt_tokens, bool all_logits) {
  if (trace_) trace_->begin(prompt_tokens);
  return probes_ ? probes_->begin(prompt_tokens, all_logits) : Status();
}

// A probe's lines are always printed; if the category of its stage is traced, as lines of that trace.
void Looking::print(const diagnosis::ProbeHit& hit) {
  const std::string line = diagnosis::probe_line(hit);
  const Category category = diagnosis::category_of(hit.stage);
  const bool traced = trace_wanted(category, hit.layer, hit.step);
  if (!traced) say(Said::kAsked, line);
  if (traced) trace(category, hit.layer, line, hit.step, diagnosis::probe_json(hit).dump());
  if (keep_) hits_.push_back(hit);
}

Json Looking::probes() const {
  if (!probes_) return nullptr;
  Json list = Json::array();
  for (const diagnosis::ProbeHit& hit : hits_) list.push_back(diagnosis::probe_json(hit));
  return list;
}

void Looking::end() const {
  if (!probes_) return;
  for (const std::string& sentence : probes_->silent()) say(Said::kAsked, sentence);
}

}  // namespace doppler::cli
