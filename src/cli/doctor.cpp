// doppler doctor: what is wrong with a model, and why.
#include <fmt/core.h>

#include "cli/command.h"
#include "cli/models.h"
#include "diagnosis/ailments.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/faults/faults.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

struct DoctorArguments {
  std::string model, reference, source;
  std::vector<std::string> only;
  double seconds = 30;
  std::string inject;
  bool list = false, list_faults = false, hashes = false;
};

Result<int> list_all(bool json) {
  Json causes = Json::array(), checks = Json::array(), symptoms = Json::array();
  std::string text = "checks\n";
  for (const diagnosis::Ailment* check : diagnosis::ailments(diagnosis::AskedBy::kDoctor)) {
    checks.push_back({{"name", check->id}, {"asks", check->asks}});
    text += fmt::format("  {:15} {}\n", check->id, check->asks);
  }
  text += "\nwhat doppler debug sees in a run\n";
  for (const diagnosis::Ailment* symptom : diagnosis::ailments(diagnosis::AskedBy::kDebug)) {
    symptoms.push_back({{"name", symptom->id}, {"asks", symptom->asks}});
    text += fmt::format("  {:22} {}\n", symptom->id, symptom->asks);
  }
  diagnosis::CauseKind kind = diagnosis::CauseKind::kOther;
  for (const diagnosis::Cause& cause : diagnosis::all_causes()) {
    causes.push_back({{"cause", cause.id},
                      {"kind", name_of(cause.kind)},
                      {"explanation", cause.explanation},
                      {"repair", cause.repair}});
    if (cause.kind != kind || &cause == &diagnosis::all_causes()[0])
      text += fmt::format("\ncauses: {}\n", name_of(cause.kind));
    kind = cause.kind;
    text += fmt::format("  {:22} {}\n  {:22}   {}\n", cause.id, cause.explanation, "", cause.repair);
  }
  DOPPLER_TRY(json ? print_json({{"checks", checks}, {"symptoms", symptoms}, {"causes", causes}})
                   : print(text));
  return kDone;
}

Result<int> list_faults(bool json) {
  Json faults = Json::array();
  std::string text;
  for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) {
    faults.push_back({{"fault", fault.name},
                      {"kind", name_of(fault.kind)},
                      {"cause", fault.cause},
                      {"meaning", fault.meaning}});
    text += fmt::format("{:26} {:12} {}{}\n", fault.name, name_of(fault.kind), fault.meaning,
                        fault.models.empty() ? "" : fmt::format(" ({})", fault.models));
  }
  DOPPLER_TRY(json ? print_json({{"faults", faults}}) : print(text));
  return kDone;
}

Result<int> answer(const diagnosis::Diagnosis& diagnosis, bool json) {
  if (json) {
    DOPPLER_TRY(print_json(to_json(diagnosis)));
  } else {
    std::string text = diagnosis.healthy() ? "\nhealthy\n" : "";
    for (std::size_t i = 0; i < diagnosis.findings.size(); ++i)
      text += fmt::format("\n{}. {}\n", i + 1, describe(diagnosis.findings[i]));
    DOPPLER_TRY(print(text));
  }
  return diagnosis.healthy() ? kDone : kAnswerIsNo;
}

// A path that does not exist is an error of the caller; every error in a model's files is a diagnosis.
bool is_diagnosis(const Error& error) {
  return error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kMismatch ||
         error.code == ErrorCode::kUnsupported;
}

Result<int> doctor(const DoctorArguments& arguments, const SettingFlags& given) {
  if (arguments.list) return list_all(given.json);
  if (arguments.list_faults) return list_faults(given.json);
  if (arguments.model.empty())
    return fail(ErrorCode::kUsage, "No MODEL is given. Give one, or --list to see what can be found.");
  diagnosis::DoctorOptions options{
      .hashes = arguments.hashes, .seconds = arguments.seconds, .only = arguments.only};
  std::optional<diagnosis::Recording> reference;
  if (!arguments.reference.empty()) {
    DOPPLER_ASSIGN(reference, diagnosis::open_recording(arguments.reference));
    options.reference = &*reference;
  }
  std::optional<Model> source;
  if (!arguments.source.empty()) {
    DOPPLER_ASSIGN(source, load_model(arguments.source));
    options.source = &*source;
  }
  Settings settings = given.flags;
  const std::string backend = settings.load.backend;
  settings.load.backend =
      "reference";  // the one that always loads; the doctor makes the one it examines itself
  const Result<Loaded> loaded = load_with_bar(arguments.model, settings, 1);
  if (!loaded) {
    if (!is_diagnosis(loaded.error())) return std::unexpected(loaded.error());
    const diagnosis::Diagnosis refused = diagnosis::diagnose_refusal(arguments.model, loaded.error());
    if (!given.json) DOPPLER_TRY(print(describe(refused.checks[0]) + "\n"));
    return answer(refused, given.json);
  }
  if (!given.json) {
    options.on_check = [](const diagnosis::CheckResult& check) { fmt::print("{}\n", describe(check)); };
  }
  diagnosis::Subject subject = diagnosis::subject_of(*loaded, backend);
  DOPPLER_ASSIGN(subject.options, backend_options(settings.load, loaded->model->spec, 1));
  if (!arguments.inject.empty()) DOPPLER_TRY(diagnosis::inject(arguments.inject, subject));
  DOPPLER_ASSIGN(const diagnosis::Diagnosis diagnosis, diagnosis::diagnose(subject, options));
  if (given.json) tell_fallbacks(diagnosis.fallbacks);  // else a line of the checks says so
  return answer(diagnosis, given.json);
}

}  // namespace

Run add_doctor(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<DoctorArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file");
  command.add_option("--reference", arguments->reference,
                     "the truth: a recording made by transformers, or by doppler record of a healthy model");
  command.add_option("--source", arguments->source, "the float model that MODEL was quantised from");
  command.add_option("--check", arguments->only, "only these checks; --list names them");
  command.add_option("--seconds", arguments->seconds, "what all checks may take together")
      .positive()
      .show_default();
  command.add_flag("--hashes", arguments->hashes, "print the SHA-256 of every file, however large");
  command.add_flag("--list", arguments->list, "list every check, and every cause that can be named");
  command.add_option("--inject", arguments->inject,
                     "put a fault in first, to see what is said of it; --list-faults names them");
  command.add_flag("--list-faults", arguments->list_faults, "list every fault that --inject knows");
  add_setting_flags(command, given, false);
  return [arguments, &given] { return doctor(*arguments, given); };
}

}  // namespace doppler::cli
