#include <algorithm>
#include <chrono>
#include <optional>

#include "backend/backend.h"
#include "chat/chat_template.h"
#include "doppler/doppler.h"
#include "engine/generate.h"
#include "engine/session.h"
#include "formats/hf_config.h"
#include "model/family.h"
#include "tokenizer/tokenizer.h"

namespace doppler {

// The longest context taken unasked: beyond it the cache costs more memory than most conversations need.
static constexpr std::uint64_t kDefaultContext = 4096;

struct Engine::State {
  Model model;
  std::optional<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;
  std::unique_ptr<Backend> backend;
  std::optional<Session> session;
  GenerateOptions defaults;
  double load_ms = 0;
};

namespace {

// generation_config.json's sampling values, which transformers uses when it says do_sample.
Result<GenerateOptions> read_defaults(const ModelFiles& files) {
  GenerateOptions options;
  if (!files.generation_config) return options;
  const ConfigReader reader(*files.generation_config, "generation_config.json");
  DOPPLER_ASSIGN(const std::optional<bool> sample, reader.get_bool("do_sample"));
  DOPPLER_ASSIGN(const std::optional<double> repeat, reader.get_number("repetition_penalty"));
  options.repeat_penalty = repeat.value_or(1);
  if (!sample.value_or(false)) return options;
  DOPPLER_ASSIGN(const std::optional<double> temperature, reader.get_number("temperature"));
  DOPPLER_ASSIGN(const std::optional<std::uint64_t> top_k, reader.get_uint("top_k"));
  DOPPLER_ASSIGN(const std::optional<double> top_p, reader.get_number("top_p"));
  DOPPLER_ASSIGN(const std::optional<double> min_p, reader.get_number("min_p"));
  options.temperature = temperature.value_or(1);
  options.top_k = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(top_k.value_or(50), UINT32_MAX));  // 50: transformers' own default
  options.top_p = top_p.value_or(1);
  options.min_p = min_p.value_or(0);
  return options;
}

bool has_any_file(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(folder / name, ignored);
  });
}

}  // namespace

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
  const auto progress = [&](double share, std::string_view what) {
    if (options.on_progress) options.on_progress(share, what);
  };
  auto state = std::make_unique<State>();
  progress(0, "weights");
  DOPPLER_ASSIGN(state->model, load_model(path));
  const std::filesystem::path& folder = state->model.files.folder;
  DOPPLER_ASSIGN(state->defaults, read_defaults(state->model.files));
  progress(0.4, "tokenizer");
  if (has_any_file(folder, {"tokenizer.json", "tokenizer.model"})) {
    DOPPLER_ASSIGN(state->tokenizer, Tokenizer::load(folder));
  }
  progress(0.8, "chat template");
  auto chat = load_chat_template(folder);
  if (chat)
    state->chat = std::move(*chat);
  else if (chat.error().code != ErrorCode::kNotFound)
    return std::unexpected(std::move(chat).error());
  progress(0.9, "memory");
  BackendOptions backend;
  backend.threads = options.threads;
  backend.context = options.context != 0
                        ? options.context
                        : std::min<std::uint64_t>(kDefaultContext, state->model.spec.context_length);
  DOPPLER_ASSIGN(state->backend,
                 make_backend(options.backend, state->model.spec, state->model.weights, backend));
  state->session.emplace(*state->backend, 0);
  progress(1, "ready");
  state->load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return Engine(std::move(state));
}

GenerateOptions Engine::default_options() const {
  return state_->defaults;
}
std::string_view Engine::backend_name() const {
  return state_->backend->name();
}
std::uint64_t Engine::context() const {
  return state_->backend->options().context;
}
bool Engine::has_tokenizer() const {
  return state_->tokenizer.has_value();
}
bool Engine::has_chat_template() const {
  return state_->chat.has_value();
}

static Status need_tokenizer(bool there, const std::filesystem::path& folder) {
  if (there) return {};
  return fail(ErrorCode::kNotFound,
              "The folder {} has neither tokenizer.json nor tokenizer.model, so text cannot become tokens. "
              "Add one, or give --prompt-ids.",
              folder.string());
}

Result<std::vector<TokenId>> Engine::tokenize(std::string_view text, bool special) const {
  DOPPLER_TRY(need_tokenizer(has_tokenizer(), state_->model.files.folder));
  return state_->tokenizer->encode(text, {.add_special = special});
}

Result<std::string> Engine::detokenize(std::span<const TokenId> ids) const {
  DOPPLER_TRY(need_tokenizer(has_tokenizer(), state_->model.files.folder));
  return state_->tokenizer->decode(ids, true);
}

Result<std::string> Engine::render_chat(std::span<const Message> messages) const {
  if (!state_->chat) {
    return fail(
        ErrorCode::kNotFound,
        "The folder {} has no chat template. Use a model made for chat, or continue plain text (run --raw).",
        state_->model.files.folder.string());
  }
  OrderedJson list = OrderedJson::array();
  for (const Message& message : messages)
    list.push_back({{"role", message.role}, {"content", message.content}});
  OrderedJson variables = {{"messages", list}, {"add_generation_prompt", true}};
  if (state_->tokenizer) {
    for (const auto& [name, text] : state_->tokenizer->special_token_texts()) variables[name] = text;
  }
  return state_->chat->render(variables);
}

Result<Generation> Engine::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  for (const TokenId id : prompt) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= state_->model.spec.vocab_size) {
      return fail(ErrorCode::kUsage, "The prompt's token id {} is outside the vocabulary of {} tokens.", id,
                  state_->model.spec.vocab_size);
    }
  }
  DOPPLER_ASSIGN(Generation result, run_generation(*state_->session, state_->model.spec,
                                                   state_->tokenizer ? &*state_->tokenizer : nullptr, prompt,
                                                   options, on_text, cancel));
  result.timings.load_ms = state_->load_ms;
  return result;
}

Result<Generation> Engine::generate(std::string_view prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(std::vector<TokenId> ids, tokenize(prompt));
  // A prompt that spells out its BOS gets no second one.
  const TokenId bos = state_->tokenizer->bos_id().value_or(state_->model.spec.bos_id);
  if (ids.size() > 1 && bos >= 0 && ids[0] == bos && ids[1] == bos) ids.erase(ids.begin());
  return generate(ids, options, on_text, cancel);
}

Result<Generation> Engine::chat(std::span<const Message> messages, const GenerateOptions& options,
                                const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(const std::string text, render_chat(messages));
  // The template writes its own BOS; the tokenizer must not add another.
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, tokenize(text, false));
  return generate(ids, options, on_text, cancel);
}

}  // namespace doppler
