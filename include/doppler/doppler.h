// Doppler's public interface: load a model, turn text into tokens and back, generate with a streaming
// callback, cancel. Values and handles only; every failure is an Error with a sentence that says what to do.
//
//   auto engine = doppler::Engine::load("models/gemma-3-1b-it");
//   if (!engine) { std::cerr << engine.error().message << "\n"; return 1; }
//   auto result = engine->generate("The color of the sky is", engine->default_options(),
//                                  [](std::string_view text) { std::cout << text; return true; });
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doppler/export.h"
#include "doppler/result.h"

namespace doppler {

using TokenId = std::int32_t;

struct LoadOptions {
  std::string backend = "auto";  // "auto": a real GPU or else the cpu; "gpu", "cpu" or "reference"
  std::size_t threads = 0;       // 0: one per core
  std::uint64_t context = 0;     // longest sequence; 0: the model's own, at most 4096
  std::string kv_type;           // "f32", "f16", "q8_0"; empty: f16 for quantised models, else f32
  bool exact = false;            // float activations also where weights are quantised (slower)
  std::string cpu_target;        // kernels of an instruction set, as "AVX2"; empty: the best
  // Part of a GPU adapter's name, or its number as doppler inspect --gpu counts; empty: the best.
  std::string gpu_adapter;
  std::uint32_t submit_tokens = 8;  // that a GPU generates before the host looks at them, 1 to 64
  bool gpu_checked = false;         // GPU kernels check every access to memory (slower)
  bool gpu_poison = false;          // memory on the GPU begins as NaN, so that reading too early shows
  // Told about loading as it goes: a share from 0 to 1 and what is being done.
  std::function<void(double share, std::string_view what)> on_progress;
};

// How the next token is chosen. Order: penalties and biases on the logits, then temperature, then the
// filters.
struct GenerateOptions {
  std::uint32_t max_tokens = 256;
  double temperature = 0;            // 0: always the likeliest token
  std::uint32_t top_k = 0;           // keep the k likeliest; 0: all
  double top_p = 1;                  // keep the likeliest that together reach this probability
  double min_p = 0;                  // keep those at least this share as likely as the likeliest
  double repeat_penalty = 1;         // divides positive and multiplies negative logits of tokens seen before
  double presence_penalty = 0;       // subtracted once from tokens seen before
  double frequency_penalty = 0;      // subtracted for each time they were seen
  std::uint32_t penalty_window = 0;  // how many tokens back "before" reaches; 0: the whole sequence
  std::map<TokenId, double> logit_bias;  // added to the logits of single tokens
  std::uint64_t seed = 0;         // the same seed gives the same text on every backend and thread count
  std::vector<std::string> stop;  // generation ends before the first of these appears
  bool ignore_eos = false;        // go on past the end-of-sequence tokens
};

enum class StopReason {
  kEos,         // an end-of-sequence token
  kStopString,  // one of GenerateOptions::stop
  kMaxTokens,
  kContextEnd,  // the sequence fills the context
  kCancelled,   // the callback returned false, or the cancel token was used
};
DOPPLER_API std::string_view stop_reason_name(
    StopReason reason);  // "eos", "stop_string", "max_tokens", "context_end", "cancelled"

struct DOPPLER_API Timings {
  double load_ms = 0;
  double prompt_ms = 0;  // until the first token is known
  double decode_ms = 0;  // from there to the last
  std::size_t prompt_tokens = 0;
  std::size_t cached_tokens = 0;  // of the prompt, still in the KV cache from the call before
  std::size_t generated_tokens = 0;
  double prompt_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

struct Generation {
  std::string text;          // without stop string and special tokens
  std::vector<TokenId> ids;  // generated, without the end-of-sequence token
  std::vector<TokenId> prompt_ids;
  StopReason stop_reason = StopReason::kMaxTokens;
  Timings timings;
};

// Called with each piece of text as it becomes certain: whole characters, nothing that a stop string may
// still take back. Returning false ends the generation.
using OnText = std::function<bool(std::string_view text)>;

// Ends a generation from another thread or a signal handler. Copies share one flag.
class CancelToken {
 public:
  void cancel() { flag_->store(true); }
  void reset() { flag_->store(false); }
  bool cancelled() const { return flag_->load(); }

 private:
  std::shared_ptr<std::atomic<bool>> flag_ = std::make_shared<std::atomic<bool>>(false);
};

struct Message {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

// A loaded model with its tokenizer and one conversation's cache. One call at a time.
class DOPPLER_API Engine {
 public:
  // A Hugging Face folder, or a .safetensors file beside its config.json.
  static Result<Engine> load(const std::filesystem::path& model, const LoadOptions& options = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // What the model's generation_config.json recommends: its sampling values if it says do_sample, else
  // greedy.
  GenerateOptions default_options() const;
  std::string_view backend_name() const;
  // What computes and why, in a line: "gpu: NVIDIA H200 (Vulkan, driver ...)" or "cpu: there is no GPU".
  // Empty where LoadOptions named a backend that has no device of its own.
  std::string_view backend_choice() const;
  std::uint64_t context() const;
  bool has_tokenizer() const;
  bool has_chat_template() const;

  // `special`: with the BOS and EOS that the tokenizer adds by itself.
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool special = true) const;
  // Special tokens leave no text.
  Result<std::string> detokenize(std::span<const TokenId> ids) const;

  // The conversation in the model's own chat format, ready for its answer.
  Result<std::string> render_chat(std::span<const Message> messages) const;

  // Continues a text, a token sequence, or a conversation. Tokens of the prompt that the call before left in
  // the cache are not computed again.
  Result<Generation> generate(std::string_view prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options,
                              const OnText& on_text = {}, const CancelToken* cancel = nullptr);
  Result<Generation> chat(std::span<const Message> messages, const GenerateOptions& options,
                          const OnText& on_text = {}, const CancelToken* cancel = nullptr);

 private:
  struct DOPPLER_HIDDEN State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace doppler
