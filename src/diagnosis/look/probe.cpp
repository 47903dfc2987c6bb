#include "diagnosis/look/probe.h"

#include <fmt/compile.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "backend/backend.h"
#include "backend/row_tokens.h"
#include "base/json.h"
#include "base/text.h"
#include "plan/residual.h"

namespace doppler::diagnosis {
namespace {

bool contains(std::span<const ProbeRange> ranges, std::int64_t value) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const ProbeRange& r) { return value >= r.first && value <= r.last; });
}

// Where a plan computes a stage.
struct Planned {
  std::vector<int> layers;  // -1 alone for stages outside the layers
  std::uint32_t width = 0;  // the widest
};

std::map<Stage, Planned> planned_stages(const Plan& plan) {
  std::map<Stage, Planned> stages;
  for (const Value& value : plan.values) {
    for_each_name(plan, value, [&](Stage stage, int layer) {
      Planned& planned = stages[stage];
      planned.layers.push_back(layer);
      planned.width = std::max(planned.width, value.width);
    });
  }
  return stages;
}

std::string describe_layers(const Planned& planned) {
  if (planned.layers.size() == 1) return fmt::format("layer {}", planned.layers.front());
  const bool gapless =
      planned.layers.back() - planned.layers.front() + 1 == static_cast<int>(planned.layers.size());
  return gapless ? fmt::format("layers {} to {}", planned.layers.front(), planned.layers.back())
                 : fmt::format("layers {}", fmt::join(planned.layers, ", "));
}

Result<Stage> find_stage(const Probe& probe, const std::map<Stage, Planned>& planned, const Plan& plan) {
  const auto stage = stage_from_name(probe.stage);
  if (stage && planned.contains(*stage)) return *stage;
  std::vector<std::string> names;
  for (const auto& [known, where] : planned) names.emplace_back(stage_name(known));
  const std::string nearest = stage ? "" : nearest_name(probe.stage, names);
  return fail(ErrorCode::kUsage, "The probe {} can never fire: {}.{} Stages of this model are {}.",
              printable(probe_text(probe)),
              stage ? fmt::format("this model computes no {}", stage_name(*stage))
                    : fmt::format("there is no stage {}", printable(probe.stage)),
              nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest), describe_stages(plan));
}

}  // namespace

std::string describe_stages(const Plan& plan) {
  std::string text;
  for (const auto& [stage, planned] : planned_stages(plan)) {
    if (!text.empty()) text += ", ";
    text += stage_name(stage);
    const bool everywhere = planned.layers.size() == plan.kv_layers.size();
    if (stage_info(stage).per_layer && !everywhere) text += fmt::format(" ({})", describe_layers(planned));
  }
  return text;
}

Category category_of(Stage stage) {
  if (stage == Stage::kEmbedOut) return Category::kEmbed;
  if (stage >= Stage::kAttnInput && stage <= Stage::kPostAttn) return Category::kAttn;
  if (stage >= Stage::kFfnNormed && stage <= Stage::kLayerOut) return Category::kFfn;
  return Category::kLogits;
}

std::string probe_line(const ProbeHit& hit) {
  // Compiled formats into one buffer: hundreds of lines a token are printed between two steps.
  fmt::memory_buffer line;
  const auto out = std::back_inserter(line);
  fmt::format_to(out, FMT_COMPILE("PROBE"));
  if (!hit.probe->id.empty()) fmt::format_to(out, FMT_COMPILE(" {}"), hit.probe->id);
  fmt::format_to(out, FMT_COMPILE(" stage={}"), stage_name(hit.stage));
  if (hit.layer >= 0) fmt::format_to(out, FMT_COMPILE(" layer={}"), hit.layer);
  fmt::format_to(out, FMT_COMPILE(" token={}"), hit.token);
  if (hit.head >= 0) fmt::format_to(out, FMT_COMPILE(" head={}"), hit.head);
  fmt::format_to(out, FMT_COMPILE(" values=["));
  for (const ProbeValue& v : hit.values) {
    if (&v != hit.values.data()) fmt::format_to(out, FMT_COMPILE(", "));
    fmt::format_to(out, FMT_COMPILE("{}={:.4f}"), v.dim, v.value);
  }
  fmt::format_to(out, FMT_COMPILE("]"));
  return fmt::to_string(line);
}

