// DecodeBuilder: makes a DecodeProgram from a plan, group by group in the order of a token. Each kind of
// group has kernels of its own: products with what comes before and after them (decode_products.cpp), experts
// (decode_experts.cpp), attention (decode_attention.cpp), recurrent layers (decode_recurrent.cpp). Where no
// group matches, or the device cannot bind one, ops run by themselves (decode_builder.cpp).
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/gpu/decode_program.h"
#include "backend/gpu/decode_values.h"
#include "backend/gpu/op_kernels.h"

namespace doppler::gpu {

class DecodeBuilder {
 public:
  DecodeBuilder(Context& context, DecodeProgram& program, const Looks& looks, const DecodeProgram* like);
  Status build();

 private:
  // Activations in 8 bits, and the value that they are of.
  struct Blocks {
    Buffer codes, scales;
    std::optional<ValueId> of;
  };
  // The work on a product's input that its kernel does first, as gemv.wgsl numbers it.
  enum class Prologue : std::uint8_t { kNone = 0, kNorm = 1, kCombine = 2 };
  // The kernel that routed a token last, as it would be without blocks to leave.
  struct Routed {
    std::size_t body;
    ValueId ids;
    KernelCall call;
    std::optional<FixedDispatch> taken;  // out of the body, by experts that route themselves
  };
  // The state to return to when a group cannot be built.
  struct Mark {
    std::size_t body, by_position, logits_head, greedy_head, sites;
    DecodeValues::State values;
    std::vector<Blocks> blocks;
  };

  Device& device() { return *context_.device; }
  const Plan& plan() const { return context_.plan; }
  const Value& info(ValueId id) const { return plan().values[id]; }
  bool wants(ValueId id) const { return wanted_.contains(id); }
  // Whether a value of a group has to be in memory: a tap wants it, or an op outside reads it.
  bool is_stored(ValueId id, const OpGroup& group) const {
    return wants(id) || !readers_.are_within(id, group);
  }

  // decode_builder.cpp
  Status make_buffers();
  Result<bool> take(const OpGroup& group);
  Status fused(const OpGroup& group);
  Status single(const Op& op);
  Status embed(const Op& op);
  Status attend(const Op& op);
  Status place(std::span<const ValueId> ids, std::span<const ValueId> read);
  Status place_outputs(const Op& op) { return place(op.outputs, op.inputs); }
  std::vector<ValueId> read_by(const OpGroup& group) const;
  Status add(const KernelCall& call);
  Status add(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
             Workgroups groups);
  Result<FixedDispatch> make(std::string_view file, const ShaderValues& values,
                             const std::vector<Bound>& buffers, Workgroups groups);
  Result<Blocks*> free_blocks(std::optional<ValueId> read);
  Result<const Blocks*> blocks_of(ValueId id);
  Status choose_likeliest();
  Status make_candidates(std::uint32_t count);
  Status next_tokens();
  Status make_taps();
  Mark mark() const;
  void go_back(Mark mark);

  // decode_products.cpp
  Status product(const OpGroup& group);
  Status head(const OpGroup& group);
  Status head(const OpGroup& group, const GpuMatrix& matrix, GemvSite::Where where);
  Status multiply(const Op& op, Prologue prologue, const OpGroup& group);
  Status place_sum(const OpGroup& group);
  ValueId branch_of(const OpGroup& group) const;
  Status add_pairs(const std::vector<std::size_t>& firsts, ValueId branch, std::size_t others);
  std::vector<std::size_t> sites_that_hand_over(const OpGroup& group) const;
  Status add_norm(const OpGroup& group, bool stores, ShaderValues& values, std::vector<Bound>& buffers);
  Status add_combine(const OpGroup& group, bool stores, ShaderValues& values, std::vector<Bound>& buffers);
  Status add_given(ValueId x, const GpuMatrix& matrix, ShaderValues& values, std::vector<Bound>& buffers);
  Status add_gate(const OpGroup& group, GemvSite& site, ShaderValues& values, std::vector<Bound>& buffers);
  Result<Bound> whole(std::string_view name, ValueId id) const;
  ShaderValues gemv_values(const GpuMatrix& matrix, std::uint32_t rows) const;
  Result<GemvShape> shape_of(const GpuMatrix& matrix, std::uint32_t rows, bool gated, Prologue prologue,
                             bool in_rounds);
  Status add_site(GemvSite site, ShaderValues values, std::vector<Bound> buffers,
                  std::vector<FixedDispatch>& dispatches);

  // decode_experts.cpp
  Status multiply_experts(const Op& op);
  Status route(const Op& op);
  Status route(const OpGroup& group);
  const Op* experts_that_read_blocks(ValueId x) const;
  Status leave_blocks(ValueId ids, KernelCall& call);
  void take_routing(const ExpertParams& p, ValueId ids, ShaderValues& values, std::vector<Bound>& buffers);
  Status experts(const OpGroup& group);
  Status experts_in(const OpGroup& group, const GpuMatrix& matrix, bool quantises);
  Status experts_out(const OpGroup& group, bool quantised);

  // decode_recurrent.cpp
  Status recurrent(const Op& op);
  Status delta(const OpGroup& group);
  Status gated_norm(const OpGroup& group);

  // decode_attention.cpp
  Status attention(const OpGroup& group);
  Status combine(const Op& op, bool floats, const Blocks* blocks);
  std::uint32_t many_splits_from(const AttentionParams& a) const;
  Status add_heads(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers);
  Status add_looked(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers);

  Context& context_;
  DecodeProgram& program_;
  const Looks& looks_;
  const DecodeProgram* like_;  // groups as this one's; may be null
  std::set<ValueId> wanted_;   // of looks_
  Readers readers_;
  DecodeValues values_;
  std::vector<Blocks> blocks_;
  std::uint64_t block_units_ = 0;  // of 64 values: the widest activations in 8 bits
  std::size_t at_ = 0;             // the op that is being built
  std::optional<Routed> routed_;
  Buffer parts_, marks_;                 // of attention's splits
  Buffer expert_codes_, expert_scales_;  // activations of chosen experts in 8 bits
  Buffer heads_;                         // q, k and v in one row, where they do not lie so
  Buffer candidates_;                    // for the likeliest token
  std::uint32_t candidate_count_ = 0;
  // What next_token.wgsl takes to embed the token that it chooses.
  struct {
    ShaderValues values;
    std::vector<Bound> buffers;
    std::uint32_t width = 0;
  } next_embeds_;
};

}  // namespace doppler::gpu
