// doppler compare: a model against a recording, another backend or another model, or two recordings, stage by
// stage.
#include <fmt/core.h>

#include "base/files.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/auto_reference.h"
#include "cli/command.h"
#include "cli/html_page.h"
#include "cli/looking.h"
#include "cli/models.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/look/tapped_backend.h"
#include "diagnosis/report/report_html.h"
#include "diagnosis/report/report_text.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

struct CompareArguments {
  std::string model, other, reference, with, with_model, html;
  PromptFlags prompt;
  std::uint32_t steps = 10;  // as record's
  diagnosis::CompareOptions options;
  bool all = false, quick = false;
  LookFlags look;
};

const TensorView* first_quantised(const Model& model) {
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (is_quantised(tensor.dtype)) return &tensor;
  }
  return nullptr;
}

// The pieces of text that the ids stand for, if the model has a tokenizer.
std::vector<std::string> pieces_of(const Model& model, const diagnosis::Recording& recording) {
  std::vector<std::string> pieces;
  const auto tokenizer = load_tokenizer_if_any(model.files);
  if (!tokenizer || !*tokenizer) return pieces;
  for (const std::int32_t id : recording.prompt_ids)
    pieces.push_back(utf8_lossy((*tokenizer)->piece(static_cast<TokenId>(id)).value_or("")));
  return pieces;
}

// What the doctor makes of a difference: its findings, and where they come from. Empty where nobody asked it.
struct LikelyCause {
  Json findings;
  std::string looked;
};

// Asks the doctor's checks of ops, for the page alone: a person who only wants the comparison does not wait.
LikelyCause find_cause(const CompareArguments& arguments, const Settings& settings, const Loaded& loaded,
                       const diagnosis::Recording& recording) {
  diagnosis::DoctorOptions options{.reference = &recording, .only = {"recording", "truth", "ops"}};
  const auto failed = [](const Error& error) {
    return LikelyCause{Json::array(), "The doctor could not look: " + error.message};
  };
  diagnosis::Subject subject = diagnosis::subject_of(loaded, settings.load.backend);
  const Result<BackendOptions> made = backend_options(settings.load, loaded.model->spec, 1);
  if (!made) return failed(made.error());
  subject.options = *made;
  ProgressBar bar;
  options.on_check = [&, done = 0](const diagnosis::CheckResult&) mutable {
    bar.update(++done / static_cast<double>(options.only.size()), "looking for the cause");
  };
  bar.update(0, "looking for the cause");
  const Result<diagnosis::Diagnosis> diagnosis = diagnosis::diagnose(subject, options);
  if (!diagnosis) return failed(diagnosis.error());
  return {
      .findings = to_json(*diagnosis)["findings"],
      .looked = fmt::format("{} The doctor ran each op alone for this; doppler doctor {} --reference {} "
                            "asks everything that it knows.",
                            diagnosis->healthy() ? "No cause that the doctor knows explains the difference."
                                                 : "What would explain the difference, and its repair.",
                            arguments.model, arguments.reference)};
}

// `model` may be null: then ids have no text.
Status write_report(const CompareArguments& arguments, const Model* model,
                    const diagnosis::Recording& recording, const diagnosis::Comparison& comparison,
                    const LikelyCause& cause) {
  std::string reference = arguments.reference;
  for (const std::string* other : {&arguments.other, &arguments.with, &arguments.with_model}) {
    if (reference.empty()) reference = *other;
  }
  const diagnosis::ReportContext context = {
      .model = arguments.model,
      .reference = reference,
      .prompt_ids = recording.prompt_ids,
      .pieces = model == nullptr ? std::vector<std::string>() : pieces_of(*model, recording),
      .findings = cause.findings,
      .looked = cause.looked};
  return write_page(arguments.html, diagnosis::report_html(comparison, context));
}

std::string describe_logits(std::string_view what, const diagnosis::LogitsAgreement& logits) {
  std::string text =
      fmt::format("{}: KL divergence {:.2e} on average, at most {:.2e}; top-1 equal in {} of {}", what,
                  logits.mean_kl, logits.largest_kl, logits.top1_equal, logits.rows);
  if (logits.first_unsure) {
    text += fmt::format("; from row {} on the best two lie closer than the error", *logits.first_unsure);
  }
  return text + "\n";
}

