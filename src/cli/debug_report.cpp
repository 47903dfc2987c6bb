#include "cli/debug_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/screen.h"
#include "base/text.h"
#include "diagnosis/ailments.h"

namespace doppler::cli {
namespace {

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string name_of(const DebugView& view, std::int32_t id) {
  return view.piece ? fmt::format("{} \"{}\"", id, printable(view.piece(id))) : fmt::format("{}", id);
}

// 2 "<bos>", 396 "The"; ids alone where there is no tokenizer.
std::string names_of(const DebugView& view, const std::vector<TokenId>& ids) {
  std::vector<std::string> names;
  for (const TokenId id : ids) names.push_back(name_of(view, id));
  return join(names, ", ");
}

bool shows(const DebugView& view, const diagnosis::StageRecord& record) {
  if (view.layers.empty()) return true;
  if (view.layers.size() == 1 && view.layers[0] < 0) return false;
  if (record.layer >= 0)
    return std::find(view.layers.begin(), view.layers.end(), record.layer) != view.layers.end();
  return true;  // every checkpoint shows the stages outside the layers
}

std::string checkpoints(const diagnosis::DebugRun& run, const DebugView& view) {
  std::string text;
  for (const diagnosis::StageRecord& record : run.stages) {
    if (!shows(view, record)) continue;
    const std::string where = record.layer >= 0 ? fmt::format("L{} ", record.layer) : "";
    const std::int64_t first = record.tokens.empty() ? 0 : record.tokens.front();
    if (record.prompt.count > 0) {
      text += fmt::format("[CHECKPOINT] {}{} prompt: {}\n", where, stage_name(record.stage),
                          diagnosis::describe_statistics(record.prompt, record.width, first));
    }
    for (std::size_t row = 0; row < record.tokens.size(); ++row) {
      if (std::find(view.tokens.begin(), view.tokens.end(), record.tokens[row]) == view.tokens.end())
        continue;
      text += fmt::format("[CHECKPOINT] {}{} token {}: maxAbs={:.5g} at dim {} rms={:.4g}\n", where,
                          stage_name(record.stage), record.tokens[row], record.row_peak[row],
                          record.row_peak_dim[row], record.row_rms[row]);
    }
    if (record.decode.count > 0) {
      text += fmt::format("[CHECKPOINT] {}{} decode: {}\n", where, stage_name(record.stage),
                          diagnosis::describe_statistics(record.decode, record.width,
                                                         static_cast<std::int64_t>(run.prompt_ids.size())));
    }
  }
  return text;
}

struct Magnitude {
  const diagnosis::StageRecord* record;
  double growth;  // of maxAbs, against the layer before or the embedding; 0: nothing to compare with
};

std::vector<Magnitude> magnitudes(const diagnosis::DebugRun& run) {
  std::vector<Magnitude> all;
  double before = 0;
  for (const diagnosis::StageRecord& record : run.stages) {
    if ((record.stage != Stage::kEmbedOut && record.stage != Stage::kLayerOut) || record.tokens.empty())
      continue;
    if (record.stage == Stage::kLayerOut)
      all.push_back({&record, before > 0 ? record.prompt.max_abs / before : 0});
    before = record.prompt.max_abs;
  }
  return all;
}

std::string layer_lines(const diagnosis::DebugRun& run) {
  std::string text;
  for (const diagnosis::StageRecord& record : run.stages) {
    if (record.stage == Stage::kEmbedOut)
      text += fmt::format("[EMBED_OUT] {}\n", diagnosis::describe_statistics(record.prompt, record.width, 0));
  }
  for (const Magnitude& m : magnitudes(run)) {
    text += fmt::format(
        "[LAYER_OUT] L{}: {} growth={:.2f}\n", m.record->layer,
        diagnosis::describe_statistics(m.record->prompt, m.record->width, m.record->tokens.front()),
        m.growth);
  }
  return text;
}

std::string logit_lines(const diagnosis::DebugRun& run, const DebugView& view) {
  std::string text;
  for (const diagnosis::PositionLogits& p : run.logits) {
    const bool last = p.token + 1 == static_cast<std::int64_t>(run.prompt_ids.size());
    if (!p.decode && !last) continue;
    text += fmt::format("[LOGITS] after token {}: top-5", p.token);
    for (const Likely& c : p.top)
      text += fmt::format(" {} ({:.1f}%)", name_of(view, c.id), 100 * c.probability);
    text += fmt::format(" min={:.5g} max={:.5g} entropy={:.2f}\n", p.all.min, p.all.max, p.entropy);
    for (const diagnosis::Rank& r : p.watched) {
      text += fmt::format("[LOGITS] after token {}: {} logit={:.4f} rank={} ({:.3g}%)\n", p.token,
                          name_of(view, r.id), r.logit, r.rank, 100 * r.probability);
    }
  }
  return text;
}

std::string attention_lines(const diagnosis::DebugRun& run) {
  std::string text;
  for (const diagnosis::HeadPattern& p : run.attention) {
    text += fmt::format(
        "[ATTENTION] L{} H{}: first={:.1f}% self={:.1f}% previous={:.1f}% entropy={:.2f} of {:.2f} "
        "furthest={} reach={}{}\n",
        p.layer, p.head, 100 * p.first, 100 * p.self, 100 * p.previous, p.entropy, p.most_entropy, p.furthest,
        p.reach, p.window > 0 ? fmt::format(" window={}", p.window) : "");
  }
  return text;
}

std::string triage_lines(const diagnosis::DebugRun& run, const DebugView& view) {
  std::string text;
  for (const diagnosis::Symptom& f : view.findings)
    text += fmt::format(
        "[TRIAGE] {} {}: {}\n         next: {}\n",
        f.sick ? painted("FOUND", Paint::kBad, view.colour) : painted("note", Paint::kWarning, view.colour),
        f.check, f.text, f.next);
  const auto sick = std::count_if(view.findings.begin(), view.findings.end(),
                                  [](const diagnosis::Symptom& f) { return f.sick; });
  if (sick > 0)
    return text + fmt::format("[TRIAGE] {} of {} checks found something.\n", sick,
                              diagnosis::ailments(diagnosis::AskedBy::kDebug).size());
  return text +
         fmt::format("[TRIAGE] {}: {} checks over {} stages, {} prompt tokens and {} generated ones.\n",
                     painted("clean", Paint::kGood, view.colour),
                     diagnosis::ailments(diagnosis::AskedBy::kDebug).size(), run.stages.size(),
                     run.prompt_ids.size(), run.ids.size());
}

Json to_json(const Statistics& s) {
  return {{"count", s.count},
          {"min", s.min},
          {"max", s.max},
          {"max_abs", s.max_abs},
          {"max_abs_index", s.max_abs_index},
          {"mean", s.mean},
          {"rms", s.rms},
          {"nan", s.nan},
          {"inf", s.inf},
          {"zeros", s.zeros}};
}

Json logits_json(const diagnosis::DebugRun& run) {
  Json all = Json::array();
  for (const diagnosis::PositionLogits& p : run.logits) {
    Json top = Json::array(), watched = Json::array();
    for (const Likely& c : p.top)
      top.push_back({{"id", c.id}, {"logit", finite(c.logit)}, {"probability", finite(c.probability)}});
    for (const diagnosis::Rank& r : p.watched)
      watched.push_back({{"id", r.id},
                         {"logit", finite(r.logit)},
                         {"rank", r.rank},
                         {"probability", finite(r.probability)}});
    all.push_back({{"token", p.token},
                   {"phase", p.decode ? "decode" : "prefill"},
                   {"top", top},
                   {"watched", watched},
                   {"entropy", finite(p.entropy)},
                   {"likeness", p.likeness},
                   {"loss", p.loss ? finite(*p.loss) : Json(nullptr)}});
  }
  return all;
}

}  // namespace

std::string debug_text(const diagnosis::DebugRun& run, const DebugView& view) {
  std::string text =
      fmt::format("[PROMPT] {} tokens: {}\n", run.prompt_ids.size(), names_of(view, run.prompt_ids));
  text += checkpoints(run, view) + layer_lines(run) + logit_lines(run, view) + attention_lines(run);
  text += fmt::format("[OUTPUT] {} tokens: {}\n", run.ids.size(), names_of(view, run.ids));
  if (view.text) text += fmt::format("[OUTPUT] {}\n", printable(*view.text, 2000));
  if (!run.stopped.empty()) text += fmt::format("[OUTPUT] stopped: {}\n", run.stopped);
  return text + triage_lines(run, view);
}

Json debug_json(const diagnosis::DebugRun& run, const DebugView& view) {
  Json stages = Json::array(), layers = Json::array(), attention = Json::array(), findings = Json::array();
  for (const diagnosis::StageRecord& r : run.stages) {
    stages.push_back({{"key", r.key()},
                      {"stage", stage_name(r.stage)},
                      {"layer", r.layer >= 0 ? Json(r.layer) : Json(nullptr)},
                      {"width", r.width},
                      {"prompt", to_json(r.prompt)},
                      {"decode", to_json(r.decode)}});
  }
  for (const Magnitude& m : magnitudes(run)) {
    const Statistics& s = m.record->prompt;
    layers.push_back(
        {{"layer", m.record->layer},
         {"max_abs", s.max_abs},
         {"rms", s.rms},
         {"token", m.record->tokens.front() + static_cast<std::int64_t>(s.max_abs_index / m.record->width)},
         {"dim", s.max_abs_index % m.record->width},
         {"growth", finite(m.growth)}});
  }
  for (const diagnosis::HeadPattern& p : run.attention) {
    attention.push_back({{"layer", p.layer},
                         {"head", p.head},
                         {"first", finite(p.first)},
                         {"self", finite(p.self)},
                         {"previous", finite(p.previous)},
                         {"entropy", finite(p.entropy)},
                         {"most_entropy", p.most_entropy},
                         {"furthest", p.furthest},
                         {"reach", p.reach},
                         {"window", p.window}});
  }
  bool healthy = true;
  for (const diagnosis::Symptom& f : view.findings) {
    healthy = healthy && !f.sick;
    findings.push_back(
        {{"check", f.check}, {"sick", f.sick}, {"text", f.text}, {"next", f.next}, {"numbers", f.numbers}});
  }
  return {{"model", view.model},
          {"backend", view.backend},
          {"prompt_ids", run.prompt_ids},
          {"ids", run.ids},
          {"text", view.text ? Json(*view.text) : Json(nullptr)},
          {"stopped", run.stopped},
          {"stages", stages},
          {"layers", layers},
          {"logits", logits_json(run)},
          {"attention", attention},
          {"probes", view.probes},
          {"triage",
           {{"clean", healthy},
            {"checks", diagnosis::ailments(diagnosis::AskedBy::kDebug).size()},
            {"findings", findings}}}};
}

}  // namespace doppler::cli
