// Sampling: the next token chosen where the logits are, token for token as the engine's Sampler chooses it.
//
// A token takes two dispatches where the likeliest is wanted (scan, pick) and four where one is drawn: scan
// (scores and the largest of them), histogram (what the tokens weigh, by distance from the largest), collect
// (the tokens of the few buckets that decide) and draw (one workgroup). Scores are doubles in integer
// arithmetic, the same bits as the CPU's; masses are whole numbers of 2^-42, so that every adapter, in every
// order, sums the same. A drawn token can differ from the CPU's only where the share lies within about 1e-7
// of the mass from a boundary between two tokens.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"
#include "base/result.h"
#include "doppler/types.h"

namespace doppler::gpu {

class Sampling {
 public:
  // A step whose rows but the first are guesses: where its ids begin.
  struct Guesses {
    Buffer step;
    std::uint32_t ids = 0;  // words before them
  };
  // Whether create() and begin() have room for such a model and such options.
  static bool takes(std::uint32_t vocab, const GenerateOptions& options);
  // `logits` begins with `vocab` floats when a token is chosen, `chosen` takes the token in its first word.
  // With `guesses` the tokens of its rows are chosen, see begin_rows(). Compiles every kernel that any
  // options need. Errors: kUnsupported for vocabularies of 2^22 and more.
  static Result<Sampling> create(Device& device, KernelCache& kernels, std::uint32_t vocab,
                                 const Buffer& logits, const Buffer& chosen,
                                 std::optional<Guesses> guesses = {});

  // Prepares a continuation, for the tokens recorded and submitted from here on. `options` are as
  // check_generate_options accepts them and are not read later; `history` is the sequence so far. Errors:
  // kUnsupported for a penalty window of more than 2^24 tokens that history and options.max_tokens outgrow.
  Status begin(const GenerateOptions& options, TokenId pad_id, std::span<const TokenId> history,
               std::uint64_t first_draw);

  // Records the choice of one token: writes its id to `chosen`, counts it into the history and raises the
  // number of the draw. The id is 0xffffffff where the CPU's sampler fails: a logit is NaN or +Inf, or every
  // token is ruled out.
  void record(Recorder& recorder) const;
  // With guesses: the next token that is recorded is that of the step's first row. As soon as another token
  // comes than was guessed, those of later rows are 0xffffffff and neither drawn nor counted, so that the
  // next step goes on behind the one that came.
  void begin_rows(Recorder& recorder) const;

  // Dispatches of a token.
  std::uint32_t dispatches() const { return greedy_ ? 2 : 4; }

 private:
  enum Kernels { kClear, kCount, kScan, kPick, kHistogram, kCollect, kDraw, kKernels };
  explicit Sampling(Device& device) : device_(&device) {}
  Status make_kernels(KernelCache& kernels);
  Status make_buffers();
  Status bind();
  Status grow(Buffer& buffer, std::string_view label, std::uint64_t bytes);
  Status write_history(const GenerateOptions& options, std::span<const TokenId> history);
  Status write_biases(const GenerateOptions& options, TokenId pad_id);
  void set_filters(const GenerateOptions& options);
  Status count_history();

  // As in shaders/sampling_parameters.wgsl.
  struct Words {
    std::uint32_t high = 0, low = 0;
  };
  static Words words_of(std::uint64_t bits);
  static Words words_of(double value);
  struct Parameters {
    Words repeat, presence, frequency, top_p, cut, keep, rate, seed;
    std::uint32_t has_top_p = 0, has_keep = 0, top_k = 0, adjusts = 0, penalises = 0, has_repeat = 0,
                  window = 0, history = 0, biases = 0, vocab = 0, groups = 0, chunk = 0;
  };

  Device* device_;
  std::uint32_t vocab_ = 0, groups_ = 0, chunk_ = 0;
  bool greedy_ = true;
  Parameters values_;
  Buffer logits_, chosen_;
  std::optional<Guesses> guesses_;
  Buffer first_row_;  // a word that says so
  // Buffers that the kernels share; see the shaders. `window_` holds the tokens that penalties look back to.
  Buffer parameters_, state_, marks_, keys_, partials_, histogram_, candidates_, window_, bias_ids_, biases_;
  bool rebind_ = true;
  std::array<std::shared_ptr<const Kernel>, kKernels> kernels_;
  std::array<BoundKernel, kKernels> bound_;
};

}  // namespace doppler::gpu
