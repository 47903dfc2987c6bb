#include <algorithm>
#include <chrono>
#include <optional>

#include "doppler/doppler.h"
#include "engine/generate.h"
#include "engine/loaded.h"
#include "engine/session.h"

namespace doppler {

struct Engine::State {
  Loaded loaded;
  std::optional<Session> session;
  GenerateOptions defaults;
  double load_ms = 0;
};

std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kMaxTokens:
      return "max_tokens";
    case StopReason::kContextEnd:
      return "context_end";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "";
}

double Timings::prompt_tokens_per_second() const {
  return prompt_ms > 0 ? static_cast<double>(prompt_tokens - cached_tokens) * 1000 / prompt_ms : 0;
}

double Timings::decode_tokens_per_second() const {
  return decode_ms > 0 && generated_tokens > 1 ? static_cast<double>(generated_tokens - 1) * 1000 / decode_ms
                                               : 0;
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::filesystem::path& path, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto state = std::make_unique<State>();
  DOPPLER_ASSIGN(state->loaded, load_all(path, options));
  DOPPLER_ASSIGN(state->defaults, doppler::default_options(state->loaded.model->files));
  state->session.emplace(*state->loaded.backend, 0);
  state->load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return Engine(std::move(state));
}

GenerateOptions Engine::default_options() const {
  return state_->defaults;
}
std::string_view Engine::backend_name() const {
  return state_->loaded.backend->name();
}
std::string_view Engine::backend_choice() const {
  return state_->loaded.choice;
}
std::uint64_t Engine::context() const {
  return state_->loaded.backend->options().context;
}
bool Engine::has_tokenizer() const {
  return state_->loaded.tokenizer.has_value();
}
bool Engine::has_chat_template() const {
  return state_->loaded.chat.has_value();
}

Result<std::vector<TokenId>> Engine::tokenize(std::string_view text, bool special) const {
  if (special) return tokenize_prompt(state_->loaded, text);
  DOPPLER_TRY(need_tokenizer(state_->loaded));
  return state_->loaded.tokenizer->encode(text, {.add_special = false});
}

Result<std::string> Engine::detokenize(std::span<const TokenId> ids) const {
  DOPPLER_TRY(need_tokenizer(state_->loaded));
  return state_->loaded.tokenizer->decode(ids, true);
}

Result<std::string> Engine::render_chat(std::span<const Message> messages) const {
  return render_messages(state_->loaded, messages);
}

Result<Generation> Engine::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  const Loaded& loaded = state_->loaded;
  DOPPLER_ASSIGN(Generation result, run_generation(*state_->session, loaded.model->spec,
                                                   loaded.tokenizer ? &*loaded.tokenizer : nullptr, prompt,
                                                   options, on_text, cancel));
  result.timings.load_ms = state_->load_ms;
  return result;
}

Result<Generation> Engine::generate(std::string_view prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, tokenize_prompt(state_->loaded, prompt));
  return generate(ids, options, on_text, cancel);
}

Result<Generation> Engine::chat(std::span<const Message> messages, const GenerateOptions& options,
                                const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, tokenize_messages(state_->loaded, messages));
  return generate(ids, options, on_text, cancel);
}

}  // namespace doppler
