// The public Engine: forwards every call to the engine's parts.
#include <chrono>

#include "base/json.h"
#include "doppler/doppler.h"
#include "engine/access.h"
#include "engine/core.h"
#include "engine/info.h"
#include "engine/look.h"
#include "engine/messages.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

Error no_engine() {
  return moved_from("engine");
}

// A slot for each sequence and one for the engine's own.
Result<std::uint32_t> slots_for(const LoadOptions& options) {
  constexpr std::uint32_t kMost = 1 << 16;  // more than any use needs; the cache itself checks the memory
  if (options.sequences < kMost) return options.sequences + 1;
  return fail(ErrorCode::kUsage,
              "The {} sequences of an engine are out of range; there must be fewer than {}.",
              options.sequences, kMost);
}

std::shared_ptr<EngineCore> make_core(Loaded loaded, GenerateOptions defaults, Clock::time_point start) {
  auto core = std::make_shared<EngineCore>();
  core->loaded = std::move(loaded);
  core->defaults = std::move(defaults);
  for (std::uint32_t slot = core->backend().options().slots; slot > 1; --slot)
    core->free_slots.push_back(slot - 1);
  if (CacheAccess* const cache = core->backend().cache())
    cache->on_shortage([it = core.get()](std::uint32_t) { return it->spare_cache(); });
  core->keep_notes();
  core->load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return core;
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

Engine::Engine(std::shared_ptr<Sequence::State> own) : own_(std::move(own)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::load(const std::filesystem::path& path, const LoadOptions& options) {
  const Clock::time_point start = Clock::now();
  DOPPLER_ASSIGN(const std::uint32_t slots, slots_for(options));
  DOPPLER_ASSIGN(Loaded loaded, load_all(path, options, slots));
  DOPPLER_ASSIGN(GenerateOptions defaults, doppler::default_options(loaded.model->files));
  return Engine(
      std::make_shared<Sequence::State>(make_core(std::move(loaded), std::move(defaults), start), 0));
}

Result<Engine> Engine::another(const LoadOptions& options) const {
  if (!own_) return std::unexpected(no_engine());
  const Clock::time_point start = Clock::now();
  DOPPLER_ASSIGN(const std::uint32_t slots, slots_for(options));
  DOPPLER_ASSIGN(Loaded loaded, load_another(own_->core->loaded, options, slots));
  return Engine(
      std::make_shared<Sequence::State>(make_core(std::move(loaded), own_->core->defaults, start), 0));
}

// --- the model's description

GenerateOptions Engine::default_options() const {
  return own_ ? own_->core->defaults : GenerateOptions();
}
std::string_view Engine::backend_name() const {
  return own_ ? own_->core->backend().name() : std::string_view();
}
std::string_view Engine::backend_choice() const {
  return own_ ? std::string_view(own_->core->loaded.choice) : std::string_view();
}
std::vector<std::string> Engine::notes() const {
  if (!own_) return {};
  const system::Lock lock(own_->core->notes_mutex);
  return own_->core->notes;
}
std::uint64_t Engine::context() const {
  return own_ ? own_->core->backend().options().context : 0;
}
bool Engine::has_tokenizer() const {
  return own_ && own_->core->loaded.tokenizer.has_value();
}
bool Engine::has_chat_template() const {
  return own_ && own_->core->loaded.chat.has_value();
}
ModelInfo Engine::info() const {
  if (!own_) return {};
  const Backend& backend = own_->core->backend();
  // The only error, sizes that overflow, was refused when the engine was made.
  return describe(*own_->core->loaded.model, backend.plan(), backend.options()).value_or(ModelInfo());
}
std::vector<StageDescription> Engine::stages() const {
  return own_ ? describe_stages_of(own_->core->backend().plan()) : std::vector<StageDescription>();
}

// --- texts, which need no turn: tokenizer and template never change

Result<std::vector<TokenId>> Engine::tokenize(std::string_view text, bool special) const {
  if (!own_) return std::unexpected(no_engine());
  const Loaded& loaded = own_->core->loaded;
  if (special) return tokenize_prompt(loaded, text);
  DOPPLER_TRY(need_tokenizer(loaded));
  return loaded.tokenizer->encode(text, {.add_special = false});
}

Result<std::string> Engine::detokenize(std::span<const TokenId> ids) const {
  if (!own_) return std::unexpected(no_engine());
  DOPPLER_TRY(need_tokenizer(own_->core->loaded));
  return own_->core->loaded.tokenizer->decode(ids, true);
}

Result<std::string> Engine::render_chat(std::span<const Message> messages, const ChatOptions& chat) const {
  if (!own_) return std::unexpected(no_engine());
  return render_messages(own_->core->loaded, messages, chat);
}

Result<std::string> Engine::render_chat_json(std::string_view conversation) const {
  if (!own_) return std::unexpected(no_engine());
  DOPPLER_ASSIGN(const chat::OrderedJson read, read_conversation(conversation));
  return render_conversation(own_->core->loaded, read);
}

// --- the engine's own sequence

Result<Sequence> Engine::sequence() const {
  if (!own_) return std::unexpected(no_engine());
  return Sequence(own_);
}

Result<Sequence> Engine::new_sequence() const {
  if (!own_) return std::unexpected(no_engine());
  const std::shared_ptr<Sequence::State> own = own_;
  DOPPLER_ASSIGN(const Turns::Turn turn, own->core->turns.take());
  DOPPLER_ASSIGN(std::shared_ptr<Sequence::State> state, Sequence::State::open(own->core));
  return Sequence(std::move(state));
}

Result<Generation> Engine::generate(std::string_view prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.generate(prompt, options, on_text, cancel);
}
Result<Generation> Engine::generate(std::string_view prompt, const GenerateOptions& options,
                                    const Callbacks& callbacks) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.generate(prompt, options, callbacks);
}
Result<Generation> Engine::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                    const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.generate(prompt, options, on_text, cancel);
}
Result<Generation> Engine::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                    const Callbacks& callbacks) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.generate(prompt, options, callbacks);
}
Result<Generation> Engine::chat(std::span<const Message> messages, const GenerateOptions& options,
                                const OnText& on_text, const CancelToken* cancel) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.chat(messages, options, on_text, cancel);
}
Result<Generation> Engine::chat(std::span<const Message> messages, const ChatOptions& chat,
                                const GenerateOptions& options, const Callbacks& callbacks) {
  DOPPLER_ASSIGN(Sequence own, sequence());
  return own.chat(messages, chat, options, callbacks);
}

Result<std::vector<StageValues>> Engine::look(std::span<const TokenId> prompt, const LookRequest& request,
                                              const CancelToken* cancel) {
  const std::shared_ptr<Sequence::State> own = own_;
  if (!own) return std::unexpected(no_engine());
  DOPPLER_ASSIGN(const Sequence::State::Turn turn, own->take_turn(cancel));
  if (!turn) return std::vector<StageValues>();
  return own->look(prompt, request, cancel);
}

Result<std::vector<TokenLogprobs>> Engine::score(std::span<const TokenId> ids, std::uint32_t top,
                                                 const CancelToken* cancel) {
  const std::shared_ptr<Sequence::State> own = own_;
  if (!own) return std::unexpected(no_engine());
  DOPPLER_ASSIGN(const Sequence::State::Turn turn, own->take_turn(cancel));
  if (!turn) return std::vector<TokenLogprobs>();
  return own->score(ids, top, cancel);
}

// --- for commands

const Loaded& EngineAccess::loaded(const Engine& engine) {
  return engine.own_->core->loaded;
}

void EngineAccess::look(Engine& engine, Tap* tap) {
  engine.own_->core->besides = tap;
}

}  // namespace doppler
