// doppler doctor: what is wrong with a model, and why.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/json.h"
#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/auto_reference.h"
#include "cli/command.h"
#include "cli/html_page.h"
#include "cli/models.h"
#include "cli/remedy.h"
#include "convert/repaired_copy.h"
#include "diagnosis/ailments.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/doctor/load_repaired.h"
#include "diagnosis/faults/faults.h"
#include "diagnosis/report/report_doctor.h"
#include "engine/fallbacks.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

struct DoctorArguments {
  std::string model, reference, source;
  std::vector<std::string> only;
  double seconds = 30;
  std::vector<std::string> inject;
  std::string html, fix;
  bool list = false, list_faults = false, hashes = false;
};

Result<int> list_all(bool json) {
  const std::size_t width = table_columns();
  const auto table = [] { return Table({{""}, {"", Column::Kind::kText}}); };
  Json causes = Json::array(), checks = Json::array(), symptoms = Json::array();
  Table asked = table(), seen = table();
  for (const diagnosis::Ailment* check : diagnosis::ailments(diagnosis::AskedBy::kDoctor)) {
    checks.push_back({{"name", check->id}, {"asks", check->asks}});
    asked.add({std::string(check->id), std::string(check->asks)});
  }
  for (const diagnosis::Ailment* symptom : diagnosis::ailments(diagnosis::AskedBy::kDebug)) {
    symptoms.push_back({{"name", symptom->id}, {"asks", symptom->asks}});
    seen.add({std::string(symptom->id), std::string(symptom->asks)});
  }
  std::string text =
      "checks\n" + asked.text(width, 2) + "\nwhat doppler debug sees in a run\n" + seen.text(width, 2);
  std::map<diagnosis::CauseKind, Table> by_kind;
  for (const diagnosis::Cause& cause : diagnosis::all_causes()) {
    causes.push_back({{"cause", cause.id},
                      {"kind", name_of(cause.kind)},
                      {"explanation", cause.explanation},
                      {"repair", cause.repair}});
    by_kind.try_emplace(cause.kind, table())
        .first->second.add({std::string(cause.id), fmt::format("{}\n  {}", cause.explanation, cause.repair)});
  }
  for (const auto& [kind, rows] : by_kind)
    text += fmt::format("\ncauses: {}\n", name_of(kind)) + rows.text(width, 2);
  DOPPLER_TRY(json ? print_json({{"checks", checks}, {"symptoms", symptoms}, {"causes", causes}})
                   : print(text));
  return kDone;
}

Result<int> list_faults(bool json) {
  Json faults = Json::array();
  Table table({{"fault"}, {"kind"}, {"puts in", Column::Kind::kText}});
  for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) {
    faults.push_back({{"fault", fault.name},
                      {"kind", name_of(fault.kind)},
                      {"cause", fault.cause},
                      {"meaning", fault.meaning}});
    table.add(
        {std::string(fault.name), std::string(name_of(fault.kind)),
         fmt::format("{}{}", fault.meaning, fault.models.empty() ? "" : fmt::format(" ({})", fault.models))});
  }
  DOPPLER_TRY(json ? print_json({{"faults", faults}}) : print(table.text(table_columns())));
  return kDone;
}

// Whether the model was held against a truth, and not only against itself.
bool has_truth(const diagnosis::Diagnosis& diagnosis) {
  return std::ranges::any_of(diagnosis.checks, [](const diagnosis::CheckResult& check) {
    return (check.name == "truth" || check.name == "source") &&
           check.state != diagnosis::CheckState::kSkipped;
  });
}

std::string verdict(const diagnosis::Diagnosis& diagnosis) {
  using enum diagnosis::CheckState;
  double seconds = 0;
  for (const diagnosis::CheckResult& check : diagnosis.checks) seconds += check.seconds;
  const auto skipped = std::ranges::count(diagnosis.checks, kSkipped, &diagnosis::CheckResult::state);
  const std::string found =
      diagnosis.healthy()
          ? fmt::format("healthy{}: nothing found", has_truth(diagnosis) ? "" : " as far as examined")
          : "sick: " + counted(diagnosis.findings.size(), "finding");
  return painted(found, diagnosis.healthy() ? Paint::kGood : Paint::kBad, colours()) +
         fmt::format(" by {} in {:.1f} s{}\n",
                     counted(diagnosis.checks.size() - static_cast<std::size_t>(skipped), "check"), seconds,
                     skipped > 0 ? fmt::format("; {} skipped", skipped) : "");
}

