// BatchProgram: the plan for any number of tokens of any sequences, each value in memory: prompts, several
// sequences in a step, and the reference that the fused program for single tokens is checked against.
//
// An op has variants, made when they are first needed: products by how many rows they have (one by one, as
// columns, or in tiles of several sizes), attention by whether the step's tokens are neighbours of one
// sequence or the newest of several, fused ops by whether a tap asks for values that they otherwise do not
// store. Their arithmetic does not depend on the last.
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
#include "plan/late.h"

namespace doppler::gpu {

// A kernel and how many workgroups it takes: x and z always, y one for each `rows_each` tokens, or wanted
// rows, of which each counts `rows_times`, and `more` besides. kTokenLast: z one for each token, and y is
// `z`.
struct Dispatch {
  enum class Per : std::uint8_t { kOnce, kToken, kWanted, kTokenLast };
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
  bool runs = false;     // most tokens have neighbours of their own sequence: see has_runs()
  bool apart = false;    // each token is computed as if it were alone: see are_apart(), are_in_line()
  bool in_line = false;  // and some follow one another
  // Of a step that had so many tokens only these are left, which had their logits wanted: products sum along
  // k as they would for all. 0: all are there.
  std::uint32_t of_tokens = 0;
  std::uint32_t all_tokens() const { return of_tokens > 0 ? of_tokens : tokens; }
};

// Recording takes a microsecond a dispatch. So steps of that many tokens or more, whose dispatches take
// longer, hand some over before the rest is recorded.
inline constexpr std::uint32_t kTokensOfHeadStart = 64, kDispatchesOfHeadStart = 10;

// Tokens that are computed in line at most: with guesses for more a step costs more than it can bring. The
// kernels are for kLeastInLine of them or more.
inline constexpr std::uint32_t kMostInLine = 32, kLeastInLine = 16;

// Whether attention in tiles of tokens pays.
bool has_runs(const StepInput& input);
// Whether the tokens are the newest of so many sequences, few enough for kernels of their own.
bool are_apart(const StepInput& input);
// Whether they are guesses that are to be checked: few that follow one another, all with their logits wanted.
bool are_in_line(const StepInput& input);

class BatchProgram {
 public:
  // Room for `wanted_rows` rows of logits at a time.
  static Result<BatchProgram> create(Context& context, std::uint32_t wanted_rows);

  // Records ops [begin, end) for a step. The stages that `tap` (may be null) wants are then in memory. Where
  // an op is not made yet, all up to `made_end` (0: end) are made with it.
  Status record(Context& context, Recorder& recorder, std::size_t begin, std::size_t end,
                const StepShape& step, const Tap* tap, std::size_t made_end = 0);
  // The kernels that record() would have to compile for these ops.
  Result<std::vector<KernelSource>> missing(Context& context, std::size_t begin, std::size_t end,
                                            const StepShape& step, const Tap* tap);
  // One of the two halves of an attention op of which no part is fused with others: the cache is written
  // (`append`), then read.
  Status record_attention(Context& context, Recorder& recorder, std::size_t op, const StepShape& step,
                          bool append);
  // The attention that record() runs, with its scores stored in `scores` as well: [token, head, longest].
  Status record_scores(Context& context, Recorder& recorder, std::size_t op, const StepShape& step,
                       const Buffer& scores);

  // Moves the rows of the wanted tokens to the front of all values that ops from late().first on read, before
  // which the buffer `step` lists these tokens in place of ids and counts no others.
  Status record_late_rows(Context& context, Recorder& recorder);

  const ValueView& value(ValueId id) const { return values_[id]; }
  // What only rows with wanted logits need.
  const LateOps& late() const { return late_; }
  // Whether prompts are multiplied on tensor cores.
  bool multiplies_halves() const { return halves_; }
  // Whether 8-bit blocks of prompts may share scales.
  bool has_wide_reads() const { return wide_; }
  // Whether the newest tokens of several sequences are computed as each alone would be.
  bool agrees_in_company(const Plan& plan) const;
  std::size_t first_wanted_op() const { return first_wanted_op_; }
  std::uint32_t wanted_rows() const { return wanted_rows_; }

