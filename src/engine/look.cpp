#include "engine/look.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "backend/backend.h"
#include "backend/row_tokens.h"
#include "base/checked.h"
#include "base/statistics.h"
#include "base/text.h"
#include "plan/residual.h"

namespace doppler {
namespace {

struct PlannedStage {
  std::uint32_t width = 0, heads = 1;
  std::vector<int> layers;  // -1 alone for stages outside the layers
};

std::map<Stage, PlannedStage> planned_stages(const Plan& plan) {
  std::map<Stage, PlannedStage> stages;
  for (const Value& value : plan.values) {
    for_each_name(plan, value, [&](Stage stage, int layer) {
      PlannedStage& planned = stages[stage];
      planned.width = std::max(planned.width, value.width);
      planned.heads = std::max(planned.heads, value.heads);
      planned.layers.push_back(layer);
    });
  }
  for (auto& [stage, planned] : stages) {
    std::sort(planned.layers.begin(), planned.layers.end());
  }
  return stages;
}

Error unknown_stage(const std::string& name, const std::map<Stage, PlannedStage>& planned) {
  std::vector<std::string> names;
  for (const auto& [stage, where] : planned) names.emplace_back(stage_name(stage));
  return {ErrorCode::kUsage,
          fmt::format("{} Stages of this model are {}.",
                      name.empty() ? "The look names no stage."
                                   : fmt::format("This model has no stage {}.", printable(name)),
                      join(names, ", "))};
}

Result<std::vector<Stage>> stages_of(const LookRequest& request,
                                     const std::map<Stage, PlannedStage>& planned) {
  if (request.stages.empty()) return std::unexpected(unknown_stage("", planned));
  std::vector<Stage> stages;
  for (const std::string& name : request.stages) {
    const auto stage = stage_from_name(name);
    if (name == "all") {
      for (const auto& [each, where] : planned)
        if (each != Stage::kAttnScores) stages.push_back(each);
    } else if (stage && planned.contains(*stage)) {
      stages.push_back(*stage);
    } else {
      return std::unexpected(unknown_stage(name, planned));
    }
  }
  return stages;
}

// Rows that saw fewer positions than others get the score of masked positions, -infinity, for the rest.
void widen_scores(StageValues& values, std::size_t width) {
  if (values.width == width || values.values.empty()) return;
  const std::size_t heads = values.heads, from = values.width / heads, to = width / heads;
  std::vector<float> wide(values.tokens.size() * width, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < values.tokens.size() * heads; ++i)
    std::copy_n(values.values.begin() + static_cast<std::ptrdiff_t>(i * from), from,
                wide.begin() + static_cast<std::ptrdiff_t>(i * to));
  values.values = std::move(wide);
}

}  // namespace

std::vector<StageDescription> describe_stages_of(const Plan& plan) {
  std::vector<StageDescription> list;
  for (const auto& [stage, planned] : planned_stages(plan)) {
    const StageInfo& info = stage_info(stage);
    list.push_back({.name = std::string(info.name),
                    .meaning = std::string(info.meaning),
                    .width = planned.width,
                    .heads = planned.heads,
                    .layers = info.per_layer ? planned.layers : std::vector<int>(),
                    .last_only = only_wanted_rows(stage)});
  }
  return list;
}

Result<Looked> Looked::create(const LookRequest& request, const Plan& plan) {
  const std::map<Stage, PlannedStage> planned = planned_stages(plan);
  DOPPLER_ASSIGN(const std::vector<Stage> stages, stages_of(request, planned));
  Looked looked;
  looked.request_ = request;
  for (const Stage stage : stages) {
    const PlannedStage& where = planned.at(stage);
    const bool per_layer = stage_info(stage).per_layer;
    for (const int layer : where.layers) {
      if (per_layer && !request.layers.empty() &&
          std::ranges::find(request.layers, layer) == request.layers.end())
        continue;
      looked.places_[{stage, layer}] = {where.width, where.heads};
    }
    for (const int layer : request.layers) {
      if (!per_layer || std::ranges::find(where.layers, layer) != where.layers.end()) continue;
      return fail(ErrorCode::kUsage, "The stage {} is not computed in layer {}; it is in the layers {}.",
                  stage_name(stage), layer, fmt::join(where.layers, ", "));
    }
    for (const std::uint32_t dim : request.dims) {
      if (dim < where.width || where.width == 0) continue;
      return fail(ErrorCode::kUsage, "The stage {} has no dim {}; its rows have {} values.",
                  stage_name(stage), dim, where.width);
    }
  }
  return looked;
}

bool Looked::wants_logit_rows() const {
  return std::ranges::any_of(places_, [](const auto& place) { return only_wanted_rows(place.first.first); });
}

Result<std::set<std::int64_t>> Looked::tokens(std::size_t prompt_tokens) const {
  std::set<std::int64_t> tokens;
  const auto count = static_cast<std::int64_t>(prompt_tokens);
  for (const std::int64_t token : request_.tokens) {
    const std::int64_t position = token < 0 ? count + token : token;
    if (position < 0) {
      return fail(ErrorCode::kUsage, "The look asks for the token {}, but the prompt has {} tokens.", token,
                  prompt_tokens);
    }
    tokens.insert(position);
  }
  return tokens;
}

std::uint64_t Looked::bytes(std::uint64_t rows, std::uint64_t positions) const {
  Checked floats;
  for (const auto& [key, place] : places_) {
    const Checked whole = place.width == 0 ? Checked(place.heads) * Checked(positions) : Checked(place.width);
    floats = floats + Checked(rows) *
                          (request_.dims.empty() || place.width == 0 ? whole : Checked(request_.dims.size()));
  }
  return (floats * Checked(sizeof(float))).value_or(UINT64_MAX);
}

Columns LookTap::columns(Stage stage, int /*layer*/) const {
  const std::vector<std::uint32_t>& dims = looked_.request().dims;
  if (dims.empty() || stage == Stage::kAttnScores) return {};
  const auto [low, high] = std::ranges::minmax(dims);
  return {low, std::size_t{high} - low + 1};
}

void LookTap::on_stage(const TapEvent& event) {
  const LookRequest& request = looked_.request();
  const bool whole = request.dims.empty() || event.stage == Stage::kAttnScores;
  StageValues values{.stage = std::string(stage_name(event.stage)),
                     .layer = event.layer,
                     .tokens = {},
                     .width = event.width,
                     .heads = event.heads,
                     .dims = whole ? std::vector<std::uint32_t>() : request.dims,
                     .values = {},
                     .statistics = {}};
  const std::vector<std::size_t> rows = row_tokens(event);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::int64_t position = event.input->positions[rows[row]];
    if (!tokens_.empty() && !tokens_.contains(position)) continue;
    values.tokens.push_back(position);
    const std::span<const float> data = event.data.subspan(row * event.shown(), event.shown());
    if (whole) values.values.insert(values.values.end(), data.begin(), data.end());
    for (const std::uint32_t dim : values.dims) values.values.push_back(data[dim - event.first_column]);
  }
  if (values.tokens.empty()) return;
  if (request.statistics) values.statistics = measure(values.values);
  if (!request.values) values.values.clear();
  on_values_(std::move(values));
}