// The beginnings of the hashes in a text, which are longer than a line; --json and --hashes have them whole.
std::string with_short_hashes(const std::string& text) {
  constexpr std::size_t kDigits = 64, kShown = 12;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789abcdef", at), text.size());
    const bool hash = end - at == kDigits;
    out += hash ? text.substr(at, kShown) + "…" : text.substr(at, std::max<std::size_t>(end - at, 1));
    at = std::max(end, at + 1);
  }
  return out;
}

std::string table_of_checks(const diagnosis::Diagnosis& diagnosis, bool whole_hashes) {
  constexpr std::array<Paint, 3> kPaints = {Paint::kGood, Paint::kBad, Paint::kWarning};
  Table table(
      {{"check"}, {"", Column::Kind::kName}, {"s", Column::Kind::kNumber}, {"saw", Column::Kind::kText}});
  for (const diagnosis::CheckResult& check : diagnosis.checks) {
    table.add({std::string(check.name),
               painted(name_of(check.state), kPaints[static_cast<std::size_t>(check.state)], colours()),
               fmt::format("{:.3f}", check.seconds),
               whole_hashes ? check.text : with_short_hashes(check.text)});
  }
  return table.text(table_columns());
}

// The findings, one after the other, as people read them.
std::string numbered(const diagnosis::Diagnosis& diagnosis) {
  std::string text;
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i)
    text +=
        "\n" + wrap(fmt::format("{}. {}", i + 1, describe(diagnosis.findings[i])), table_columns(), 4) + "\n";
  return text;
}

// The verdict first, then what was found, then how. `backend`: the one that was examined.
Result<int> answer(const diagnosis::Diagnosis& diagnosis, const DoctorArguments& arguments,
                   const std::string& backend, bool json) {
  if (!arguments.html.empty()) {
    DOPPLER_TRY(write_page(
        arguments.html, diagnosis::report_html(
                            diagnosis, {.model = arguments.model,
                                        .reference = arguments.reference,
                                        .source = arguments.source,
                                        .backend = backend,
                                        .injected = fmt::format("{}", fmt::join(arguments.inject, ", "))})));
  }
  if (json) {
    DOPPLER_TRY(print_json(to_json(diagnosis)));
  } else {
    std::string text = wrap(verdict(diagnosis), table_columns(), 4);
    text += numbered(diagnosis);
    if (diagnosis.healthy() && !has_truth(diagnosis)) {
      text +=
          wrap(fmt::format(
                   "What moves text by little shows only beside a truth: doppler doctor {} --reference auto "
                   "(transformers), or --source FOLDER for a converted file.\n",
                   arguments.model),
               table_columns(), 4);
    }
    text += "\n" + table_of_checks(diagnosis, arguments.hashes);
    if (!diagnosis.untested.empty()) text += "\nThe recording does not test:\n";
    for (const std::string& what : diagnosis.untested)
      text += wrap("- " + what + ".", table_columns(), 2) + "\n";
    DOPPLER_TRY(print(text));
  }
  tell_page(arguments.html);
  return diagnosis.healthy() ? kDone : kAnswerIsNo;
}

// With a bar while it runs.
Result<diagnosis::Diagnosis> examine(diagnosis::Subject& subject, diagnosis::DoctorOptions options) {
  ProgressBar bar;
  const auto checks = static_cast<double>(diagnosis::ailments(diagnosis::AskedBy::kDoctor).size());
  options.on_check = [&, done = 0](const diagnosis::CheckResult& check) mutable {
    bar.update(++done / checks, check.name);
  };
  return diagnosis::diagnose(subject, options);
}

