// doppler compare: a model against a recording, stage by stage.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cli/command.h"
#include "inspect/compare.h"
#include "inspect/compare_json.h"
#include "inspect/compare_recordings.h"

namespace doppler::cli {
namespace {

struct CompareArguments {
  std::string model, other, reference, with, with_model;
  PromptFlags prompt;
  std::uint32_t steps = 10;  // as record's
  CompareOptions options;
  bool all = false, quick = false;
};

std::string_view phase_of(const StageComparison& c) {
  return c.key == "decode_logits" ? "decode" : "prefill";
}

std::string describe(const StageComparison& c) {
  if (c.stage == Stage::kNone) return fmt::format("{}: recorded, but this model does not compute it", c.key);
  if (!std::isfinite(c.error)) {
    return fmt::format("{}: NaN or Inf, where the recording's largest value is {:.4g}", c.key, c.largest);
  }
  return fmt::format("{}: error {:.1e} of the largest value {:.4g}, allowed {:.1e}", c.key, c.error,
                     c.largest, c.tolerance);
}

std::string describe_op(const OpError& op) {
  if (!std::isfinite(op.excess)) return "NaN, Inf or a difference where none is allowed";
  return fmt::format("{:.1e} where rounding explains {:.1e}, at token {}, place {}", op.error, op.allowed,
                     op.token, op.index);
}

// What is known of the stage's own op.
std::string describe_local(const StageComparison& c) {
  switch (c.disagreement()) {
    case Disagreement::kExecution:
      return fmt::format("  this op computes something else from its inputs than its plan says: {}\n",
                         describe_op(*c.execution));
    case Disagreement::kDescription:
      return fmt::format(
          "  by this model's description and weights, the recording's own inputs lead elsewhere: {}\n",
          describe_op(*c.description));
    case Disagreement::kTotal:
      if (!c.untold.empty()) return fmt::format("  {}\n", c.untold);
      if (c.execution && c.description) return "  this op is right: its inputs already differed\n";
      return {};
    default:
      return {};
  }
}

std::string describe_divergence(const Comparison& comparison, const StageComparison& first) {
  std::string text = fmt::format("DIVERGES first at {}\n", describe(first));
  if (first.first_bad_token) {
    text += fmt::format("  {} {}, in {}\n", phase_of(first) == "decode" ? "step" : "token",
                        *first.first_bad_token, phase_of(first));
  }
  text += describe_local(first);
  for (std::size_t i = 0; i < std::min<std::size_t>(3, first.worst.size()); ++i) {
    const WrongValue& value = first.worst[i];
    text += fmt::format("  token {}, place {}: {:.6g} instead of {:.6g}\n", value.token, value.index,
                        value.found, value.expected);
  }
  const auto at = static_cast<std::size_t>(&first - comparison.stages.data());
  if (phase_of(first) == "prefill" && at > 0) {
    const auto before = comparison.stages.begin() + static_cast<std::ptrdiff_t>(at);
    const bool agree =
        std::all_of(comparison.stages.begin(), before, [](const auto& c) { return c.agrees(); });
    if (agree) text += fmt::format("  everything before it agrees, up to {}\n", (before - 1)->key);
  }
  return text;
}

std::string describe_logits(std::string_view what, const LogitsAgreement& logits) {
  std::string text =
      fmt::format("{}: KL divergence {:.2e} on average, at most {:.2e}; top-1 equal in {} of {}", what,
                  logits.mean_kl, logits.largest_kl, logits.top1_equal, logits.rows);
  if (logits.first_unsure) {
    text += fmt::format("; from row {} on the best two lie closer than the error", *logits.first_unsure);
  }
  return text + "\n";
}

std::string to_text(const Comparison& comparison, bool all) {
  std::string text;
  double worst = 0;
  const StageComparison* worst_stage = nullptr;
  std::size_t judged = 0, explained = 0;
  for (const StageComparison& c : comparison.stages) {
    if (all) text += fmt::format("{} {}\n", c.agrees() ? "  " : "✗ ", describe(c));
    if (c.error >= worst) worst = c.error, worst_stage = &c;
    if (c.execution && c.description) ++judged;
    if (c.explained && c.first_bad_token) ++explained;
  }
  if (const StageComparison* first = comparison.first_divergence()) {
    text += describe_divergence(comparison, *first);
  } else if (!comparison.agrees()) {
    text += "DIVERGES in the chosen tokens, though every stage is within tolerance\n";
  } else {
    text += "agrees\n";
  }
  text += fmt::format("{} stages compared", comparison.stages.size());
  if (judged > 0) text += fmt::format(", {} judged by their own op", judged);
  if (worst_stage != nullptr) text += fmt::format(", worst {} with {:.1e}", worst_stage->key, worst);
  if (comparison.decode_steps > 0)
    text += fmt::format("; top-1 equal in {} of {} steps", comparison.top1_equal, comparison.decode_steps);
  text += '\n';
  if (explained > 0) {
    text += fmt::format("{} stages lie beyond the tolerance by rounding alone: every op is right by itself\n",
                        explained);
  }
  if (!comparison.not_shared.empty()) {
    text += fmt::format("{} stages are in one recording only, {} first\n", comparison.not_shared.size(),
                        comparison.not_shared.front());
  }
  if (comparison.prompt_logits) text += describe_logits("prompt", *comparison.prompt_logits);
  if (comparison.decode_logits) text += describe_logits("decode", *comparison.decode_logits);
  return text;
}

const TensorView* first_quantised(const Model& model) {
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (is_quantised(tensor.dtype)) return &tensor;
  }
  return nullptr;
}

Result<int> report(const CompareArguments& arguments, const SettingFlags& given, std::string_view backend,
                   const Comparison& comparison) {
  if (given.json)
    DOPPLER_TRY(print_json(comparison_json(comparison, backend)));
  else
    DOPPLER_TRY(print(fmt::format("{}: {}", backend, to_text(comparison, arguments.all))));
  return comparison.agrees() ? kDone : kAnswerIsNo;
}

// A backend for a model that is there, with room for the whole sequence.
Result<std::unique_ptr<Backend>> backend_for(const Model& model, LoadOptions load, std::size_t tokens,
                                             std::uint32_t slots) {
  if (load.context == 0) load.context = std::max<std::uint64_t>(choose_context(0, model.spec), tokens);
  DOPPLER_ASSIGN(const BackendOptions options, backend_options(load, model.spec, slots));
  std::string choice;
  DOPPLER_ASSIGN(auto backend, make_backend(load.backend, model.spec, model.weights, options, &choice));
  tell_choice(choice);
  return backend;
}

Result<int> compare_reference(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Recording recording, open_recording(arguments.reference));
  DOPPLER_ASSIGN(const Model model, load_model(arguments.model));
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  DOPPLER_ASSIGN(const auto backend, backend_for(model, settings.load_options(),
                                                 recording.prompt_ids.size() + recording.greedy_ids.size(),
                                                 arguments.options.companion ? 2 : 1));
  DOPPLER_ASSIGN(const Comparison comparison,
                 compare_run(*backend, model.spec, recording, arguments.options, &model.weights));
  DOPPLER_ASSIGN(const int status, report(arguments, given, backend->name(), comparison));
  if (!given.json && status != kDone) {
    if (const TensorView* weight = first_quantised(model)) {
      fmt::print(
          stderr,
          "The weights are quantised ({} in {}), so a recording of the float model differs. To check the "
          "backend, record these weights: doppler record {} --backend reference.\n",
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

// Another backend runs the prompt and chooses tokens; this one follows it.
Result<int> compare_backends(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  Settings other = settings;
  other.backend = arguments.with;
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, other, 1));
  CaptureOptions capture{.decode_steps = arguments.steps,
                         .metadata = model_metadata(arguments.model, loaded.model->weights)};
  DOPPLER_ASSIGN(capture.prompt_ids, ids_of_prompt(arguments.prompt, loaded));
  DOPPLER_ASSIGN(const Recording expected, capture_run(*loaded.backend, capture));
  loaded.backend.reset();  // both at once may be more than the memory holds
  const Model& model = *loaded.model;
  DOPPLER_ASSIGN(const auto backend, backend_for(model, settings.load_options(),
                                                 expected.prompt_ids.size() + expected.greedy_ids.size(),
                                                 arguments.options.companion ? 2 : 1));
  DOPPLER_ASSIGN(const Comparison comparison,
                 compare_run(*backend, model.spec, expected, arguments.options, &model.weights));
  return report(arguments, given, backend->name(), comparison);
}

// This model runs the prompt and chooses tokens; the other follows it, and is what this one is compared with.
Result<int> compare_models(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, settings, 1));
  CaptureOptions capture{.decode_steps = arguments.steps,
                         .metadata = model_metadata(arguments.model, loaded.model->weights)};
  DOPPLER_ASSIGN(capture.prompt_ids, ids_of_prompt(arguments.prompt, loaded));
  DOPPLER_ASSIGN(const Recording found, capture_run(*loaded.backend, capture));
  const std::string backend(loaded.backend->name());
  const ComparedModel compared{.spec = loaded.model->spec,
                               .weights = loaded.model->weights,
                               .context = loaded.backend->options().context,
                               .threads = loaded.backend->options().threads};
  loaded.backend.reset();
  DOPPLER_ASSIGN(const Model other, load_model(arguments.with_model));
  DOPPLER_ASSIGN(const auto second, backend_for(other, settings.load_options(),
                                                found.prompt_ids.size() + found.greedy_ids.size(), 1));
  capture.greedy_ids = found.greedy_ids;
  capture.metadata = model_metadata(arguments.with_model, other.weights);
  DOPPLER_ASSIGN(const Recording expected, capture_run(*second, capture));
  DOPPLER_ASSIGN(const Comparison comparison,
                 compare_recordings(found, expected, &compared, arguments.options));
  return report(arguments, given, backend, comparison);
}

