// BatchProgram: the plan for any number of tokens of any sequences, each value in memory: prompts, several
// sequences in a step, and the reference that the fused program for single tokens is checked against.
//
// An op has variants, made when they are first needed: products by how many rows they have (one by one, or in
// tiles of several sizes), attention by whether the step's tokens are neighbours of one sequence, fused ops
// by whether a tap asks for values that they otherwise do not store. Their arithmetic does not depend on the
// last.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backend/gpu/batch_groups.h"
#include "backend/gpu/context.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/values.h"

namespace doppler::gpu {

// A kernel and how many workgroups it takes: x and z always, y one for each `rows_each` tokens, or wanted
// rows, of which each counts `rows_times`, and `more` besides.
struct Dispatch {
  enum class Per : std::uint8_t { kOnce, kToken, kWanted };
  BoundKernel kernel;
  std::uint32_t x = 1;
  Per per = Per::kToken;
  std::uint32_t rows_each = 1;
  std::uint32_t z = 1;
  std::uint32_t rows_times = 1, more = 0;
};

// The properties of a step that decide about its kernels.
struct StepShape {
  std::uint32_t tokens = 0, wanted = 0;
  bool runs = false;  // most tokens have neighbours of their own sequence: see has_runs()
};

// Whether attention in tiles of tokens pays.
bool has_runs(const StepInput& input);

class BatchProgram {
 public:
  // Room for `wanted_rows` rows of logits at a time.
  static Result<BatchProgram> create(Context& context, std::uint32_t wanted_rows);

  // Records ops [begin, end) for a step. The stages that `tap` (may be null) wants are then in memory.
  Status record(Context& context, Recorder& recorder, std::size_t begin, std::size_t end,
                const StepShape& step, const Tap* tap);
  // One of the two halves of an attention op of which no part is fused with others: the cache is written
  // (`append`), then read.
  Status record_attention(Context& context, Recorder& recorder, std::size_t op, const StepShape& step,
                          bool append);
  // The attention that record() runs, with its scores stored in `scores` as well: [token, head, longest].
  Status record_scores(Context& context, Recorder& recorder, std::size_t op, const StepShape& step,
                       const Buffer& scores);

  const ValueView& value(ValueId id) const { return values_[id]; }
  // Whether prompts are multiplied on tensor cores.
  bool multiplies_halves() const { return halves_; }
  std::size_t first_wanted_op() const { return first_wanted_op_; }
  std::uint32_t wanted_rows() const { return wanted_rows_; }

 private:
  friend class BatchBuilder;
  struct Variant {
    std::size_t op = 0;
    std::uint32_t rows = 0;  // of a product: the most that the variant is for; 0: one by one
    bool runs = false, emit = false;
    bool halves = false;  // products on tensor cores, and what leaves their activations
    auto operator<=>(const Variant&) const = default;
  };
  Result<const std::vector<Dispatch>*> dispatches(Context& context, const Variant& variant);
  Variant variant_of(const Context& context, std::size_t op, const StepShape& step, const Tap* tap) const;
  // Whether a step's products read the value in halves.
  bool reads_halves(ValueId id, const StepShape& step) const;
  // Checks the kernels of a step's products on tensor cores; where one is wrong, none is used.
  Status check_halves(Context& context, const StepShape& step);
  // Compiles the missing kernels of ops [begin, end) at once, on all threads.
  Status compile(Context& context, std::size_t begin, std::size_t end, const StepShape& step, const Tap* tap);

  ValueBuffers values_;
  BatchGroups groups_;
  std::vector<std::vector<PlacedMatrix>> placed_;  // by op, of products
  std::vector<bool> has_blocks_;                   // by op: its input is in x8_ already
  Buffer x8_, xs_;                                 // the newest activations in 8 bits
  bool halves_ = false;                            // tensor cores multiply
  std::set<std::uint32_t> halves_checked_;         // by rows of a variant: their kernels are right
  std::vector<bool> half_reads_;                   // by value: its products read it in halves
  std::vector<bool> has_halves_;                   // by op: its input is in x16_ already
  std::uint32_t half_tokens_ = 0;                  // that x16_ has room for
  Buffer x16_;                                     // the newest activations in halves
  Buffer parts_;                                   // of split products
  Buffer expert8_, experts_;                       // activations of experts in 8 bits
  Buffer order_, tiles_;                           // a step's rows by expert: see expert_tiles.wgsl
  std::map<Variant, std::vector<Dispatch>> made_;
  std::size_t first_wanted_op_ = 0;
  std::uint32_t wanted_rows_ = 0;
};

}  // namespace doppler::gpu