void LookCollector::add(StageValues values) {
  const auto [found, is_new] = index_.try_emplace({values.stage, values.layer}, all_.size());
  if (is_new) return all_.push_back(std::move(values));
  StageValues& all = all_[found->second];
  const std::size_t width = std::max(all.width, values.width);
  widen_scores(all, width);
  widen_scores(values, width);
  all.width = width;
  all.tokens.insert(all.tokens.end(), values.tokens.begin(), values.tokens.end());
  all.values.insert(all.values.end(), values.values.begin(), values.values.end());
  all.statistics.append(values.statistics);
}

Result<std::unique_ptr<WatchTaps>> WatchTaps::create(std::span<const Watch> watches, const Plan& plan,
                                                     std::size_t prompt_tokens, Tap* besides) {
  std::unique_ptr<WatchTaps> taps(new WatchTaps());
  taps->list_.add(besides);
  taps->looked_.reserve(watches.size());  // no reallocation: the taps refer to the elements
  for (const Watch& watch : watches) {
    if (!watch.on_values) return fail(ErrorCode::kUsage, "A watch has nothing to call. Give it on_values.");
    DOPPLER_ASSIGN(Looked looked, Looked::create(watch.what, plan));
    taps->looked_.push_back(std::move(looked));
    DOPPLER_ASSIGN(std::set<std::int64_t> tokens, taps->looked_.back().tokens(prompt_tokens));
    taps->taps_.push_back(
        std::make_unique<LookTap>(taps->looked_.back(), std::move(tokens),
                                  [&call = watch.on_values](StageValues values) { call(values); }));
    taps->list_.add(taps->taps_.back().get());
  }
  return taps;
}

}  // namespace doppler
