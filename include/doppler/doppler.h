// Doppler's public interface: load a model, turn text into tokens and back, generate with a streaming
// callback, cancel, and look at any value inside. Values and handles only; every failure is an Error with a
// sentence that says what to do.
//
//   auto engine = doppler::Engine::load("models/gemma-3-1b-it");
//   if (!engine) { std::cerr << engine.error().message << "\n"; return 1; }
//   auto result = engine->generate("The color of the sky is", engine->default_options(),
//                                  [](std::string_view text) { std::cout << text; return true; });
//
// Threads. Everything here may be called from any thread, on one handle from several at a time, except moving
// and destroying it, as with any object. Calls that compute wait for each other, in the order in which they
// arrive, but on a GPU sequences that generate at the same time do so together; a second engine
// (Engine::another) runs beside the first. A computing call from inside a callback of the same engine would
// wait for itself and is an Error (kUsage). Callbacks run on the thread of the call. Functions of a
// moved-from handle return an Error (kUsage), or an empty value where they return no Result.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doppler/chat.h"
#include "doppler/export.h"
#include "doppler/info.h"
#include "doppler/look.h"
#include "doppler/options.h"
#include "doppler/result.h"
#include "doppler/types.h"

namespace doppler {

struct LoadOptions {
  // "auto": a hardware GPU, else the cpu; "gpu", "cpu" or "reference" (plain loops: exact and slow).
  std::string backend = "auto";
  std::size_t threads = 0;    // at most; 0: as many as this process may run at once (see notes())
  std::uint64_t context = 0;  // longest sequence; 0: the model's own, at most 4096
  // Where layers attend to sliding windows, their cache has room for the window and so many tokens more: by
  // so many a sequence can be cut back, and so a prompt may part from the cached one so far before its end,
  // without computing anything again. 4096 is the whole of a default context; 0 takes the least memory.
  std::uint32_t cut_tokens = 4096;
  // How many sequences Engine::new_sequence may open at a time, besides the engine's own.
  std::uint32_t sequences = 0;
  // Tokens for which all sequences together have room in the cache, a context at least. 0: as many as every
  // one may use, or, where these do not fit, as do. Where it is full, sequences that rest lose what the cache
  // has of them, the longest unused first; their next call computes it again. Then the call that wants more
  // fails with kLimit, and the others go on.
  std::uint64_t cache_positions = 0;
  // The family by whose rule a folder's config.json is read, or "guess": a decoder inferred from its keys and
  // tensors. Empty: what model_type says.
  std::string family = {};
  std::string kv_type = {};     // "f32", "f16", "q8_0"; empty: f16 for quantised models, else f32
  bool exact = false;           // float activations also where weights are quantised (slower)
  std::string cpu_target = {};  // the instruction set of the kernels, such as "AVX2"; empty: the best
  GpuOptions gpu = {};
  // Called as loading proceeds. `share`: how much is done, 0 to 1; `what`: the present step, in words.
  std::function<void(double share, std::string_view what)> on_progress = {};
};

enum class StopReason {
  kEos,         // an end-of-sequence token
  kStopString,  // one of GenerateOptions::stop
  kMaxTokens,
  kContextEnd,  // the sequence fills the context
  kCancelled,   // the callback returned false, or the cancel token was used
};
// "eos", "stop_string", "max_tokens", "context_end", "cancelled"
DOPPLER_API std::string_view stop_reason_name(StopReason reason);

struct DOPPLER_API Timings {
  double load_ms = 0;    // of the engine
  double prompt_ms = 0;  // until the first token is known
  double decode_ms = 0;  // from there to the last
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;  // tokens of the prompt that the KV cache already held, and kept
  std::size_t generated_tokens = 0;
  std::size_t guessed_tokens = 0;  // ahead, see GenerateOptions::speculate
  std::size_t guessed_right = 0;   // of these, the ones that came
  double prompt_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

// Log probabilities are natural logarithms of the model's own distribution: at temperature 1, before
// penalties and biases.
struct LikelyToken {
  TokenId id = -1;
  float logprob = 0;
};
struct TokenLogprobs {
  TokenId id = -1;
  float logprob = 0;
  std::vector<LikelyToken> top = {};  // the likeliest at its position, best first; of equals the lower id
};

struct Generation {
  std::string text;          // without stop string and special tokens
  std::vector<TokenId> ids;  // generated, without the end-of-sequence token
  std::vector<TokenId> prompt_ids;
  std::vector<TokenLogprobs> logprobs;  // one for each of `ids`, if GenerateOptions::logprobs asks for them
  StopReason stop_reason = StopReason::kMaxTokens;
  Timings timings;
};

// Called with each piece of text as it becomes certain: whole characters, and no text that may still become
// part of a stop string. Returning false ends the generation.
using OnText = std::function<bool(std::string_view text)>;
// Called with each token. `logprobs` is null unless GenerateOptions::logprobs asks for it. Returning false
// ends the generation.
using OnToken = std::function<bool(TokenId id, const TokenLogprobs* logprobs)>;

// Ends a call from any thread or a signal handler. Copies share one flag, which lives as long as any of them:
// a token may be used before, during and after the call that it is given to. It stays cancelled, so that a
// later call with it ends at once, until reset().
class CancelToken {
 public:
  void cancel() const { flag_->store(true); }
  void reset() const { flag_->store(false); }
  bool cancelled() const { return flag_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_ = std::make_shared<std::atomic<bool>>(false);
};

// All callbacks of a generation, for callers that need more than its text.
struct Callbacks {
  OnText on_text = {};
  OnToken on_token = {};
  std::vector<Watch> watches = {};
  std::optional<CancelToken> cancel = {};
};

// A sequence of tokens with its keys and values in an engine's cache: a prompt, its answer, the next prompt.
// Copies are handles of the same sequence; its place in the cache is free again when the last copy is
// destroyed. A sequence keeps alive the parts of its engine that it needs.
class DOPPLER_API Sequence {
 public:
  // The tokens it holds, prompts and generated ones, in order.
  std::vector<TokenId> tokens() const;
  std::size_t length() const { return tokens().size(); }

