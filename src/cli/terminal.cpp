// Reporting: the progress bar, the backend's choice, Ctrl-C, and reading prompts.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "config/conflicts.h"
#include "engine/access.h"
#include "engine/fallbacks.h"
#include "engine/messages.h"
#include "system/terminal.h"

namespace doppler::cli {

ProgressBar::ProgressBar() : terminal_(system::is_terminal(system::Stream::kError)) {}

void ProgressBar::update(double share, std::string_view what) {
  if (!terminal_) return;
  constexpr int kWidth = 24;
  const int filled = static_cast<int>(share * kWidth);
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  draw_bar(fmt::format("{} {:3.0f}% {}", bar, share * 100, what));
}

ProgressBar::~ProgressBar() {
  draw_bar("");
}

namespace {

// The only data of the signal handler: a pointer that is set before the handler is installed.
std::atomic<CancelToken*> g_interrupted{nullptr};

void on_interrupt() {
  if (CancelToken* token = g_interrupted.load()) token->cancel();
}

}  // namespace

InterruptGuard::InterruptGuard(CancelToken token) : token_(std::move(token)) {
  g_interrupted = &token_;
  handler_.emplace(on_interrupt);
}

InterruptGuard::~InterruptGuard() {
  handler_.reset();
  g_interrupted = nullptr;
}

int InterruptGuard::status(int otherwise) const {
  const int signal = system::EndingHandler::received();
  return signal == 0 ? otherwise : kSignalled + signal;
}

void tell_backend(std::string_view choice, const Backend& backend, const Settings& settings) {
  // A GPU that there is but does not run this is a fallback.
  const bool no_gpu =
      backend.name() == "cpu" && std::ranges::none_of(backend.fallbacks(), [&](const Fallback& f) {
        return choice.find(f.why) != std::string_view::npos;
      });
  if (!choice.empty() && (!no_gpu || settings.given("runtime.backend"))) say(Said::kNote, choice);
  tell_fallbacks(backend.fallbacks(), choice);
}

namespace {

// The result of `load`, with a progress bar while it runs.
template <typename Load>
auto with_bar(const Settings& settings, const Load& load) {
  ProgressBar bar;
  LoadOptions options = settings.load;
  options.on_progress = [&](double share, std::string_view what) { bar.update(share, what); };
  return load(options);
}

Status check_loaded(const Loaded& loaded, const Settings& settings) {
  DOPPLER_TRY(config::check_config_layers(settings.config, loaded.model->spec.layers.size()));
  tell_backend(loaded.choice, *loaded.backend, settings);
  return {};
}

}  // namespace

Result<Engine> load_engine(const std::string& model, const Settings& settings) {
  DOPPLER_ASSIGN(Engine engine, with_bar(settings, [&](const LoadOptions& options) {
                   return Engine::load(model, options);
                 }));
  DOPPLER_TRY(check_loaded(EngineAccess::loaded(engine), settings));
  return engine;
}

Result<Loaded> load_with_bar(const std::string& model, const Settings& settings, std::uint32_t slots) {
  DOPPLER_ASSIGN(Loaded loaded, with_bar(settings, [&](const LoadOptions& options) {
                   return load_all(model, options, slots);
                 }));
  DOPPLER_TRY(check_loaded(loaded, settings));
  return loaded;
}

Result<Loaded> load_changed(const std::string& model, const Settings& settings, std::uint32_t slots,
                            const ConfigChange& change) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(model));
  if (files.config->is_object()) DOPPLER_TRY(change(*files.config));
  DOPPLER_ASSIGN(Loaded loaded, with_bar(settings, [&](const LoadOptions& options) {
                   return load_files(std::move(files), options, slots);
                 }));
  DOPPLER_TRY(check_loaded(loaded, settings));
  return loaded;
}

Result<std::vector<TokenId>> parse_ids(std::string_view text) {
  std::vector<TokenId> ids;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t begin = text.find_first_not_of(", \t\n", at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(text.find_first_of(", \t\n", begin), text.size());
    TokenId id = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + end, id);
    if (parsed.ptr != text.data() + end || parsed.ec != std::errc() || id < 0) {
      return fail(ErrorCode::kUsage, "The piece {} is no token id. Write ids as 2,5,9.",
                  printable(text.substr(begin, end - begin)));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

void add_prompt_flags(Command& command, PromptFlags& prompt) {
  prompt.text_option =
      command.add_option("PROMPT", prompt.text, "the text; left out, it is read from standard input");
  add_prompt_ids_flag(command, prompt);
}

void add_prompt_ids_flag(Command& command, PromptFlags& prompt) {
  prompt.ids_option = command.call_option(
      "--prompt-ids",
      [&prompt](const std::string& text) -> Status {
        DOPPLER_ASSIGN(prompt.ids, parse_ids(text));
        if (prompt.ids.empty())
          return fail(ErrorCode::kUsage, "There are no token ids. Write them as 2,5,9.");
        return {};
      },
      "token ids instead of a text: 2,5,9");
}

Result<std::string> read_piped_text() {
  DOPPLER_ASSIGN(std::string text, read_input());
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::string> prompt_text(const PromptFlags& prompt) {
  if (!prompt.ids.empty() && !prompt.system.empty()) {
    return fail(ErrorCode::kUsage, "A --system text has no effect with --prompt-ids. Leave one of them out.");
  }
  if (!prompt.ids.empty() && prompt.text_option.given()) {
    return fail(ErrorCode::kUsage, "Both a prompt and --prompt-ids are given. Give one of them.");
  }
  if (!prompt.ids.empty() || prompt.text_option.given()) return prompt.text;
  if (system::is_terminal(system::Stream::kInput))
    return fail(ErrorCode::kUsage, "There is no prompt. Give it after the model, or pipe it in.");
  return read_piped_text();
}

namespace {

// As transformers has it, a BOS in the text comes behind the one that the tokenizer adds; few people mean
// that.
Result<std::vector<TokenId>> plain_ids(const Loaded& loaded, const std::string& text) {
  DOPPLER_ASSIGN(std::vector<TokenId> ids, tokenize_prompt(loaded, text));
  const std::optional<TokenId> bos = loaded.tokenizer->bos().id;
  if (bos && ids.size() > 1 && ids[0] == *bos && ids[1] == *bos) {
    say(Said::kWarning,
        "The prompt begins with two BOS tokens ({}): the tokenizer adds one, and the text has one. Leave it "
        "out of "
        "the text.",
        *bos);
  }
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> prompt_ids(const Loaded& loaded, const PromptFlags& prompt,
                                        const std::string& text, bool raw) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (raw || !loaded.chat) {
    if (!prompt.system.empty()) {
      return fail(ErrorCode::kUsage, "A --system text needs a chat template, but {}. Leave it out.",
                  raw ? "--raw turns it off" : "the model has none");
    }
    return plain_ids(loaded, text);
  }
  std::vector<Message> messages;
  if (!prompt.system.empty()) messages.push_back({"system", prompt.system});
  messages.push_back({"user", text});
  return tokenize_messages(loaded, messages);
}

Result<std::vector<TokenId>> prompt_ids(const Engine& engine, const PromptFlags& prompt,
                                        const std::string& text, bool raw) {
  return prompt_ids(EngineAccess::loaded(engine), prompt, text, raw);
}

Result<std::vector<TokenId>> chat_ids(const Engine& engine, std::span<const Message> messages) {
  DOPPLER_ASSIGN(const std::string text, engine.render_chat(messages));
  return engine.tokenize(text, false);
}

}  // namespace doppler::cli
