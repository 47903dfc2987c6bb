#include "diagnosis/report/report_doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/report/report_files.h"
#include "diagnosis/report/report_html.h"
#include "page/page.h"

namespace doppler::diagnosis {
namespace {

// "quantisation, recording (no --reference is given)": what no check looked at, by reason.
std::vector<std::string> unseen(const Diagnosis& diagnosis) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const CheckResult& check : diagnosis.checks) {
    if (check.state != CheckState::kSkipped) continue;
    auto known = std::ranges::find(reasons, check.text, &decltype(reasons)::value_type::first);
    if (known == reasons.end()) known = reasons.insert(reasons.end(), {check.text, {}});
    known->second.emplace_back(check.name);
  }
  std::vector<std::string> out;
  for (const auto& [reason, names] : reasons)
    out.push_back(fmt::format("Not examined: {} ({}).", join(names, ", "), reason));
  return out;
}

page::Head head_of_diagnosis(const Diagnosis& diagnosis, const DiagnosisContext& context) {
  const auto skipped = static_cast<std::size_t>(
      std::ranges::count(diagnosis.checks, CheckState::kSkipped, &CheckResult::state));
  page::Head head{.title = page::last_part(context.model),
                  .outcome = page::Outcome::kGood,
                  .word = "Healthy",
                  .verdict = counted(diagnosis.checks.size() - skipped, "check") + " found nothing.",
                  .facts = {{"Model", context.model},
                            {"Reference", context.reference},
                            {"Source", context.source},
                            {"Backend", context.backend},
                            {"Fault put in", context.injected}}};
  if (!diagnosis.healthy()) {
    const Finding& first = diagnosis.findings.front();
    const std::size_t others = diagnosis.findings.size() - 1;
    head.outcome = page::Outcome::kBad;
    head.word = "Sick: " + counted(diagnosis.findings.size(), "finding");
    head.verdict = first.explanation;
    if (!first.repair.empty()) head.more.push_back("Repair: " + first.repair);
    if (others > 0) head.more.push_back(fmt::format("{} more below.", counted(others, "finding")));
  } else {  // what nobody looked at may be sick
    for (std::string& sentence : unseen(diagnosis)) head.more.push_back(std::move(sentence));
  }
  return head;
}

}  // namespace

Json report_json(const Diagnosis& diagnosis) {
  std::vector<std::string_view> names;
  for (const JudgedOp& op : diagnosis.ops) names.push_back(stage_name(op.stage));
  Json json = to_json(diagnosis);
  for (Json& op : json["ops"])
    op["excess"] = op["excess"].is_number() ? page::number(op["excess"].get<double>()) : Json(nullptr);
  json["order"] = order_json(names);
  return json;
}

std::string report_html(const Diagnosis& diagnosis, const DiagnosisContext& context) {
  const auto text = [](std::string_view name) { return page::find_file(report_files(), name); };
  return page::html(
      {.kind = "diagnosis", .body = text("doctor.html"), .scripts = {text("errors.js"), text("doctor.js")}},
      head_of_diagnosis(diagnosis, context), report_json(diagnosis));
}

}  // namespace doppler::diagnosis