// Results beside the table: agreement of the logits, and stages that only one side has.
std::string describe_rest(const diagnosis::Comparison& comparison) {
  std::string text;
  if (!comparison.not_shared.empty()) {
    text += fmt::format("{} stages are in one recording only, {} first\n", comparison.not_shared.size(),
                        comparison.not_shared.front());
  }
  if (!comparison.elsewhere.empty()) {
    text += fmt::format("{} recorded stages hold what this model computes in other stages, {} first\n",
                        comparison.elsewhere.size(), comparison.elsewhere.front());
  }
  std::size_t near_choices = 0;
  for (const diagnosis::StageComparison& stage : comparison.stages) near_choices += stage.near_choices;
  if (near_choices > 0) {
    text += fmt::format(
        "{} choices of experts fell on another one whose score is the same within the "
        "tolerance\n",
        near_choices);
  }
  if (comparison.prompt_logits) text += describe_logits("prompt", *comparison.prompt_logits);
  if (comparison.decode_logits) text += describe_logits("decode", *comparison.decode_logits);
  return text;
}

Result<int> report(const CompareArguments& arguments, const SettingFlags& given, std::string_view backend,
                   std::span<const Fallback> fallbacks, const Model* model,
                   const diagnosis::Recording& recording, const diagnosis::Comparison& comparison,
                   const LikelyCause& cause = {}) {
  if (!arguments.html.empty()) DOPPLER_TRY(write_report(arguments, model, recording, comparison, cause));
  if (given.json) {
    Json json = diagnosis::comparison_json(comparison, backend);
    json["fallbacks"] = fallbacks_json(fallbacks);
    DOPPLER_TRY(print_json(json));
  } else {
    const diagnosis::TableStyle style{.width = table_columns(), .colour = colours(), .all = arguments.all};
    std::string text = fmt::format("{}: {}{}", backend, diagnosis::comparison_table(comparison, style),
                                   describe_rest(comparison));
    if (!comparison.agrees() && model != nullptr) {
      text += fmt::format("why: doppler doctor {}{}\n", arguments.model,
                          arguments.reference.empty() ? "" : " --reference " + arguments.reference);
    }
    DOPPLER_TRY(print(wrap(text, style.width, 4)));
  }
  tell_page(arguments.html);
  return comparison.agrees() ? kDone : kAnswerIsNo;
}

// A backend for a loaded model, with room for the whole sequence.
Result<std::unique_ptr<Backend>> backend_for(const Model& model, const Settings& settings, std::size_t tokens,
                                             std::uint32_t slots) {
  LoadOptions load = settings.load;
  if (load.context == 0) load.context = std::max<std::uint64_t>(choose_context(0, model.spec), tokens);
  DOPPLER_ASSIGN(const BackendOptions options, backend_options(load, model.spec, slots));
  std::string choice;
  DOPPLER_ASSIGN(auto backend, make_backend(load.backend, model.spec, model.weights, options, &choice));
  tell_backend(choice, *backend, settings);
  return backend;
}

// Runs the comparison with the probes and traces that were asked for.
Result<diagnosis::Comparison> run_against(const CompareArguments& arguments, const SettingFlags& given,
                                          const Model& model, Backend& backend,
                                          const diagnosis::Recording& expected) {
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, model.spec, backend, nullptr));
  DOPPLER_TRY(looking->begin(expected.prompt_ids.size(), true));
  diagnosis::TappedBackend tapped(backend, looking->tap());
  DOPPLER_ASSIGN(diagnosis::Comparison comparison,
                 diagnosis::compare_run(tapped, model.spec, expected, arguments.options, &model.weights));
  looking->end();
  return comparison;
}

