// doppler record: every stage of a run, written to a file.
#include <fmt/core.h>

#include "base/files.h"
#include "base/json.h"
#include "base/screen.h"
#include "cli/command.h"
#include "cli/looking.h"
#include "cli/models.h"
#include "diagnosis/compare/recording.h"
#include "diagnosis/compare/text_side.h"
#include "diagnosis/look/tapped_backend.h"
#include "engine/fallbacks.h"
#include "engine/messages.h"

namespace doppler::cli {
namespace {

struct RecordArguments {
  std::string model, output;
  PromptFlags prompt;
  std::uint32_t steps = 10;  // as the recordings of the fixtures: enough for a wrong KV cache to show
  bool scores = false, chat = false;
  LookFlags look;
};

Result<std::vector<TokenId>> prompt_ids(const RecordArguments& arguments, const Loaded& loaded,
                                        const std::string& text) {
  if (!arguments.prompt.ids.empty()) return arguments.prompt.ids;
  if (arguments.chat) return tokenize_messages(loaded, std::vector<Message>{{"user", text}});
  return tokenize_prompt(loaded, text);
}

Result<int> record(const RecordArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const std::string text, prompt_text(arguments.prompt));
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, given.flags, 1));
  diagnosis::RecordOptions options{.decode_steps = arguments.steps, .attention_scores = arguments.scores};
  options.metadata = diagnosis::model_metadata(arguments.model, loaded.model->weights);
  DOPPLER_ASSIGN(options.prompt_ids, prompt_ids(arguments, loaded, text));
  if (loaded.tokenizer || loaded.chat) {
    DOPPLER_ASSIGN(const diagnosis::TextTruth truth,
                   diagnosis::text_truth_of(diagnosis::text_side_of(loaded), text));
    options.metadata[diagnosis::kTextEntry] = diagnosis::text_truth_json(truth);
  }
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, loaded));
  DOPPLER_TRY(looking->begin(options.prompt_ids.size(), true));
  diagnosis::TappedBackend backend(*loaded.backend, looking->tap());
  DOPPLER_TRY(diagnosis::record_run(backend, options, arguments.output));
  looking->end();
  if (given.json) {
    DOPPLER_TRY(print_json({{"file", arguments.output},
                            {"prompt_ids", options.prompt_ids},
                            {"decode_steps", options.decode_steps},
                            {"backend", loaded.backend->name()},
                            {"fallbacks", fallbacks_json(loaded.backend->fallbacks())}}));
  } else {
    say(Said::kNote, "{}: recorded {} prompt tokens and {} decode steps in {}", loaded.backend->name(),
        options.prompt_ids.size(), options.decode_steps, arguments.output);
  }
  return kDone;
}

}  // namespace

Run add_record(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<RecordArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(command, arguments->prompt);
  command.add_option("-o,--output", arguments->output, "the recording to write").required();
  command.add_option("--steps", arguments->steps, "greedy steps to record after the prompt").show_default();
  command.add_flag("--attn-scores", arguments->scores, "also the attention scores, which are large");
  command.add_flag("--chat", arguments->chat, "put the prompt through the model's chat template");
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, false, true);
  return [arguments, &given] { return record(*arguments, given); };
}

}  // namespace doppler::cli
