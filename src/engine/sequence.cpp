// Sequence: the public handle, and State, which computes for it.
#include <algorithm>

#include "base/json.h"
#include "base/log.h"
#include "engine/core.h"
#include "engine/generate.h"
#include "engine/look.h"
#include "engine/messages.h"
#include "engine/sequence_copy.h"
#include "engine/whole_prompt.h"

namespace doppler {

Error moved_from(std::string_view what) {
  return {ErrorCode::kUsage,
          fmt::format("This {} was moved from and holds nothing. Use the one it was moved to.", what)};
}

void EngineCore::keep_notes() {
  const system::Lock lock(notes_mutex);
  notes.clear();
  for (const Fallback& fallback : backend().fallbacks()) notes.push_back(fallback.what + " " + fallback.why);
}

// --- the state, which computes

Result<std::shared_ptr<Sequence::State>> Sequence::State::open(const std::shared_ptr<EngineCore>& core) {
  std::uint32_t slot = 0;
  {
    const system::Lock lock(core->slots_mutex);
    if (core->free_slots.empty()) {
      return fail(
          ErrorCode::kLimit,
          "All {} sequences of the engine are open. Close one, or load with more LoadOptions::sequences.",
          core->backend().options().slots - 1);
    }
    slot = core->free_slots.back();
    core->free_slots.pop_back();
  }
  auto state = std::make_shared<State>(core, slot);
  state->session.clear();
  return state;
}

Sequence::State::State(std::shared_ptr<EngineCore> of, std::uint32_t slot)
    : core(std::move(of)), session(core->backend(), slot) {
  session.share(&core->company);
  tenant.session = &session;
  const system::Lock lock(core->slots_mutex);
  core->tenants.push_back(&tenant);
}

bool EngineCore::spare_cache() {
  const system::Lock lock(slots_mutex);
  for (const std::uint32_t slot : free_slots) {
    if (backend().length(slot) == 0) continue;
    backend().clear(slot);
    return true;
  }
  Tenant* longest_unused = nullptr;
  for (Tenant* const tenant : tenants) {
    if (tenant->working > 0 || tenant->session->cached().empty()) continue;
    if (longest_unused == nullptr || tenant->last_call < longest_unused->last_call) longest_unused = tenant;
  }
  if (longest_unused == nullptr) return false;
  longest_unused->session->clear();
  return true;
}

Result<Sequence::State::Turn> Sequence::State::take_turn(const CancelToken* cancel) {
  // A call from a callback must not wait for a call that waits for this thread.
  const bool from_callback = core->turns.is_mine();
  DOPPLER_ASSIGN(Turns::Turn own, from_callback ? core->turns.take(cancel) : calls.take(cancel));
  if (!own) return Turn();
  DOPPLER_ASSIGN(Turns::Turn all, core->turns.take(cancel));
  if (!all) return Turn();
  return Turn{std::move(own), std::move(all), Working(*core, tenant)};
}

Sequence::State::~State() {
  const system::Lock lock(core->slots_mutex);
  std::erase(core->tenants, &tenant);
  core->free_slots.push_back(session.slot());
}

Result<Generation> Sequence::State::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                             const Callbacks& callbacks) {
  const std::vector<TokenId> ids(prompt.begin(),
                                 prompt.end());  // a copy: `prompt` may view this sequence's own tokens
  DOPPLER_ASSIGN(const auto taps,
                 WatchTaps::create(callbacks.watches, core->backend().plan(), ids.size(), core->besides));
  session.look(taps->get());
  auto result = run_generation(session, core->loaded.model->spec, core->tokenizer(), ids, options, callbacks);
  session.look(nullptr);
  core->keep_notes();
  if (!result) {
    hold({session.cached().begin(), session.cached().end()});
    return result;
  }
  result->timings.load_ms = core->load_ms;
  std::vector<TokenId> all = ids;
  all.insert(all.end(), result->ids.begin(), result->ids.end());
  hold(std::move(all));
  return result;
}

Status Sequence::State::append(std::span<const TokenId> ids, const CancelToken* cancel) {
  if (ids.empty()) return {};
  std::vector<TokenId> all = held();
  all.insert(all.end(), ids.begin(), ids.end());
  const Plan& plan = core->backend().plan();
  for (const TokenId id : ids) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < plan.vocab_size) continue;
    return fail(ErrorCode::kMismatch, "The token id {} is outside the vocabulary of {} tokens.", id,
                plan.vocab_size);
  }
  if (const std::uint64_t context = core->backend().options().context; all.size() > context) {
    return fail(ErrorCode::kLimit, "The sequence would have {} tokens, but the context holds {}.", all.size(),
                context);
  }
  session.look(core->besides);
  const Status fed = all.size() < 2 ? Status() : session.extend(std::span(all).first(all.size() - 1), cancel);
  session.look(nullptr);
  DOPPLER_TRY(fed);
  hold(std::move(all));
  return {};
}

// The sequence is what the call has fed; one that was refused before it began leaves it as it was.
template <typename Call>
auto Sequence::State::whole(const Call& call) {
  const std::vector<TokenId> before(session.cached().begin(), session.cached().end());
  auto result = call();
  if (result || !std::ranges::equal(before, session.cached()))
    hold({session.cached().begin(), session.cached().end()});
  return result;
}

Result<std::vector<StageValues>> Sequence::State::look(std::span<const TokenId> prompt,
                                                       const LookRequest& request,
                                                       const CancelToken* cancel) {
  return whole([&] { return look_at(session, prompt, request, cancel); });
}

