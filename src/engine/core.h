// EngineCore: the state that an Engine and its sequences share. Sequence::State: the state behind each handle
// of a sequence.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "doppler/doppler.h"
#include "engine/company.h"
#include "engine/loaded.h"
#include "engine/session.h"
#include "engine/turns.h"
#include "system/threads.h"

namespace doppler {

// What an engine knows of a sequence's use of the cache. For whoever has the turn.
struct Tenant {
  Session* session = nullptr;
  int working = 0;              // calls under way
  std::uint64_t last_call = 0;  // the number, among all, of the last that ended
};

struct EngineCore {
  Loaded loaded;
  GenerateOptions defaults;
  double load_ms = 0;
  Turns turns;
  Company company{turns};
  Tap* besides = nullptr;  // sees every call, in addition to the call's own taps

  // The backend's fallbacks as sentences: copied by the thread that has the turn, read from any thread.
  system::Mutex notes_mutex;
  std::vector<std::string> notes;
  void keep_notes();

  // Slots without a sequence; the engine's own sequence takes slot 0. Any thread may return one while another
  // thread computes.
  system::Mutex slots_mutex;
  std::vector<std::uint32_t> free_slots;
  std::vector<Tenant*> tenants;
  std::uint64_t calls = 0;  // that have ended: counted by whoever has the turn

  // Clears what a closed sequence has left in the cache, or else what it has of the one, of those that rest,
  // whose last call is longest ago; false: there is nothing. For whoever has the turn.
  bool spare_cache();

  const tokenizer::Tokenizer* tokenizer() const { return loaded.tokenizer ? &*loaded.tokenizer : nullptr; }
  Backend& backend() const { return *loaded.backend; }
};

struct Sequence::State {
  State(std::shared_ptr<EngineCore> of, std::uint32_t slot);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // An empty sequence in a free slot. The caller has the turn. Errors: kLimit if there is none.
  static Result<std::shared_ptr<State>> open(const std::shared_ptr<EngineCore>& core);

  // The caller of these has the turn, too.
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const Callbacks& callbacks);
  Status append(std::span<const TokenId> ids, const CancelToken* cancel);
  Result<std::vector<StageValues>> look(std::span<const TokenId> prompt, const LookRequest& request,
                                        const CancelToken* cancel);
  Result<std::vector<TokenLogprobs>> score(std::span<const TokenId> ids, std::uint32_t top,
                                           const CancelToken* cancel);
  template <typename Call>
  auto whole(const Call& call);

  std::vector<TokenId> held() const {
    const system::Lock lock(tokens_mutex);
    return tokens;
  }
  void hold(std::vector<TokenId> ids) {
    const system::Lock lock(tokens_mutex);
    tokens = std::move(ids);
  }

  // The turn of a call: first among those of this sequence, whose calls wait for each other even where
  // sequences generate together, then among all. Nothing where the call was cancelled before.
  class Working {  // while it lives, the sequence does not rest
   public:
    Working() = default;
    Working(EngineCore& core, Tenant& tenant) : core_(&core), tenant_(&tenant) { ++tenant.working; }
    Working(Working&& other) noexcept : core_(other.core_), tenant_(std::exchange(other.tenant_, nullptr)) {}
    Working& operator=(Working&&) = delete;
    ~Working() {
      if (tenant_ == nullptr) return;
      --tenant_->working;
      tenant_->last_call = ++core_->calls;
    }

   private:
    EngineCore* core_ = nullptr;
    Tenant* tenant_ = nullptr;
  };
  struct Turn {
    Turns::Turn own, all;
    Working working = {};  // ends before the turn does
    explicit operator bool() const { return static_cast<bool>(all); }
  };
  Result<Turn> take_turn(const CancelToken* cancel = nullptr);

  const std::shared_ptr<EngineCore> core;
  Turns calls;
  Session session;
  // The tokens of the sequence; the cache holds a prefix of them. Read from any thread.
  mutable system::Mutex tokens_mutex;
  std::vector<TokenId> tokens;
  Tenant tenant;
};

// The error of a call on a moved-from handle; `what`: "engine" or "sequence".
Error moved_from(std::string_view what);

}  // namespace doppler