Result<int> compare_files(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Recording found, open_recording(arguments.model));
  DOPPLER_ASSIGN(const Recording expected, open_recording(arguments.other));
  DOPPLER_ASSIGN(const Comparison comparison,
                 compare_recordings(found, expected, nullptr, arguments.options));
  return report(arguments, given, describe_origin(found), comparison);
}

Result<int> compare(CompareArguments arguments, const SettingFlags& given) {
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

Run add_compare(CLI::App& command, SettingFlags& given) {
  auto arguments = std::make_shared<CompareArguments>();
  command.add_option("MODEL", arguments->model, "a model folder or file, or a recording")->required();
  arguments->prompt.text_option = command.add_option(
      "OTHER", arguments->prompt.text, "another recording, if the first is one; the prompt, for --with");
  command.add_option("--reference", arguments->reference,
                     "a recording made by doppler record or transformers");
  command.add_option("--with", arguments->with, "another backend, which runs the same prompt");
  command.add_option("--with-model", arguments->with_model,
                     "another model, such as another quantisation, fed the same tokens");
  add_prompt_ids_flag(command, arguments->prompt);
  command.add_option("--steps", arguments->steps, "greedy steps after the prompt, without a recording")
      ->capture_default_str();
  command.add_flag("--quick", arguments->quick,
                   "compare values only; without running each op again on the reference backend");
  command
      .add_option("--tolerance", arguments->options.tolerance,
                  "the only yardstick: allowed share of a stage's largest value; 0: what each op's rounding "
                  "explains, or else the backend's own")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--piece", arguments->options.piece, "feed the prompt in pieces of so many tokens");
  command.add_flag("--companion", arguments->options.companion,
                   "run beside a second sequence that shares every step");
  command.add_flag("--all", arguments->all, "print every stage");
  add_setting_flags(command, given, false);
  return [arguments, &given] { return compare(*arguments, given); };
}

}  // namespace doppler::cli