 private:
  friend class BatchBuilder;
  struct Variant {
    std::size_t op = 0;
    std::uint32_t rows = 0;  // the most that the variant is for; 0: products one by one
    bool runs = false, emit = false;
    bool few = false;      // of a product: far fewer rows than the variant is for
    bool apart = false;    // an attention of several sequences is one kernel, and what is before and after it
    bool in_line = false;  // an attention of tokens that attend to one another: all are appended first
    bool gated = false;    // gate, up and activation are one kernel
    bool by_token = false;  // experts with their activation and sum are multiplied as for single tokens
    bool parts = false;     // a norm adds the parts of the split product before it
    bool halves = false;  // products and attention on tensor cores, and what leaves the former's activations
    bool left = false;    // a product whose input the attention before has left in x8_
    bool wide = false;    // 8-bit blocks that it leaves or reads share their scales (wide_reads_)
    auto operator<=>(const Variant&) const = default;
  };
  Result<const std::vector<Dispatch>*> dispatches(Context& context, const Variant& variant);
  Variant variant_of(const Context& context, std::size_t op, const StepShape& step, const Tap* tap) const;
  // Whether a step's products and attentions are for tensor cores; and a product that reads this value.
  bool in_halves(const StepShape& step) const;
  bool reads_halves(ValueId id, const StepShape& step) const;
  // Whether a product leaves its parts to the norm of sums behind it, which adds them; of either.
  bool leaves_parts(const Context& context, std::size_t op, const StepShape& step, const Tap* tap) const;
  // Whether an op of this variant leaves or reads 8-bit blocks of a prompt that share their scales.
  bool has_wide_blocks(const Context& context, const Variant& variant, const StepShape& step) const;
  // Checks the kernels of a step's products on tensor cores; where one is wrong, none is used.
  Status check_halves(Context& context, const StepShape& step);
  // What these ops lack, with their kernels compiled at once, on all threads.
  Status make_all(Context& context, std::size_t begin, std::size_t end, const StepShape& step,
                  const Tap* tap);

  ValueBuffers values_;
  BatchGroups groups_;
  std::vector<std::vector<PlacedMatrix>> placed_;  // by op, of products
  std::vector<bool> has_blocks_;                   // by op: its input is in x8_ already
  std::vector<bool> leaves_blocks_;  // by op: a prompt's attention in parts, which leaves its values in x8_
  bool refused_ = false;  // a kernel of several ops of newest tokens is computed wrongly, and so op by op
  // By op: a part of an attention that takes the newest tokens of several sequences in splits.
  std::vector<bool> can_be_apart_;
  std::map<std::size_t, OpGroup>
      attentions_;  // by the attention's op: the group that it is for single tokens
  // By op, for columns: gate and up, their activation, and the product that reads it.
  std::vector<bool> can_be_gated_;
  // By op: a product of which only a norm of sums reads, and that norm's first op.
  std::vector<bool> can_leave_parts_;
  std::map<std::size_t, OpGroup>
      expert_groups_;                       // by op: the group that it is for single tokens, in 8-bit blocks
  bool halves_ = false;                     // tensor cores multiply
  std::set<std::uint32_t> halves_checked_;  // by rows of a variant: their kernels are right
  std::vector<bool> half_reads_;            // by value: its products read it in halves
  bool wide_ = false;                       // 8-bit blocks of some values share scales
  std::vector<bool> wide_reads_;            // by value: its products read it in such blocks
  std::vector<bool> has_halves_;            // by op: its input is in x16_ already
  std::uint32_t half_tokens_ = 0;           // that x16_ has room for
  Buffer x16_;                              // the newest activations in halves
  Buffer x8_, xs_;                          // the newest activations in 8 bits
  Buffer act8_, act_scales_;                // those that gate and up leave by themselves
  Buffer parts_;                            // of split products
  Buffer split_parts_, split_marks_;        // of attention in splits
  Buffer heads_;                            // q, k and v of the newest tokens where they are three values
  Buffer expert8_, experts_;                // what experts read, in 8 bits
  Buffer place8_, place_scales_;            // activations of a few tokens' experts in 8 bits
  Buffer order_, tiles_;                    // a step's rows by expert: see expert_tiles.wgsl
  std::map<Variant, std::vector<Dispatch>> made_;
  std::vector<Dispatch> late_rows_;  // made when they are first needed
  LateOps late_;
  std::size_t first_wanted_op_ = 0;
  std::uint32_t wanted_rows_ = 0;
};

}  // namespace doppler::gpu