Result<int> compare_reference(const CompareArguments& arguments, const SettingFlags& given) {
  if (arguments.prompt.text_option.given() || !arguments.prompt.ids.empty()) {
    return fail(ErrorCode::kUsage,
                "A recording has its own prompt, so another has no effect with --reference. Leave it out.");
  }
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  DOPPLER_ASSIGN(Model read, load_model(arguments.model, settings.load.family));
  Loaded loaded{.model = std::make_shared<Model>(std::move(read))};
  const Model& model = *loaded.model;
  DOPPLER_ASSIGN(loaded.tokenizer, load_tokenizer_if_any(model.files));
  DOPPLER_ASSIGN(const std::string file, find_reference(arguments.reference, arguments.model, model,
                                                        usual_prompt(model, loaded.tokenizer.has_value())));
  DOPPLER_ASSIGN(const diagnosis::Recording recording, diagnosis::open_recording(file));
  DOPPLER_ASSIGN(auto backend,
                 backend_for(model, settings, recording.prompt_ids.size() + recording.greedy_ids.size(),
                             arguments.options.companion ? 2 : 1));
  DOPPLER_ASSIGN(const diagnosis::Comparison comparison,
                 run_against(arguments, given, model, *backend, recording));
  const std::string name(backend->name());
  const std::vector<Fallback> fallbacks = backend->fallbacks();
  LikelyCause cause;
  if (!arguments.html.empty() && !comparison.agrees()) {
    backend.reset();  // the doctor makes its own, and both at once may be more than the memory holds
    cause = find_cause(arguments, settings, loaded, recording);
  }
  DOPPLER_ASSIGN(const int status,
                 report(arguments, given, name, fallbacks, &model, recording, comparison, cause));
  if (!given.json && status != kDone) {
    if (const TensorView* weight = first_quantised(model)) {
      say(Said::kNote,
          "The weights are quantised ({} in {}), so a recording of the float model differs. To check the "
          "backend, record these weights: doppler record {} --backend reference.",
          dtype_name(weight->dtype), weight->name, arguments.model);
    }
  }
  return status;
}

Result<std::vector<TokenId>> ids_of_prompt(const PromptFlags& prompt, const Loaded& loaded) {
  if (!prompt.ids.empty()) return prompt.ids;
  DOPPLER_ASSIGN(const std::string text, prompt_text(prompt));
  return tokenize_prompt(loaded, text);
}

// Another backend runs the prompt and chooses tokens; this one is fed the same.
Result<int> compare_backends(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  Settings other = settings;
  other.load.backend = arguments.with;
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, other, 1));
  diagnosis::CaptureOptions capture{
      .decode_steps = arguments.steps,
      .metadata = diagnosis::model_metadata(arguments.model, loaded.model->weights)};
  DOPPLER_ASSIGN(capture.prompt_ids, ids_of_prompt(arguments.prompt, loaded));
  DOPPLER_ASSIGN(const diagnosis::Recording expected, diagnosis::capture_run(*loaded.backend, capture));
  loaded.backend.reset();  // both at once may be more than the memory holds
  const Model& model = *loaded.model;
  DOPPLER_ASSIGN(const auto backend,
                 backend_for(model, settings, expected.prompt_ids.size() + expected.greedy_ids.size(),
                             arguments.options.companion ? 2 : 1));
  DOPPLER_ASSIGN(const diagnosis::Comparison comparison,
                 run_against(arguments, given, model, *backend, expected));
  return report(arguments, given, backend->name(), backend->fallbacks(), &model, expected, comparison);
}

// This model runs the prompt and chooses tokens; the other is fed the same tokens, and this one is compared
// with it.
Result<int> compare_models(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, settings, 1));
  diagnosis::CaptureOptions capture{
      .decode_steps = arguments.steps,
      .metadata = diagnosis::model_metadata(arguments.model, loaded.model->weights)};
  DOPPLER_ASSIGN(capture.prompt_ids, ids_of_prompt(arguments.prompt, loaded));
  DOPPLER_ASSIGN(const diagnosis::Recording found, diagnosis::capture_run(*loaded.backend, capture));
  const std::string backend(loaded.backend->name());
  const diagnosis::ComparedModel compared{.spec = loaded.model->spec,
                                          .weights = loaded.model->weights,
                                          .context = loaded.backend->options().context,
                                          .threads = loaded.backend->options().threads};
  std::vector<Fallback> fallbacks = loaded.backend->fallbacks();
  loaded.backend.reset();
  // A GGUF file says its architecture itself.
  const std::string family = is_gguf(arguments.with_model) ? std::string() : settings.load.family;
  DOPPLER_ASSIGN(const Model other, load_model(arguments.with_model, family));
  DOPPLER_ASSIGN(const auto second,
                 backend_for(other, settings, found.prompt_ids.size() + found.greedy_ids.size(), 1));
  capture.greedy_ids = found.greedy_ids;
  capture.metadata = diagnosis::model_metadata(arguments.with_model, other.weights);
  DOPPLER_ASSIGN(const diagnosis::Recording expected, diagnosis::capture_run(*second, capture));
  DOPPLER_ASSIGN(const diagnosis::Comparison comparison,
                 diagnosis::compare_recordings(found, expected, &compared, arguments.options));
  fallbacks.insert(fallbacks.end(), second->fallbacks().begin(), second->fallbacks().end());
  return report(arguments, given, backend, fallbacks, loaded.model.get(), expected, comparison);
}