Json probe_json(const ProbeHit& hit) {
  Json values = Json::object();
  for (const ProbeValue& v : hit.values) {
    values[std::to_string(v.dim)] = std::isfinite(v.value) ? Json(v.value) : Json(fmt::format("{}", v.value));
  }
  Json json = {{"id", hit.probe->id},
               {"stage", stage_name(hit.stage)},
               {"layer", hit.layer >= 0 ? Json(hit.layer) : Json(nullptr)},
               {"token", hit.token},
               {"step", hit.step},
               {"values", std::move(values)}};
  if (hit.head >= 0) json["head"] = hit.head;
  return json;
}

Result<ProbeTap::Watch> ProbeTap::watch(const Probe& probe, const Plan& plan, std::uint64_t context) {
  const std::map<Stage, Planned> planned = planned_stages(plan);
  Watch watch{.probe = probe};
  DOPPLER_ASSIGN(watch.stage, find_stage(probe, planned, plan));
  const Planned& where = planned.at(watch.stage);
  const std::string name = printable(probe_text(probe));
  watch.layers.assign(std::max<std::size_t>(plan.kv_layers.size(), 1), false);
  const bool per_layer = stage_info(watch.stage).per_layer;
  if (!per_layer && !probe.layers.empty()) {
    return fail(ErrorCode::kUsage,
                "The probe {} asks for layers, but {} lies outside the layers. Leave them out.", name,
                stage_name(watch.stage));
  }
  for (const ProbeRange& range : probe.layers) {
    for (const std::int64_t end : {range.first, range.last}) {
      if (std::find(where.layers.begin(), where.layers.end(), end) != where.layers.end()) continue;
      return fail(ErrorCode::kUsage, "The probe {} can never fire at layer {}: {} is computed in {}.", name,
                  end, stage_name(watch.stage), describe_layers(where));
    }
  }
  for (const int layer : where.layers) {
    if (!per_layer || probe.layers.empty() || contains(probe.layers, layer))
      watch.layers[place(layer)] = true;
  }
  // Scores have a place for each position.
  const std::uint64_t width = watch.stage == Stage::kAttnScores ? context : where.width;
  for (const ProbeRange& range : probe.dims) {
    if (static_cast<std::uint64_t>(range.last) < width) continue;
    return fail(ErrorCode::kUsage, "The probe {} can never fire at dim {}: {} has dims 0 to {}.", name,
                range.last, stage_name(watch.stage), width - 1);
  }
  for (const ProbeRange& range : probe.tokens) {
    if (range.first < static_cast<std::int64_t>(context)) continue;
    return fail(ErrorCode::kUsage, "The probe {} can never fire at token {}: the context holds {}.", name,
                range.first, context);
  }
  watch.left.assign(watch.layers.size(), -1);
  return watch;
}

Result<ProbeTap> ProbeTap::create(std::vector<Probe> probes, const Plan& plan, std::uint64_t context,
                                  OnHit on_hit) {
  ProbeTap tap;
  tap.on_hit_ = std::move(on_hit);
  tap.context_ = context;
  tap.wanted_.assign(static_cast<std::size_t>(Stage::kCount),
                     std::vector<bool>(std::max<std::size_t>(plan.kv_layers.size(), 1), false));
  for (const Probe& probe : probes) {
    DOPPLER_ASSIGN(Watch made, watch(probe, plan, context));
    tap.watches_.push_back(std::move(made));
  }
  return tap;
}

Status ProbeTap::begin(std::size_t prompt_tokens, bool all_logits) {
  prompt_tokens_ = prompt_tokens;
  seen_ = -1;
  const auto length = static_cast<std::int64_t>(prompt_tokens);
  const auto end = static_cast<std::int64_t>(context_) - 1;
  Status status;
  for (Watch& watch : watches_) {
    // Of the prompt, only its last token has logits, unless all are asked for.
    const std::int64_t first = only_wanted_rows(watch.stage) && !all_logits ? length - 1 : 0;
    std::vector<ProbeRange> asked = watch.probe.tokens;
    if (watch.probe.all_tokens) asked = {{0, end}};
    if (asked.empty()) asked = {{first, first}};
    watch.tokens.clear();
    for (ProbeRange range : asked) {
      if (range.first < 0) range.first += length;
      if (range.last < 0) range.last += length;
      range.first = std::max(range.first, first);
      range.last = std::min(range.last, end);
      if (range.first <= range.last) watch.tokens.push_back(range);
    }
    std::int64_t last = -1;
    for (const ProbeRange& range : watch.tokens) last = std::max(last, range.last);
    for (std::size_t i = 0; i < watch.left.size(); ++i) watch.left[i] = watch.layers[i] ? last : -1;
    if (!watch.tokens.empty() || !status) continue;
    const std::string name = printable(probe_text(watch.probe));
    status = first == 0 ? fail(ErrorCode::kUsage,
                               "The probe {} can never fire: the prompt has {} tokens, so tokens are 0 to {} "
                               "(or -{} to -1), and {} on in decode.",
                               name, length, length - 1, length, length)
                        : fail(ErrorCode::kUsage,
                               "The probe {} can never fire: of the prompt's {} tokens only the last one's "
                               "{} is computed. "
                               "Ask for token -1 or {} on, or use doppler debug, which computes all.",
                               name, length, stage_name(watch.stage), length);
  }
  refresh();
  return status;
}

