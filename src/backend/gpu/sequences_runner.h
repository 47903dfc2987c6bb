// SequencesRunner: sequences that continue together, each step one token of every one, chosen and fed to the
// next step on the device. A step is the batch program's; some are under way at a time. Sequences come and go
// between submissions: the program stays, only the buffers that list them are written anew.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "backend/continuer.h"
#include "backend/gpu/batch_program.h"
#include "backend/gpu/likeliest_rows.h"
#include "backend/gpu/sampling.h"

namespace doppler::gpu {

class SequencesRunner {
 public:
  // Sequences at most: as many as products of few rows take in one tile.
  static constexpr std::uint32_t kMost = 64;

  // Room for `most` of them.
  static Result<SequencesRunner> create(Context& context, BatchProgram& batch, std::uint32_t most);

  bool empty() const { return rows_.empty(); }
  bool has(std::uint32_t slot) const;
  std::vector<std::uint32_t> slots() const;
  // `length` is what the slot's cache holds. Errors: kUsage for a slot that is in already, kLimit if there is
  // no room for another, kUnsupported for a token that is never chosen and differs from the others'.
  Status join(const Continuation& continuation, std::uint64_t length);
  // The tokens of a submission, step by step; nothing when all have ended. An error ends all of them.
  Result<std::span<const SlotToken>> next_tokens();
  struct Ended {
    std::uint64_t length = 0;   // what is kept
    std::uint64_t written = 0;  // tokens in the slot's cache, with those that were not kept
  };
  // Takes a sequence out. Errors: kUsage for a slot that is not in, and for a length that it did not reach.
  Result<Ended> leave(std::uint32_t slot, std::uint64_t length);
  // Waits for what is under way, whose tokens the next next_tokens() gives: other steps may run then.
  Status settle();

  // The dispatches of a step of so many sequences that follow the batch program's.
  std::vector<FixedDispatch> choice(std::uint32_t count) const;

 private:
  SequencesRunner(Context& context, BatchProgram& batch, std::uint32_t most)
      : context_(&context), batch_(&batch), most_(most) {}

  // Of a sequence whose token is not just the likeliest: a row of a sampler. As many rows are made at a time
  // as their buffers may have.
  struct Chooser {
    std::size_t sampler = 0;
    std::uint32_t row = 0;
    bool used = false;
  };
  struct Row {
    std::uint32_t slot = 0;
    std::uint64_t begin = 0;  // length of the cache before
    std::uint64_t given = 0, left = 0;
    TokenId newest = 0;
    std::vector<TokenId> stops;
    std::optional<std::size_t> chooser;
    bool ended() const { return left == 0; }
  };
  struct Flight {
    std::uint64_t submission = 0;
    std::uint32_t steps = 0;
    Buffer back;
  };

  Result<std::size_t> free_chooser();
  Status list_choosers();
  Result<std::vector<FixedDispatch>> body(std::uint32_t count);
  Status write_rows();
  // False where nothing was submitted: sequences have no room in the cache, or have ended.
  Result<bool> submit();
  Result<std::uint32_t> reserve(std::uint32_t steps);
  Status receive();
  Status fail_all(Status status);
  std::uint64_t most_left() const;

  Context* context_;
  BatchProgram* batch_;
  std::uint32_t most_;
  LikeliestRows likeliest_;
  BoundKernel next_;
  Buffer ring_, chosen_, table_;
  std::vector<Sampling> samplers_;
  std::vector<Chooser> choosers_;
  std::vector<Row> rows_;
  std::optional<TokenId> pad_;
  // As the device lists them: indices of rows_ that had not ended then. `stale`: to be written anew.
  std::vector<std::size_t> listed_;
  bool stale_ = true;
  std::uint64_t submitted_ = 0, received_ = 0;  // steps since they were written
  std::vector<FixedDispatch> body_, choice_;    // a step of so many sequences
  std::uint32_t step_rows_ = 0;
  std::vector<Flight> flights_;
  std::vector<Buffer> spare_;
  std::vector<SlotToken> coming_, given_;
};

}  // namespace doppler::gpu
