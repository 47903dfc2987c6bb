#include "diagnosis/doctor/doctor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "diagnosis/ailments.h"
#include "diagnosis/compare/recording_form.h"
#include "diagnosis/compare/text_side.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_fixes.h"
#include "engine/fallbacks.h"
#include "engine/messages.h"
#include "engine/sampler.h"

namespace doppler::diagnosis {
namespace doctor {
namespace {

Status check_names(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Ailment* check : ailments(AskedBy::kDoctor)) known.emplace_back(check->id);
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return fail(ErrorCode::kUsage, "There is no check {}. Checks are {}.", printable(name),
                join(known, ", "));
  }
  return {};
}

CheckResult run_check(const Ailment& check, const Examination& examination) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t before = examination.findings.size();
  CheckResult result{check.id, check.asks, CheckState::kOk, {}, 0};
  const Result<Outcome> outcome = check.check(examination);
  if (outcome) {
    result.state = outcome->state;
    result.text = outcome->text;
  } else {  // a call of the check failed: that is a symptom, too
    examination.find({.cause = "unknown", .explanation = outcome.error().message});
  }
  if (examination.findings.size() > before) {
    result.state = CheckState::kFinding;
    if (result.text.empty()) result.text = describe(examination.findings[before]);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// Findings from a recording tell how a weight was damaged, not only that its values look wrong.
bool names_damage(const Finding& finding) {
  const Cause* cause = find_cause(finding.cause);
  return finding.check == "truth" && cause != nullptr && cause->kind == CauseKind::kData &&
         cause->id != "weight_wrong";
}

}  // namespace

void Examination::find(Finding finding) const {
  if (const Cause* cause = find_cause(finding.cause)) {
    if (finding.explanation.empty()) finding.explanation = cause->explanation;
    if (finding.repair.empty()) finding.repair = cause->repair;
  }
  finding.check = check;
  for (Finding& other : findings) {
    // If two checks find the same, it is one finding; the check that knows more places counts.
    const bool same_place = other.stage == finding.stage && other.layer == finding.layer;
    // The source has the values, whatever became of them here.
    if (same_place && other.check == "weights" && other.cause == "stale_weight" &&
        finding.check == "source" && finding.cause == "weight_wrong") {
      other.fixes = std::move(finding.fixes);
      return;
    }
    if (same_place && other.check == "weights" && other.cause != finding.cause && names_damage(finding)) {
      finding.check = other.check;  // the finding about weights was its symptom
      other = std::move(finding);
      return;
    }
    if (other.cause != finding.cause || (!same_place && other.check != "recording")) continue;
    other.places = std::max(other.places, finding.places);
    other.confidence = std::max(other.confidence, finding.confidence);
    if (other.fixes.empty()) other.fixes = std::move(finding.fixes);
    return;
  }
  findings.push_back(std::move(finding));
}

}  // namespace doctor

namespace {

// In the order of a step, text first. Equals keep the order in which they were found.
void put_in_order(std::vector<Finding>& findings) {
  const auto place = [&](const Finding& finding) {
    const auto stage = stage_from_name(finding.stage);
    if (!stage) return std::pair(-2, 0);
    const bool begins = *stage == Stage::kEmbedOut;
    return std::pair(begins ? -1 : finding.layer >= 0 ? finding.layer : INT32_MAX, static_cast<int>(*stage));
  };
  for (std::size_t end = 1; end < findings.size(); ++end) {  // there are few
    for (std::size_t i = end; i > 0 && place(findings[i]) < place(findings[i - 1]); --i)
      std::swap(findings[i], findings[i - 1]);
  }
}

}  // namespace

Result<Diagnosis> diagnose(const Subject& subject, const DoctorOptions& options) {
  DOPPLER_TRY(doctor::check_names(options.only));
  Diagnosis diagnosis;
  DoctorOptions meant = options;
  std::optional<Recording> named;
  if (options.reference != nullptr)
    named = with_named_last_norm(*options.reference, subject.spec, subject.weights);
  if (named) meant.reference = &*named;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                             std::chrono::duration<double>(options.seconds));
  for (const Ailment* check : ailments(AskedBy::kDoctor)) {
    const bool wanted =
        options.only.empty() || std::ranges::find(options.only, check->id) != options.only.end();
    if (!wanted) continue;
    const doctor::Examination examination{
        subject,   meant,   diagnosis.findings, diagnosis.fallbacks, diagnosis.ops, diagnosis.untested,
        check->id, deadline};
    diagnosis.checks.push_back(doctor::run_check(*check, examination));
    if (options.on_check) options.on_check(diagnosis.checks.back());
  }
  put_in_order(diagnosis.findings);
  for (Finding& finding : diagnosis.findings) doctor::name_keys(subject.spec, finding);
  return diagnosis;
}