// Writes the repaired copy and examines it as the model was examined.
Result<int> repair(const diagnosis::Diagnosis& before, const ModelSpec& spec,
                   const DoctorArguments& arguments, const Settings& settings, const std::string& backend,
                   diagnosis::DoctorOptions options, bool json) {
  const Remedy remedy = find_remedy(before, spec, arguments.model, arguments.source);
  std::string text = wrap("before: " + verdict(before), table_columns(), 4) + numbered(before) + "\n";
  const auto lines = [&](const char* what, const std::vector<std::string>& all) {
    for (const std::string& line : all) text += wrap(fmt::format("{}: {}\n", what, line), table_columns(), 4);
  };
  lines("not repaired", remedy.left);
  if (remedy.changes.empty()) {
    text += before.healthy() ? "There is nothing to repair, so nothing is written.\n"
                             : "Nothing of this is repaired by a program, so nothing is written.\n";
    DOPPLER_TRY(json ? print_json({{"before", to_json(before)},
                                   {"written", nullptr},
                                   {"after", nullptr},
                                   {"not_repaired", remedy.left}})
                     : print(text));
    return before.healthy() ? kDone : kAnswerIsNo;
  }
  DOPPLER_TRY(convert::write_repaired_copy(arguments.model, spec, remedy.changes, arguments.fix));
  const Result<Loaded> loaded = load_with_bar(arguments.fix, settings, 1);
  diagnosis::Diagnosis after;
  if (!loaded) {
    if (!diagnosis::is_about_files(loaded.error())) return std::unexpected(loaded.error());
    after = diagnosis::diagnose_refusal(arguments.fix, loaded.error());
  } else {
    diagnosis::Subject subject = diagnosis::subject_of(*loaded, backend);
    DOPPLER_ASSIGN(subject.options, backend_options(settings.load, loaded->model->spec, 1));
    DOPPLER_ASSIGN(after, examine(subject, options));
  }
  lines("repaired", remedy.done);
  text += fmt::format("\nThe repaired copy is {}.\n", printable(arguments.fix, 200)) +
          wrap("after: " + verdict(after), table_columns(), 4) + numbered(after);
  DOPPLER_TRY(json ? print_json({{"before", to_json(before)},
                                 {"written", arguments.fix},
                                 {"repaired", remedy.done},
                                 {"not_repaired", remedy.left},
                                 {"after", to_json(after)}})
                   : print(text));
  return after.healthy() ? kDone : kAnswerIsNo;
}

// The model with these settings of its config.json changed, if there are any.
Result<Loaded> load_with(const std::string& model, const Settings& settings,
                         const std::vector<diagnosis::Fix>& changed) {
  if (changed.empty()) return load_with_bar(model, settings, 1);
  return load_changed(model, settings, 1, [&](Json& config) -> Status {
    for (const diagnosis::Fix& fix : changed)
      DOPPLER_TRY(convert::set_value(config, {fix.file, fix.target, fix.value}));
    return {};
  });
}

