// Looking inside: stages of a prompt, and how likely its tokens are.
#include "engine.h"
#include "engine/whole_prompt.h"
#include "options.h"

namespace doppler::web {
namespace {

// [tokens, columns], or [tokens, heads, columns of a head] of a stage that has heads.
Json shape_of(const StageValues& values) {
  if (values.heads > 1 && values.dims.empty())
    return {values.tokens.size(), values.heads, values.width / values.heads};
  return {values.tokens.size(), values.columns()};
}

}  // namespace

Json json_of(const TokenLogprobs& token) {
  Json top = Json::array();
  for (const LikelyToken& likely : token.top) top.push_back({{"id", likely.id}, {"logprob", likely.logprob}});
  return {{"id", token.id}, {"logprob", token.logprob}, {"top", std::move(top)}};
}

Json without_values(const StageValues& values) {
  Json json = {{"stage", values.stage},
               {"layer", values.layer < 0 ? Json(nullptr) : Json(values.layer)},
               {"tokens", values.tokens},
               {"shape", shape_of(values)}};
  if (!values.dims.empty()) json["dims"] = values.dims;
  if (values.statistics.count == 0) return json;
  const Statistics& s = values.statistics;
  json["statistics"] = {{"count", s.count}, {"min", s.min}, {"max", s.max},
                        {"mean", s.mean},   {"rms", s.rms}, {"max_abs", s.max_abs},
                        {"nan", s.nan},     {"inf", s.inf}, {"zeros", s.zeros}};
  return json;
}

Json json_of(const StageValues& values) {
  Json json = without_values(values);
  json["floats"] = {reinterpret_cast<std::uintptr_t>(values.values.data()), values.values.size()};
  return json;
}

Result<Json> WebEngine::look(const Json& request) {
  DOPPLER_TRY(need_model());
  drop_generation();
  looked_.clear();
  LookRequest wanted;
  DOPPLER_TRY(read_options(request.value("look", Json::object()), wanted));
  DOPPLER_ASSIGN(const std::vector<TokenId> prompt, prompt_ids(request));
  DOPPLER_ASSIGN(looked_, look_at(*session_, prompt, wanted));
  Json stages = Json::array();
  for (const StageValues& values : looked_) stages.push_back(without_values(values));
  return Json{{"ids", prompt}, {"stages", std::move(stages)}};
}

Result<Json> WebEngine::looked(const Json& request) {
  const std::size_t index = request.value("index", looked_.size());
  if (request.contains("index") && index < looked_.size()) return json_of(looked_[index]);
  looked_.clear();
  return Json::object();
}

Result<Json> WebEngine::score(const Json& request) {
  DOPPLER_TRY(need_model());
  drop_generation();
  const Json top = request.value("top", Json(0));
  if (!top.is_number_unsigned() || top.get<std::uint64_t>() > UINT32_MAX)
    return fail(ErrorCode::kUsage, "The option top is no whole number from 0 on. Give one.");
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, prompt_ids(request));
  DOPPLER_ASSIGN(const auto scores, score_all(*session_, ids, top.get<std::uint32_t>(), nullptr));
  Json logprobs = Json::array();
  for (const TokenLogprobs& token : scores) logprobs.push_back(json_of(token));
  return Json{{"ids", ids}, {"logprobs", std::move(logprobs)}};
}

}  // namespace doppler::web