Result<int> compare_files(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const diagnosis::Recording found, diagnosis::open_recording(arguments.model));
  DOPPLER_ASSIGN(const diagnosis::Recording expected, diagnosis::open_recording(arguments.other));
  DOPPLER_ASSIGN(const diagnosis::Comparison comparison,
                 diagnosis::compare_recordings(found, expected, nullptr, arguments.options));
  return report(arguments, given, diagnosis::describe_origin(found), {}, nullptr, expected, comparison);
}

Result<int> compare(CompareArguments arguments, const SettingFlags& given) {
  DOPPLER_TRY(check_page(arguments.html));
  arguments.options.local = !arguments.quick;
  const bool prompted = !arguments.with.empty() || !arguments.with_model.empty();
  if (!prompted) arguments.other = arguments.prompt.text;
  const int ways = !arguments.other.empty() + !arguments.reference.empty() + !arguments.with.empty() +
                   !arguments.with_model.empty();
  if (ways != 1) {
    return fail(ErrorCode::kUsage,
                "A comparison needs one other side, but {} are given. Give a second recording, --reference "
                "FILE, --with BACKEND or --with-model MODEL.",
                ways);
  }
  if (!arguments.reference.empty()) return compare_reference(arguments, given);
  if (!arguments.with.empty()) return compare_backends(arguments, given);
  return arguments.other.empty() ? compare_models(arguments, given) : compare_files(arguments, given);
}

}  // namespace

Run add_compare(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<CompareArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file, or a recording").required();
  arguments->prompt.text_option = command.add_option(
      "OTHER", arguments->prompt.text, "another recording, if the first is one; the prompt, for --with");
  Option reference = command
                         .add_option("--reference", arguments->reference,
                                     "a recording made by doppler record or transformers; auto: made by "
                                     "transformers now, where python3 has it")
                         .values({"auto"});
  std::vector<std::string> backends;
  for (const BackendInfo& backend : all_backends()) backends.emplace_back(backend.name);
  command.add_option("--with", arguments->with, "another backend, which runs the same prompt")
      .values(backends);
  add_model(command, given, "--with-model", arguments->with_model,
            "another model, such as another quantisation, fed the same tokens");
  add_prompt_ids_flag(command, arguments->prompt);
  command.add_option("--steps", arguments->steps, "greedy steps after the prompt, without a recording")
      .show_default()
      .not_with({reference});
  command.add_flag("--quick", arguments->quick,
                   "compare values only; without running each op again on the reference backend");
  command
      .add_option("--tolerance", arguments->options.tolerance,
                  "the only yardstick: allowed share of a stage's largest value; 0: what each op's rounding "
                  "explains, or else the backend's own")
      .not_negative();
  command.add_option("--piece", arguments->options.piece, "feed the prompt in pieces of so many tokens");
  command.add_flag("--companion", arguments->options.companion,
                   "run beside a second sequence that shares every step");
  add_html_flag(command, arguments->html, "the report");
  command.add_flag("--all", arguments->all, "print every stage");
  add_look_flags(command, arguments->look);
  // What it compares takes a step for each token.
  add_setting_flags(command, given, false, true, {"--submit-tokens"});
  return [arguments, &given] { return compare(*arguments, given); };
}

}  // namespace doppler::cli
