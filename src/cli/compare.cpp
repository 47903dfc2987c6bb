// doppler compare: a model against a recording, stage by stage.
#include <fmt/core.h>

#include <cmath>

#include "cli/command.h"
#include "cli/looking.h"
#include "inspect/compare.h"
#include "inspect/tapped_backend.h"

namespace doppler::cli {
namespace {

struct CompareArguments {
  std::string model, reference;
  CompareOptions options;
  bool all = false;
  LookFlags look;
};

// JSON has no infinity: an error without bound (NaN, or a stage that the model lacks) is null there.
Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string_view phase_of(const StageComparison& c) {
  return c.key == "decode_logits" ? "decode" : "prefill";
}

Json divergence_json(const StageComparison& c) {
  return {{"stage",
           c.stage == Stage::kNone ? c.key.substr(c.key.rfind('.') + 1) : std::string(stage_name(c.stage))},
          {"key", c.key},
          {"layer", c.layer >= 0 ? Json(c.layer) : Json(nullptr)},
          {"token", c.first_bad_token ? Json(*c.first_bad_token) : Json(nullptr)},
          {"phase", phase_of(c)},
          {"error", finite(c.error)},
          {"tolerance", c.tolerance},
          {"computed", c.stage != Stage::kNone}};
}

Json to_json(const Comparison& comparison, std::string_view backend) {
  const StageComparison* first = comparison.first_divergence();
  Json stages = Json::array();
  for (const StageComparison& c : comparison.stages) {
    stages.push_back({{"key", c.key},
                      {"error", finite(c.error)},
                      {"tolerance", c.tolerance},
                      {"largest", c.largest},
                      {"agrees", c.agrees()}});
  }
  Json decode = {{"steps", comparison.decode_steps}, {"top1_equal", comparison.top1_equal}};
  if (comparison.decode) decode["error"] = finite(comparison.decode->error);
  return {{"agrees", comparison.agrees()},
          {"backend", backend},
          {"stages_compared", comparison.stages.size()},
          {"first_divergence", first ? divergence_json(*first) : Json(nullptr)},
          {"decode", decode},
          {"stages", stages}};
}

std::string describe(const StageComparison& c) {
  if (c.stage == Stage::kNone) return fmt::format("{}: recorded, but this model does not compute it", c.key);
  if (!std::isfinite(c.error)) {
    return fmt::format("{}: NaN or Inf, where the recording's largest value is {:.4g}", c.key, c.largest);
  }
  return fmt::format("{}: error {:.1e} of the largest value {:.4g}, allowed {:.1e}", c.key, c.error,
                     c.largest, c.tolerance);
}

std::string to_text(const Comparison& comparison, bool all) {
  std::string text;
  double worst = 0;
  const StageComparison* worst_stage = nullptr;
  for (const StageComparison& c : comparison.stages) {
    if (all) text += fmt::format("{} {}\n", c.agrees() ? "  " : "✗ ", describe(c));
    if (c.error >= worst) worst = c.error, worst_stage = &c;
  }
  if (const StageComparison* first = comparison.first_divergence()) {
    text += fmt::format("DIVERGES first at {}\n", describe(*first));
    if (first->first_bad_token) {
      text += fmt::format("  {} {}, in {}\n", phase_of(*first) == "decode" ? "step" : "token",
                          *first->first_bad_token, phase_of(*first));
    }
    const auto at = static_cast<std::size_t>(first - comparison.stages.data());
    if (phase_of(*first) == "prefill" && at > 0)
      text += fmt::format("  everything before it agrees, up to {}\n", comparison.stages[at - 1].key);
  } else if (!comparison.agrees()) {
    text += "DIVERGES in the chosen tokens, though every stage is within tolerance\n";
  } else {
    text += "agrees\n";
  }
  text += fmt::format("{} stages compared", comparison.stages.size());
  if (worst_stage != nullptr) text += fmt::format(", worst {} with {:.1e}", worst_stage->key, worst);
  if (comparison.decode_steps > 0)
    text += fmt::format("; top-1 equal in {} of {} steps", comparison.top1_equal, comparison.decode_steps);
  return text + "\n";
}

const TensorView* first_quantised(const Model& model) {
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (is_quantised(tensor.dtype)) return &tensor;
  }
  return nullptr;
}

Result<int> compare(const CompareArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Recording recording, open_recording(arguments.reference));
  DOPPLER_ASSIGN(const Model model, load_model(arguments.model));
  DOPPLER_ASSIGN(const Settings settings, resolve_settings(given));
  LoadOptions load = settings.load_options();
  if (load.context == 0) {
    load.context = std::max<std::uint64_t>(choose_context(0, model.spec),
                                           recording.prompt_ids.size() + recording.greedy_ids.size());
  }
  DOPPLER_ASSIGN(const BackendOptions options,
                 backend_options(load, model.spec, arguments.options.companion ? 2 : 1));
  std::string choice;
  DOPPLER_ASSIGN(const auto backend, make_backend(load.backend, model.spec, model.weights, options, &choice));
  tell_choice(choice);
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, model.spec, *backend, nullptr));
  DOPPLER_TRY(looking->begin(recording.prompt_ids.size(), true));
  TappedBackend tapped(*backend, looking->tap());
  DOPPLER_ASSIGN(const Comparison comparison, compare_run(tapped, model.spec, recording, arguments.options));
  looking->end();
  if (given.json)
    DOPPLER_TRY(print_json(to_json(comparison, backend->name())));
  else
    DOPPLER_TRY(print(fmt::format("{}: {}", backend->name(), to_text(comparison, arguments.all))));
  if (!given.json && !comparison.agrees()) {
    if (const TensorView* weight = first_quantised(model)) {
      fmt::print(
          stderr,
          "The weights are quantised ({} in {}), so a recording of the float model differs. To check the "
          "backend, record these weights: doppler record {} --backend reference.\n",
          dtype_name(weight->dtype), weight->name, arguments.model);
    }
  }
  return comparison.agrees() ? kDone : kAnswerIsNo;
}

}  // namespace

Run add_compare(CLI::App& command, SettingFlags& given) {
  auto arguments = std::make_shared<CompareArguments>();
  command.add_option("MODEL", arguments->model, "a model folder or file")->required();
  command
      .add_option("--reference", arguments->reference, "a recording made by doppler record or transformers")
      ->required();
  command
      .add_option("--tolerance", arguments->options.tolerance,
                  "allowed share of a stage's largest value; 0: the backend's own")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--piece", arguments->options.piece, "feed the prompt in pieces of so many tokens");
  command.add_flag("--companion", arguments->options.companion,
                   "run beside a second sequence that shares every step");
  command.add_flag("--all", arguments->all, "print every stage");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, false, true);
  return [arguments, &given] { return compare(*arguments, given); };
}

}  // namespace doppler::cli