void ProbeTap::refresh() {
  for (auto& layers : wanted_) layers.assign(layers.size(), false);
  for (const Watch& watch : watches_) {
    for (std::size_t i = 0; i < watch.left.size(); ++i) {
      if (watch.left[i] >= 0) wanted_[static_cast<std::size_t>(watch.stage)][i] = true;
    }
  }
}

bool ProbeTap::wants(Stage stage, int layer) const {
  const auto& layers = wanted_[static_cast<std::size_t>(stage)];
  return place(layer) < layers.size() && layers[place(layer)];
}

Columns ProbeTap::columns(Stage stage, int layer) const {
  if (stage == Stage::kAttnScores) return {};  // of each head its positions
  std::int64_t first = INT64_MAX, last = -1;
  for (const Watch& watch : watches_) {
    if (watch.stage != stage || watch.left[place(layer)] < 0) continue;
    for (const ProbeRange& range : watch.probe.dims)
      first = std::min(first, range.first), last = std::max(last, range.last);
  }
  if (last < first) return {};
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(last - first) + 1};
}

void ProbeTap::fire(Watch& watch, const TapEvent& event, std::size_t row, std::int64_t token) {
  const bool scores = event.stage == Stage::kAttnScores;
  const std::size_t parts = scores ? event.heads : 1, width = event.width / parts;
  ProbeHit hit{.probe = &watch.probe,
               .stage = event.stage,
               .layer = event.layer,
               .token = token,
               .step = std::max<std::int64_t>(0, token - static_cast<std::int64_t>(prompt_tokens_) + 1)};
  const auto data = event.data.subspan(row * event.shown(), event.shown());
  for (std::size_t part = 0; part < parts; ++part) {
    hit.values.clear();
    for (const ProbeRange& range : watch.probe.dims) {
      // A token's scores end at the token itself.
      const std::int64_t end = std::min(range.last, scores ? token : static_cast<std::int64_t>(width) - 1);
      for (std::int64_t dim = range.first; dim <= end; ++dim) {
        const std::size_t column = part * width + static_cast<std::size_t>(dim);
        if (column >= event.first_column && column - event.first_column < data.size())
          hit.values.push_back({dim, data[column - event.first_column]});
      }
    }
    if (hit.values.empty()) continue;
    if (scores) hit.head = static_cast<int>(part);
    ++watch.hits;
    on_hit_(hit);
  }
}

void ProbeTap::on_stage(const TapEvent& event) {
  const std::vector<std::size_t> tokens = row_tokens(event);
  std::int64_t furthest = -1;
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    if (event.input->slots[tokens[row]] != 0) continue;
    const std::int64_t token = event.input->positions[tokens[row]];
    furthest = std::max(furthest, token);
    for (Watch& watch : watches_) {
      if (watch.stage == event.stage && watch.layers[place(event.layer)] && contains(watch.tokens, token))
        fire(watch, event, row, token);
    }
  }
  seen_ = std::max(seen_, furthest);
  bool over = false;
  for (Watch& watch : watches_) {
    std::int64_t& left = watch.left[place(event.layer)];
    if (watch.stage != event.stage || left < 0 || furthest < left) continue;
    left = -1;
    over = true;
  }
  if (over) refresh();
}

std::vector<std::string> ProbeTap::silent() const {
  std::vector<std::string> sentences;
  for (const Watch& watch : watches_) {
    if (watch.hits > 0) continue;
    sentences.push_back(
        fmt::format("The probe {} did not fire: {}.", printable(probe_text(watch.probe)),
                    seen_ < 0 ? "nothing ran that it could see"
                              : fmt::format("tokens 0 to {} ran, none of which it asks for", seen_)));
  }
  return sentences;
}

}  // namespace doppler::diagnosis
