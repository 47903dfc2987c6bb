// doppler compare: a model against a recording, stage by stage.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/looking.h"
#include "inspect/compare.h"
#include "inspect/compare_json.h"
#include "inspect/report_html.h"
#include "inspect/report_text.h"
#include "inspect/tapped_backend.h"

namespace doppler::cli {
namespace {

struct CompareArguments {
  std::string model, reference, html;
  CompareOptions options;
  bool all = false;
  LookFlags look;
};

// As wide as the terminal, in colour if it is one and nobody asked for none (no-color.org).
TableStyle table_style(bool all) {
  TableStyle style{.width = 200, .all = all};  // a pipe cuts nothing
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  winsize size{};
  if (terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    style.width = size.ws_col;
  const char* refused = std::getenv("NO_COLOR");
  style.colour = terminal && (refused == nullptr || *refused == '\0');
  return style;
}

const TensorView* first_quantised(const Model& model) {
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (is_quantised(tensor.dtype)) return &tensor;
  }
  return nullptr;
}

// The pieces of text that the ids stand for, if the model has a tokenizer.
std::vector<std::string> pieces_of(const Model& model, const Recording& recording) {
  std::vector<std::string> pieces;
  const auto tokenizer = load_tokenizer_if_any(model.files);
  if (!tokenizer || !*tokenizer) return pieces;
  for (const std::int32_t id : recording.prompt_ids)
    pieces.push_back(utf8_lossy((*tokenizer)->piece(static_cast<TokenId>(id)).value_or("")));
  return pieces;
}

Status write_report(const CompareArguments& arguments, const Model& model, const Recording& recording,
                    const Comparison& comparison) {
  const ReportContext context = {.model = arguments.model,
                                 .reference = arguments.reference,
                                 .prompt_ids = recording.prompt_ids,
                                 .pieces = pieces_of(model, recording),
                                 .findings = nullptr};
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(arguments.html));
  DOPPLER_TRY(file.write(report_html(report_json(comparison, context))));
  return file.commit();
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
  DOPPLER_ASSIGN(const Comparison comparison,
                 compare_run(tapped, model.spec, recording, arguments.options, &model.weights));
  looking->end();
  if (!arguments.html.empty()) DOPPLER_TRY(write_report(arguments, model, recording, comparison));
  if (given.json)
    DOPPLER_TRY(print_json(comparison_json(comparison, backend->name())));
  else
    DOPPLER_TRY(print(
        fmt::format("{}: {}", backend->name(), comparison_table(comparison, table_style(arguments.all)))));
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
  command.add_option("--html", arguments->html,
                     "also write the report as an HTML page that needs no network");
  command.add_flag("--all", arguments->all, "print every stage");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, false, true);
  return [arguments, &given] { return compare(*arguments, given); };
}

}  // namespace doppler::cli
