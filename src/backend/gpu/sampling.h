// Sampling: the next token of each of some rows of logits, chosen where the logits are, token for token as
// the engine's Sampler chooses it. Each row has options, a history and draws of its own.
//
// However many rows there are, their tokens take two dispatches where the likeliest is wanted (scan, pick)
// and four where one is drawn: scan (scores and the largest of them), histogram (what the tokens weigh, by
// distance from the largest), collect (the tokens of the few buckets that decide) and draw (a workgroup for
// each row). Scores are doubles in integer arithmetic, the same bits as the CPU's; masses are whole numbers
// of 2^-42, so that every adapter, in every order, sums the same. A drawn token can differ from the CPU's
// only where the share lies within about 1e-7 of the mass from a boundary between two tokens.
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
  // Whether what is chosen depends on what was.
  static bool remembers(const GenerateOptions& options);
  // Whether create() and begin() have room for such a model and such options.
  static bool takes(std::uint32_t vocab, const GenerateOptions& options);
  // For so many rows, which choose from rows of `logits` ([row][vocab] floats) and leave their tokens in
  // `chosen` ([row of logits]). With `guesses` the one row goes through those of a step: see begin_guesses().
  // Compiles every kernel that any options need. Errors: kUnsupported for vocabularies of 2^22 and more.
  struct Rows {
    std::uint32_t vocab = 0, count = 1, of_logits = 1;
    std::uint64_t tokens = UINT64_MAX;  // of the longest sequence: larger penalty windows are as good as none
  };
  static Result<Sampling> create(Device& device, KernelCache& kernels, const Rows& rows, const Buffer& logits,
                                 const Buffer& chosen, std::optional<Guesses> guesses = {});
  // Bytes of the largest buffer for each row; no binding of a device may be larger than its limit.
  static std::uint64_t row_bytes(std::uint32_t vocab) { return std::uint64_t{vocab} * 16; }

  // Prepares a row for a continuation, for the tokens recorded and submitted from here on. `options` are as
  // check_generate_options accepts them and are not read later; `history` is the sequence so far. `alike`:
  // that many rows from this one on, each with a draw more than the one before; then nothing is penalised.
  // Errors: kUnsupported for a penalty window of more than 2^24 tokens that history and options.max_tokens
  // outgrow.
  Status begin(std::uint32_t row, const GenerateOptions& options, TokenId pad_id,
               std::span<const TokenId> history, std::uint64_t first_draw, std::uint32_t alike = 1);

  // Which rows record() chooses for from here on, and from which rows of logits. Each has begun.
  struct Listed {
    std::uint32_t row = 0, of_logits = 0;
  };
  Status list(std::span<const Listed> rows);
  // Of one row, which begins and is listed.
  Status begin_alone(const GenerateOptions& options, TokenId pad_id, std::span<const TokenId> history,
                     std::uint64_t first_draw);

  // Records the choice of a token for each of the listed rows: writes its id to `chosen`, counts it into the
  // row's history and raises the number of its draw. The id is 0xffffffff where the CPU's sampler fails: a
  // logit is NaN or +Inf, or every token is ruled out.
  void record(Recorder& recorder) const;
  // With guesses: the next token that is recorded is that of the step's first row. As soon as another token
  // comes than was guessed, those of later rows are 0xffffffff and neither drawn nor counted, so that the
  // next step goes on behind the one that came.
  void begin_guesses(Recorder& recorder) const;

  // Dispatches of a token of each.
  std::uint32_t dispatches() const;
  // [row] words, of which the first two are the number of the next draw, the low one first.
  const Buffer& state() const { return state_; }
  static constexpr std::uint32_t kStateWords = 16;

 private:
  enum Kernels { kClear, kCount, kScan, kPick, kHistogram, kCollect, kDraw, kKernels };
  explicit Sampling(Device& device) : device_(&device) {}
  Status make_kernels(KernelCache& kernels);
  Status make_buffers();
  Status bind();
  // What each row has a part of, which may become larger.
  struct Parts {
    Buffer buffer;
    std::uint32_t words = 0;  // of each
  };
  Status widen(Parts& parts, std::string_view label, std::uint64_t words);
  Status write_part(const Parts& parts, std::uint32_t row, const std::vector<std::uint32_t>& words);
  Status write_history(std::uint32_t row, const GenerateOptions& options, std::span<const TokenId> history);
  Status write_biases(std::uint32_t row, std::uint32_t alike, const GenerateOptions& options, TokenId pad_id);
  void set_filters(std::uint32_t row, const GenerateOptions& options);
  Status write_parameters();
  Status count_history(std::uint32_t row, std::uint32_t alike);

  // As in shaders/sampling_parameters.wgsl.
  struct Words {
    std::uint32_t high = 0, low = 0;
  };
  static Words words_of(std::uint64_t bits);
  static Words words_of(double value);
  struct Parameters {
    Words repeat, presence, frequency, top_p, cut, keep, rate, seed;
    std::uint32_t has_top_p = 0, has_keep = 0, top_k = 0, adjusts = 0, penalises = 0, has_repeat = 0,
                  window = 0, history = 0, biases = 0, vocab = 0, groups = 0, chunk = 0, window_at = 0,
                  biases_at = 0, logits_row = 0, listed = 0, drawn = 0, begun = 0;
    bool draws() const { return rate.high != 0; }
  };

  Device* device_;
  Rows rows_;
  std::uint32_t groups_ = 0, chunk_ = 0;
  std::uint32_t listed_ = 0, drawn_ = 0;
  std::vector<Parameters> values_;  // of each row
  Buffer logits_, chosen_;
  std::optional<Guesses> guesses_;
  Buffer first_row_;  // a word that says so
  // Buffers that the kernels share; see the shaders. `window_` holds the tokens that penalties look back to.
  Buffer parameters_, state_, marks_, keys_, partials_, histogram_, candidates_, bias_ids_;
  Parts window_, biases_;
  bool rebind_ = true;
  std::array<std::shared_ptr<const Kernel>, kKernels> kernels_;
  std::array<BoundKernel, kKernels> bound_;
};

}  // namespace doppler::gpu