Result<int> doctor(const DoctorArguments& arguments, const SettingFlags& given) {
  if (arguments.list) return list_all(given.json);
  if (arguments.list_faults) return list_faults(given.json);
  if (arguments.model.empty())
    return fail(ErrorCode::kUsage, "No MODEL is given. Give one, or --list to see what can be found.");
  if (!arguments.fix.empty() && system::exists(arguments.fix))
    return fail(ErrorCode::kUsage, "The output {} exists already. Give a name that does not.",
                printable(arguments.fix, 200));
  DOPPLER_TRY(check_page(arguments.html));
  diagnosis::DoctorOptions options{
      .hashes = arguments.hashes, .seconds = arguments.seconds, .only = arguments.only};
  Settings settings = given.flags;
  const std::string backend = settings.load.backend;
  settings.load.backend =
      "reference";  // the one that always loads; the doctor makes the one it examines itself
  std::optional<Loaded> source;
  if (!arguments.source.empty()) {
    DOPPLER_ASSIGN(source, load_with_bar(arguments.source, settings, 1));
    options.source = &*source;
  }
  diagnosis::Diagnosis refused;  // while the model did not load
  const Result<Loaded> loaded =
      diagnosis::load_repaired(arguments.model, refused, [&](const std::vector<diagnosis::Fix>& changed) {
        return load_with(arguments.model, settings, changed);
      });
  if (!loaded) {
    if (!diagnosis::is_about_files(loaded.error())) return std::unexpected(loaded.error());
    if (arguments.fix.empty()) return answer(refused, arguments, backend, given.json);
    std::optional<diagnosis::Recording> truth;  // of the copy; one made now would need the model
    if (!arguments.reference.empty() && arguments.reference != "auto") {
      DOPPLER_ASSIGN(truth, diagnosis::open_recording(arguments.reference));
      options.reference = &*truth;
    }
    return repair(refused, {}, arguments, settings, backend, options, given.json);
  }
  std::optional<diagnosis::Recording> reference;
  if (!arguments.reference.empty()) {
    DOPPLER_ASSIGN(const std::string file,
                   find_reference(arguments.reference, arguments.model, *loaded->model,
                                  usual_prompt(*loaded->model, loaded->tokenizer.has_value())));
    DOPPLER_ASSIGN(reference, diagnosis::open_recording(file));
    options.reference = &*reference;
  }
  diagnosis::Subject subject = diagnosis::subject_of(*loaded, backend);
  DOPPLER_ASSIGN(subject.options, backend_options(settings.load, loaded->model->spec, 1));
  for (const std::string& fault : arguments.inject) DOPPLER_TRY(diagnosis::inject(fault, subject));
  DOPPLER_ASSIGN(diagnosis::Diagnosis diagnosis, examine(subject, options));
  diagnosis.findings.insert(diagnosis.findings.begin(), std::make_move_iterator(refused.findings.begin()),
                            std::make_move_iterator(refused.findings.end()));
  diagnosis.checks.insert(diagnosis.checks.begin(), std::make_move_iterator(refused.checks.begin()),
                          std::make_move_iterator(refused.checks.end()));
  if (given.json) tell_fallbacks(diagnosis.fallbacks);  // else a line of the checks says so
  if (!arguments.fix.empty())
    return repair(diagnosis, loaded->model->spec, arguments, settings, backend, options, given.json);
  return answer(diagnosis, arguments, backend, given.json);
}

}  // namespace

Run add_doctor(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<DoctorArguments>();
  Option model = add_model(command, given, "MODEL", arguments->model, "a model folder or file");
  Option reference = command
                         .add_option("--reference", arguments->reference,
                                     "the truth: a recording made by transformers, or by doppler record of a "
                                     "healthy model; auto: made by "
                                     "transformers now, where python3 has it")
                         .values({"auto"});
  Option source = add_model(command, given, "--source", arguments->source,
                            "the model that MODEL was converted from, as the truth for its values, texts "
                            "and weights");
  std::vector<std::string> checks, faults;
  for (const diagnosis::Ailment* check : diagnosis::ailments(diagnosis::AskedBy::kDoctor))
    checks.emplace_back(check->id);
  for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) faults.emplace_back(fault.name);
  Option only =
      command.add_option("--check", arguments->only, "only these checks, joined by commas; --list names them")
          .separator(',')
          .one_value_each()
          .values(checks);
  Option seconds = command.add_option("--seconds", arguments->seconds, "what all checks may take together")
                       .positive()
                       .show_default();
  Option hashes =
      command.add_flag("--hashes", arguments->hashes, "print the SHA-256 of every file, however large");
  Option inject =
      command
          .add_option("--inject", arguments->inject,
                      "put a fault in first, to see what is said of it, or several, joined by commas; "
                      "--list-faults names them")
          .separator(',')
          .one_value_each()
          .values(faults);
  Option html = add_html_flag(command, arguments->html, "the diagnosis");
  Option fix = command
                   .add_option("--fix", arguments->fix,
                               "write a repaired copy of the model here, where a value of its files or a "
                               "tensor's layout is what is wrong, and examine it")
                   .not_with({inject, html});
  Option list =
      command.add_flag("--list", arguments->list, "list every check, and every cause that can be named");
  const std::vector<Option> examining = {model, reference, source, only, seconds, hashes, inject, html, fix};
  list.not_with(examining);
  command.add_flag("--list-faults", arguments->list_faults, "list every fault that --inject knows")
      .not_with(examining)
      .not_with({list});
  add_setting_flags(command, given, false);
  return [arguments, &given]() -> Result<int> {
    if (arguments->list || arguments->list_faults)
      DOPPLER_TRY(refuse_flags(given, {}, arguments->list ? "with --list" : "with --list-faults"));
    return doctor(*arguments, given);
  };
}

}  // namespace doppler::cli