Subject subject_of(const Loaded& loaded, std::string backend_name) {
  Subject subject;
  subject.model = loaded.model.get();
  subject.spec = loaded.model->spec;
  subject.weights = loaded.model->weights;
  subject.tokenizer = loaded.tokenizer ? &*loaded.tokenizer : nullptr;
  subject.chat = loaded.chat ? &*loaded.chat : nullptr;
  if (loaded.backend) subject.options = loaded.backend->options();
  subject.options.kv_type.reset();  // each backend chooses its own
  const Loaded* parts = &loaded;
  subject.prompt_ids = [parts](std::string_view text) { return tokenize_prompt(*parts, text); };
  subject.chat_ids = [parts](std::span<const Message> messages) {
    return tokenize_messages(*parts, messages);
  };
  subject.text = text_side_of(loaded);
  subject.backend_name = std::move(backend_name);
  subject.sample = [](const GenerateOptions& options, TokenId pad_id, std::span<const float> logits,
                      std::span<const TokenId> history,
                      std::uint64_t draw) { return Sampler(options, pad_id).sample(logits, history, draw); };
  return subject;
}

Result<Plan> Subject::make_plan(std::uint64_t context) const {
  DOPPLER_ASSIGN(Plan made, build_plan(spec, weights, context));
  if (alter_plan) alter_plan(made);
  return made;
}

Result<std::unique_ptr<Backend>> Subject::make(const BackendOptions& with) const {
  if (backend) return backend(*this, with);
  return make_backend(backend_name, spec, weights, with);
}

namespace {

Json to_json(const Fix& fix) {
  constexpr std::array<std::string_view, 4> kKinds = {"setting", "tensor", "rename", "drop"};
  Json json = {{"kind", kKinds[static_cast<std::size_t>(fix.kind)]}, {"value", fix.value}};
  const bool setting = fix.kind == Fix::Kind::kSetting;
  json[setting ? "key" : "tensor"] = fix.target;
  if (setting) {
    json["file"] = fix.file;
    json["value"] = Json::parse(fix.value, nullptr, false);
  }
  if (fix.type) json["type"] = dtype_name(*fix.type);
  return json;
}

Json to_json(const Finding& finding) {
  const Cause* cause = find_cause(finding.cause);
  Json fixes = Json::array();
  for (const Fix& fix : finding.fixes) fixes.push_back(to_json(fix));
  return {{"fixes", std::move(fixes)},
          {"stage", finding.stage.empty() ? Json(nullptr) : Json(finding.stage)},
          {"layer", finding.layer >= 0 ? Json(finding.layer) : Json(nullptr)},
          {"cause", finding.cause},
          {"kind", cause == nullptr ? Json(nullptr) : Json(name_of(cause->kind))},
          {"explanation", finding.explanation},
          {"repair", finding.repair},
          {"confidence", finding.confidence},
          {"places", finding.places},
          {"among", finding.among},
          {"ruled_out", finding.ruled_out},
          {"check", finding.check},
          {"unwritten", finding.unwritten.empty() ? Json(nullptr) : Json(finding.unwritten)}};
}

Json to_json(const JudgedOp& op) {
  return {{"check", op.check},
          {"stage", stage_name(op.stage)},
          {"layer", op.layer >= 0 ? Json(op.layer) : Json(nullptr)},
          {"excess", std::isfinite(op.excess) ? Json(op.excess) : Json(nullptr)}};
}

constexpr std::array<std::string_view, 3> kStates = {"ok", "finding", "skipped"};

}  // namespace

Json to_json(const Diagnosis& diagnosis) {
  Json findings = Json::array(), checks = Json::array(), ops = Json::array();
  for (const Finding& finding : diagnosis.findings) findings.push_back(to_json(finding));
  for (const CheckResult& check : diagnosis.checks) {
    checks.push_back({{"name", check.name},
                      {"asks", check.asks},
                      {"state", kStates[static_cast<std::size_t>(check.state)]},
                      {"text", check.text},
                      {"seconds", check.seconds}});
  }
  for (const JudgedOp& op : diagnosis.ops) ops.push_back(to_json(op));
  return {{"healthy", diagnosis.healthy()}, {"findings", std::move(findings)},
          {"checks", std::move(checks)},    {"untested", diagnosis.untested},
          {"ops", std::move(ops)},          {"fallbacks", fallbacks_json(diagnosis.fallbacks)}};
}

std::string describe(const Finding& finding) {
  std::string text = fmt::format("{}: {}", finding.cause, finding.explanation);
  if (finding.places > 1) text += fmt::format(" ({} places show it.)", finding.places);
  text += fmt::format("\n    repair: {}", finding.repair);
  text += fmt::format("\n    confidence {:.0f} %", finding.confidence * 100);
  if (!finding.ruled_out.empty()) text += fmt::format("; ruled out: {}", finding.ruled_out);
  return text;
}

std::string_view name_of(CheckState state) {
  return kStates[static_cast<std::size_t>(state)];
}

}  // namespace doppler::diagnosis
