#include "diagnosis/compare/compare_json.h"

#include <cmath>

#include "base/json.h"

namespace doppler::diagnosis {
namespace {

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json optional_index(const std::optional<std::size_t>& index) {
  return index ? Json(*index) : Json(nullptr);
}

std::string_view phase_of(const StageComparison& c) {
  return c.key == "decode_logits" ? "decode" : "prefill";
}

Json errors_json(const std::vector<float>& errors) {
  Json list = Json::array();
  for (const float error : errors) list.push_back(finite(error));
  return list;
}

// `exchanged`: the truth is what `worst` calls found.
Json worst_json(const std::vector<WrongValue>& worst, bool exchanged = false) {
  Json list = Json::array();
  for (const WrongValue& value : worst) {
    list.push_back({{"token", value.token},
                    {"index", value.index},
                    {"expected", finite(exchanged ? value.found : value.expected)},
                    {"found", finite(exchanged ? value.expected : value.found)}});
  }
  return list;
}

// Of an execution plain loops are the truth; of a description the recording is, and what plain loops compute
// is what the description leads to.
Json op_json(const std::optional<OpError>& op, bool of_description) {
  if (!op) return nullptr;
  return {{"error", finite(op->error)},
          {"allowed", finite(op->allowed)},
          {"excess", finite(op->excess)},
          {"token", op->token},
          {"index", op->index},
          {"first_bad_token", optional_index(op->first_bad_token)},
          {"agrees", op->agrees()},
          {"unrecorded", op->unrecorded},
          {"token_errors", errors_json(op->token_errors)},
          {"worst", worst_json(op->worst, of_description)}};
}

Json stage_json(const StageComparison& c) {
  return {{"key", c.key},
          {"stage",
           c.stage == Stage::kNone ? c.key.substr(c.key.rfind('.') + 1) : std::string(stage_name(c.stage))},
          {"layer", c.layer >= 0 ? Json(c.layer) : Json(nullptr)},
          {"phase", phase_of(c)},
          {"computed", c.stage != Stage::kNone},
          {"error", finite(c.error)},
          {"tolerance", c.tolerance},
          {"largest", c.largest},
          {"agrees", c.agrees()},
          {"why", name_of(c.disagreement())},
          {"tokens", c.tokens},
          {"worst_token", c.worst_token},
          {"near_choices", c.near_choices},
          {"first_bad_token", optional_index(c.first_bad_token)},
          {"token_errors", errors_json(c.token_errors)},
          {"worst", worst_json(c.worst)},
          {"execution", op_json(c.execution, false)},
          {"description", op_json(c.description, true)},
          {"inherited", c.inherited ? finite(*c.inherited) : Json(nullptr)},
          {"untold", c.untold}};
}

Json logits_json(const std::optional<LogitsAgreement>& logits) {
  if (!logits) return nullptr;
  return {{"rows", logits->rows},
          {"top1_equal", logits->top1_equal},
          {"mean_kl", finite(logits->mean_kl)},
          {"largest_kl", finite(logits->largest_kl)},
          {"largest_kl_row", logits->largest_kl_row},
          {"smallest_margin", finite(logits->smallest_margin)},
          {"first_unsure", optional_index(logits->first_unsure)}};
}

// `token`: the first at which the stage's disagreement shows.
Json divergence_json(const StageComparison& c) {
  Json json = stage_json(c);
  const Disagreement why = c.disagreement();
  json["token"] = optional_index(why == Disagreement::kExecution     ? c.execution->first_bad_token
                                 : why == Disagreement::kDescription ? c.description->first_bad_token
                                                                     : c.first_bad_token);
  return json;
}

}  // namespace

std::string_view name_of(Disagreement why) {
  switch (why) {
    case Disagreement::kNone:
      return "none";
    case Disagreement::kNotComputed:
      return "not_computed";
    case Disagreement::kExecution:
      return "execution";
    case Disagreement::kDescription:
      return "description";
    case Disagreement::kTotal:
      return "total";
  }
  return "none";
}

Json comparison_json(const Comparison& comparison, std::string_view backend) {
  const StageComparison* first = comparison.first_divergence();
  Json stages = Json::array();
  for (const StageComparison& c : comparison.stages) stages.push_back(stage_json(c));
  Json decode = {{"steps", comparison.decode_steps}, {"top1_equal", comparison.top1_equal}};
  if (comparison.decode) {
    decode["error"] = finite(comparison.decode->error);
    decode["logits"] = stage_json(*comparison.decode);
  }
  return {{"agrees", comparison.agrees()},
          {"backend", backend},
          {"found", comparison.found},
          {"expected", comparison.expected},
          {"not_shared", comparison.not_shared},
          {"elsewhere", comparison.elsewhere},
          {"stages_compared", comparison.stages.size()},
          {"first_divergence", first ? divergence_json(*first) : Json(nullptr)},
          {"decode", decode},
          {"prompt_logits", logits_json(comparison.prompt_logits)},
          {"decode_logits", logits_json(comparison.decode_logits)},
          {"stages", stages}};
}

}  // namespace doppler::diagnosis