  // As Engine::generate and Engine::chat: the prompt is the whole sequence. The longest beginning that it
  // shares with the tokens in the cache is kept (Timings::cached_tokens); only the rest is computed, and seen
  // by watches. On the cpu the bits are those of a fresh run; a GPU's depend on the steps that tokens come
  // in, so that theirs may differ in rounding: clear() first where that matters.
  Result<Generation> generate(std::string_view prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> generate(std::string_view prompt, const GenerateOptions& options,
                              const Callbacks& callbacks);
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const Callbacks& callbacks);
  Result<Generation> chat(std::span<const Message> messages, const GenerateOptions& options,
                          const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> chat(std::span<const Message> messages, const ChatOptions& chat,
                          const GenerateOptions& options, const Callbacks& callbacks);
  // chat() for a conversation in the form that Engine::render_chat_json takes.
  Result<Generation> chat_json(std::string_view conversation, const GenerateOptions& options,
                               const Callbacks& callbacks = {});

  // Adds tokens to the end and computes all but the last one, which is computed with the next call. Errors:
  // kMismatch for ids outside the vocabulary, kLimit beyond the context.
  Status append(std::span<const TokenId> ids, const CancelToken* cancel = nullptr);
  // Generates the tokens that follow those it holds. Errors: kUsage for an empty sequence.
  Result<Generation> resume(const GenerateOptions& options, const Callbacks& callbacks = {});

  // Keeps the first `length` tokens. Returns how many of these the next call computes again: none, unless the
  // ring buffers of sliding windows have overwritten keys and values that they attend to (see
  // LoadOptions::cut_tokens); then all. Recurrent layers go back to the nearest place that was kept. Errors:
  // kUsage for a length beyond the sequence's.
  Result<std::size_t> cut(std::size_t length);
  Status clear();
  // Another sequence with the same tokens, keys and values. Errors: kLimit if all of LoadOptions::sequences
  // are open.
  Result<Sequence> fork() const;

  // Writes tokens, keys and values to a file, which appears only when complete, and with them a text of the
  // caller's own, such as a conversation's messages.
  Status save(const std::filesystem::path& file, std::string_view text = {}) const;
  // Takes over a file that save() wrote, from an engine of the same model and kv_type, whatever its backend.
  // Errors: kMismatch for another model's or another type's file, kLimit for more than the context, kCorrupt
  // for anything that save() did not write; the sequence is then unchanged. `text` (may be null) receives the
  // text that was kept beside it.
  Status load(const std::filesystem::path& file, std::string* text = nullptr);

 private:
  friend class Engine;
  friend struct EngineAccess;
  struct DOPPLER_HIDDEN State;
  explicit Sequence(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// A loaded model with its tokenizer, its backend, and its cache, which has room for the engine's own sequence
// and for those that new_sequence() opens.
class DOPPLER_API Engine {
 public:
  // A .gguf file, a Hugging Face folder, or a .safetensors file beside its config.json. Two loads of one
  // model share only the pages of its files; see another().
  static Result<Engine> load(const std::filesystem::path& model, const LoadOptions& options = {});
  // A second engine on the same model, with a cache, threads and a backend of its own, which runs beside this
  // one. They share files, tokenizer, template and, where both compute on the cpu, the weights laid out for
  // it; a GPU holds its weights once for each engine. Sequences of one engine share everything.
  Result<Engine> another(const LoadOptions& options = {}) const;
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // The recommendation of the model's generation_config.json: its sampling values if do_sample is set, else
  // greedy.
  GenerateOptions default_options() const;
  std::string_view backend_name() const;
  // The backend's device and why it was chosen, in one line: "gpu: NVIDIA H200 (Vulkan, driver ...)" or "cpu:
  // there is no GPU". Empty where LoadOptions named a backend that has no device of its own.
  std::string_view backend_choice() const;
  // Reasons why this engine is slower than it could be or differs from the options, a sentence each.
  std::vector<std::string> notes() const;
  std::uint64_t context() const;
  bool has_tokenizer() const;
  bool has_chat_template() const;
  ModelInfo info() const;
  // The stages that this model computes, in the order in which a step does.
  std::vector<StageDescription> stages() const;

  // `special`: with the BOS and EOS that the tokenizer adds by itself.
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool special = true) const;
  // Special tokens give no text.
  Result<std::string> detokenize(std::span<const TokenId> ids) const;

  // The conversation in the model's own chat format, ready for its answer.
  Result<std::string> render_chat(std::span<const Message> messages, const ChatOptions& chat = {}) const;
  // The same of a conversation as JSON text, in the form that chat services use: a list of messages, or an
  // object {"messages": [...], "tools": [...]} whose other keys become variables of the template.
  Result<std::string> render_chat_json(std::string_view conversation) const;

  // Continues a text, a token sequence, or a conversation. Whatever the prompt and the cache begin with is
  // not computed again: see Sequence::generate.
  Result<Generation> generate(std::string_view prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> generate(std::string_view prompt, const GenerateOptions& options,
                              const Callbacks& callbacks);
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const Callbacks& callbacks);
  Result<Generation> chat(std::span<const Message> messages, const GenerateOptions& options,
                          const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> chat(std::span<const Message> messages, const ChatOptions& chat,
                          const GenerateOptions& options, const Callbacks& callbacks);

  // The values of stages for a prompt, which is computed anew as a whole in the engine's own sequence.
  // Results come in the order in which a step computes them. Errors: kUsage for stages, layers, tokens or
  // dims that do not exist, listing those that do; kLimit for more than LookRequest::most_bytes; NaN is no
  // error here.
  Result<std::vector<StageValues>> look(std::span<const TokenId> prompt, const LookRequest& request,
                                        const CancelToken* cancel = nullptr);
  // The log probability of each token given those before it, and the `top` likeliest tokens at its position;
  // the first token, which has none before it, is left out. Computed anew in the engine's own sequence.
  Result<std::vector<TokenLogprobs>> score(std::span<const TokenId> ids, std::uint32_t top = 0,
                                           const CancelToken* cancel = nullptr);

  // The engine's own sequence, which the calls above use.
  Result<Sequence> sequence() const;
  // A new, empty sequence. Errors: kLimit if all of LoadOptions::sequences are open.
  Result<Sequence> new_sequence() const;

 private:
  friend struct EngineAccess;
  explicit Engine(std::shared_ptr<Sequence::State> own);
  std::shared_ptr<Sequence::State> own_;
};

// The model's description and the memory that an engine with these options would take, without making the
// engine.
DOPPLER_API Result<ModelInfo> describe_model(const std::filesystem::path& model,
                                             const LoadOptions& options = {});

}  // namespace doppler