Result<std::vector<TokenLogprobs>> Sequence::State::score(std::span<const TokenId> ids, std::uint32_t top,
                                                          const CancelToken* cancel) {
  return whole([&] { return score_all(session, ids, top, core->besides, cancel); });
}

// --- the handle, which waits for its turn

namespace {

const CancelToken* token_of(const Callbacks& callbacks) {
  return callbacks.cancel ? &*callbacks.cancel : nullptr;
}

// The result of a call that was cancelled while it waited for its turn, and has changed nothing.
Generation cancelled_before(std::span<const TokenId> prompt) {
  Generation generation;
  generation.prompt_ids.assign(prompt.begin(), prompt.end());
  generation.stop_reason = StopReason::kCancelled;
  generation.timings.prompt_tokens = prompt.size();
  return generation;
}

Callbacks callbacks_of(const OnText& on_text, const CancelToken* cancel) {
  Callbacks callbacks{.on_text = on_text};
  if (cancel != nullptr) callbacks.cancel = *cancel;  // a copy, which lives as long as the call
  return callbacks;
}

}  // namespace

Sequence::Sequence(std::shared_ptr<State> state) : state_(std::move(state)) {}

std::vector<TokenId> Sequence::tokens() const {
  return state_ ? state_->held() : std::vector<TokenId>();
}

Result<Generation> Sequence::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                      const Callbacks& callbacks) {
  const std::shared_ptr<State> state = state_;  // a callback may destroy the handle
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn(token_of(callbacks)));
  if (!turn) return cancelled_before(prompt);
  return state->generate(prompt, options, callbacks);
}

Result<Generation> Sequence::generate(std::string_view prompt, const GenerateOptions& options,
                                      const Callbacks& callbacks) {
  if (!state_) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, tokenize_prompt(state_->core->loaded, prompt));
  return generate(ids, options, callbacks);
}

Result<Generation> Sequence::chat(std::span<const Message> messages, const ChatOptions& chat,
                                  const GenerateOptions& options, const Callbacks& callbacks) {
  if (!state_) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, tokenize_messages(state_->core->loaded, messages, chat));
  return generate(ids, options, callbacks);
}

Result<Generation> Sequence::chat_json(std::string_view conversation, const GenerateOptions& options,
                                       const Callbacks& callbacks) {
  if (!state_) return std::unexpected(moved_from("sequence"));
  const Loaded& loaded = state_->core->loaded;
  DOPPLER_ASSIGN(const chat::OrderedJson read, read_conversation(conversation));
  DOPPLER_ASSIGN(const std::string text, render_conversation(loaded, read));
  DOPPLER_TRY(need_tokenizer(loaded));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, loaded.tokenizer->encode(text, {.add_special = false}));
  return generate(ids, options, callbacks);
}

Result<Generation> Sequence::generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                                      const OnText& on_text, const CancelToken* cancel) {
  return generate(prompt, options, callbacks_of(on_text, cancel));
}
Result<Generation> Sequence::generate(std::string_view prompt, const GenerateOptions& options,
                                      const OnText& on_text, const CancelToken* cancel) {
  return generate(prompt, options, callbacks_of(on_text, cancel));
}
Result<Generation> Sequence::chat(std::span<const Message> messages, const GenerateOptions& options,
                                  const OnText& on_text, const CancelToken* cancel) {
  return chat(messages, ChatOptions(), options, callbacks_of(on_text, cancel));
}

Status Sequence::append(std::span<const TokenId> ids, const CancelToken* cancel) {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn());
  return state->append(ids, cancel);
}

Result<Generation> Sequence::resume(const GenerateOptions& options, const Callbacks& callbacks) {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn(token_of(callbacks)));
  const std::vector<TokenId> all = state->held();
  if (!turn) return cancelled_before(all);
  if (all.empty()) return fail(ErrorCode::kUsage, "The sequence is empty, so that nothing can be resumed.");
  return state->generate(all, options, callbacks);
}

Result<std::size_t> Sequence::cut(std::size_t length) {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn());
  std::vector<TokenId> all = state->held();
  if (length > all.size()) {
    return fail(ErrorCode::kUsage, "The sequence cannot be cut to {} tokens; it has {}.", length, all.size());
  }
  all.resize(length);
  state->hold(std::move(all));
  state->session.cut(length);
  return length - std::min(length, state->session.cached().size());
}

Status Sequence::clear() {
  DOPPLER_TRY(cut(0));
  return {};
}

Result<Sequence> Sequence::fork() const {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn());
  DOPPLER_ASSIGN(const std::shared_ptr<State> other, State::open(state->core));
  DOPPLER_TRY(other->session.share_cache_of(state->session));
  other->hold(state->held());
  return Sequence(other);
}

Status Sequence::save(const std::filesystem::path& file, std::string_view text) const {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn());
  DOPPLER_ASSIGN(CachedSequence copy, read_sequence(state->session, state->held()));
  copy.text = text;
  return save_sequence(file, copy,
                       cache_identity(state->core->backend(), state->core->loaded.model->weights));
}

Status Sequence::load(const std::filesystem::path& file, std::string* text) {
  const std::shared_ptr<State> state = state_;
  if (!state) return std::unexpected(moved_from("sequence"));
  DOPPLER_ASSIGN(const State::Turn turn, state->take_turn());
  DOPPLER_ASSIGN(
      const CachedSequence loaded,
      load_sequence(file, cache_identity(state->core->backend(), state->core->loaded.model->weights)));
  DOPPLER_TRY(write_sequence(state->session, loaded));
  state->hold(loaded.tokens);
  if (text != nullptr) *text = loaded.text;
  return {};
}

}  // namespace doppler
