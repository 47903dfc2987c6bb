// Shared by all commands: exit statuses, progress, results, prompts and the loading of models.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "cli/flags.h"
#include "cli/settings.h"
#include "doppler/doppler.h"
#include "engine/loaded.h"
#include "system/process.h"

namespace doppler::cli {

// Exit statuses.
inline constexpr int kDone = 0, kAnswerIsNo = 1, kWrongUsage = 2, kNotPossible = 3;
// Above it, as shells count: the number of the signal that ended the program, such as 130 for Ctrl-C.
inline constexpr int kSignalled = 128;

// Builds one command: adds its options and returns what runs after parsing.
using Run = std::function<Result<int>()>;
struct CommandInfo {
  std::string_view name;
  std::string_view what;
  Run (*add)(Command& command, SettingFlags& given);
};
std::span<const CommandInfo> all_commands();

Run add_run(Command& command, SettingFlags& given);
Run add_chat(Command& command, SettingFlags& given);
Run add_inspect(Command& command, SettingFlags& given);
Run add_tokenize(Command& command, SettingFlags& given);
Run add_record(Command& command, SettingFlags& given);
Run add_compare(Command& command, SettingFlags& given);
Run add_debug(Command& command, SettingFlags& given);
Run add_doctor(Command& command, SettingFlags& given);
Run add_bench(Command& command, SettingFlags& given);
Run add_test(Command& command, SettingFlags& given);
Run add_convert(Command& command, SettingFlags& given);
Run add_synth(Command& command, SettingFlags& given);
Run add_config(Command& command, SettingFlags& given);
Run add_completion(Command& command, SettingFlags& given);
Run add_pull(Command& command, SettingFlags& given);
Run add_list(Command& command, SettingFlags& given);
Run add_rm(Command& command, SettingFlags& given);
Run add_web(Command& command, SettingFlags& given);

// Writes to stdout. Errors: kIo (a full disk, a closed pipe).
Status print(std::string_view text);
// One JSON object and a newline; bytes that are no UTF-8 become U+FFFD.
Status print_json(const Json& object);
// Colours, for both streams; auto: on a terminal, unless NO_COLOR is set.
enum class ColourChoice : std::uint8_t { kAuto, kAlways, kNever };
void choose_colours(ColourChoice choice);
bool colours();  // on stdout
// The width for tables on stdout: the terminal's, without one that of the variable COLUMNS, else 80.
std::size_t table_columns();
// Lines that programs may read, too: wrapped where a terminal or COLUMNS gives a width, else left whole.
std::string fit_lines(std::string_view text);
// Whether print() failed because the reader of a pipe has gone, which nobody needs to be told.
bool output_is_cut();
// Whether print_json() was called: stdout has its object.
bool object_is_printed();
// Standard input to its end. Errors: kIo; kLimit for one that does not end.
Result<std::string> read_input();
// Its next line without the newline, of at most `most` bytes; nothing at its end. Errors: kLimit.
Result<std::optional<std::string>> read_line(std::size_t most);

// A progress bar on stderr while it lives, if stderr is a terminal.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  void update(double share, std::string_view what);

 private:
  const bool terminal_;
};

// While this lives, Ctrl-C, SIGTERM and a closed terminal cancel the token; a second signal of the same kind
// ends the program as usual.
class InterruptGuard {
 public:
  explicit InterruptGuard(CancelToken token);
  ~InterruptGuard();
  // The exit status after a signal that came meanwhile; `otherwise` if none did.
  int status(int otherwise) const;

 private:
  CancelToken token_;
  std::optional<system::EndingHandler> handler_;
};

// Prints on stderr the choice of make_backend, if not empty, and why the backend is slower than it could be.
// That there is no GPU is told only to those who asked for --backend auto: others can do nothing about it.
void tell_backend(std::string_view choice, const Backend& backend, const Settings& settings);

// Loads with a progress bar, and prints the choice.
Result<Engine> load_engine(const std::string& model, const Settings& settings);
// The same for commands that drive a backend themselves.
Result<Loaded> load_with_bar(const std::string& model, const Settings& settings, std::uint32_t slots);
// The same with a folder's config.json changed in memory.
using ConfigChange = std::function<Status(Json& config)>;
Result<Loaded> load_changed(const std::string& model, const Settings& settings, std::uint32_t slots,
                            const ConfigChange& change);

// The prompt options of commands that take a prompt.
struct PromptFlags {
  std::string text, system;
  std::vector<TokenId> ids;
  Option text_option, ids_option;
};
void add_prompt_flags(Command& command, PromptFlags& prompt);
// Only --prompt-ids.
void add_prompt_ids_flag(Command& command, PromptFlags& prompt);
// Standard input to its end, without the newline there.
Result<std::string> read_piped_text();
// The prompt's text: from its option, or from standard input if that is piped. Errors: kUsage if there is
// neither, or a prompt and ids.
Result<std::string> prompt_text(const PromptFlags& prompt);
// The prompt's tokens: its ids, or the text through the model's chat template, if it has one and `raw` is
// false.
Result<std::vector<TokenId>> prompt_ids(const Engine& engine, const PromptFlags& prompt,
                                        const std::string& text, bool raw);
// The same for the commands that drive a model's parts themselves.
Result<std::vector<TokenId>> prompt_ids(const Loaded& loaded, const PromptFlags& prompt,
                                        const std::string& text, bool raw);

// A conversation's tokens through the model's chat template, ready for the answer.
Result<std::vector<TokenId>> chat_ids(const Engine& engine, std::span<const Message> messages);

// "2,5,9" or "2 5 9"; no ids from an empty text. Errors: kUsage naming the piece that is no id.
Result<std::vector<TokenId>> parse_ids(std::string_view text);

}  // namespace doppler::cli
