// BatchBuilder: makes the kernels of a BatchProgram, for single ops and products (batch_builder.cpp), for
// groups of ops (batch_fused.cpp), and for few tokens of several sequences (batch_few.cpp).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/batch_program.h"
#include "backend/gpu/decode_program.h"
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/op_kernels.h"

namespace doppler::gpu {

class BatchBuilder {
 public:
  using Dispatches = std::vector<Dispatch>;
  using Variant = BatchProgram::Variant;

  // With `only_sources` the dispatches cannot run: the sources of the kernels they need are listed there.
  BatchBuilder(Context& context, BatchProgram& program, std::vector<KernelSource>* only_sources = nullptr)
      : context_(context), program_(program), only_sources_(only_sources) {}

  Status prepare(std::uint32_t wanted_rows);
  Result<Dispatches> make(const Variant& variant);
  // BatchProgram::record_late_rows().
  Result<Dispatches> move_wanted();
  // The attention itself, over a cache that holds the step's keys and values. `scores`: where they are
  // stored, too, and nothing else counts; may be null.
  Status attention(const Variant& variant, const Buffer* scores, Dispatches& out);

 private:
  Device& device() { return *context_.device; }
  const Value& info(ValueId id) const { return context_.plan.values[id]; }
  const ValueView& view(ValueId id) const { return program_.values_[id]; }
  const Op& op_at(std::size_t index) const { return context_.plan.ops[index]; }
  Dispatch::Per per(ValueId id) const {
    return info(id).rows == Rows::kAll ? Dispatch::Per::kToken : Dispatch::Per::kWanted;
  }
  // The word of `step` that holds the number of a value's rows.
  std::uint32_t count_word(ValueId id) const {
    return info(id).rows == Rows::kAll ? StepLayout::kCount : StepLayout::kWantedCount;
  }
  std::uint64_t most_rows(ValueId id) const {
    return info(id).rows == Rows::kAll ? context_.layout.tokens : program_.wanted_rows_;
  }
  Result<Dispatch> make(std::string_view file, const ShaderValues& values, const std::vector<Bound>& buffers,
                        std::uint32_t x, Dispatch::Per per);

  Status add(KernelCall call, Dispatch::Per per, Dispatches& out);

  Status make_shared_buffers();
  // By value: whether it can be left in a form, and all products with a matrix that reads it can take that.
  // A value is read so by all of its products or by none: there is one kernel that leaves it so.
  std::vector<bool> values_read_in_form(const std::function<bool(ValueId)>& can_leave,
                                        const std::function<bool(const GpuMatrix&)>& can_take) const;
  void find_wide();
  Status grouped(const BatchGroup& group, const Variant& variant, Dispatches& out);
  Status single(const Variant& variant, Dispatches& out);
  Status embed(const Op& op, Dispatches& out);
  Status recurrent(const Op& op, Dispatches& out);
  Status append(const Op& attention, Dispatches& out);
  Status matmul(const Variant& variant, Dispatches& out);
  Status leave_blocks(ValueId id, const Variant& variant, Dispatches& out);
  void bind_blocks(const Variant& variant, std::vector<Bound>& buffers) const;
  Status gemv(const Op& op, const PlacedMatrix& part, const Shard& shard, const Variant& variant,
              Dispatches& out);
  Status product(const Op& op, const PlacedMatrix& part, const Shard& shard, const Variant& variant,
                 Dispatches& out);
  Status gemm(const Variant& variant, const PlacedMatrix& part, const Shard& shard, Dispatches& out);
  Status gemm_float(const Variant& variant, const PlacedMatrix& part, const Shard& shard, Dispatches& out);
  // A product in tiles, and the sum of its parts where k is split; `call` lacks what both kinds have.
  Status tiled(const Variant& variant, const PlacedMatrix& part, const Shard& shard, const GemmShape& shape,
               KernelCall call, Dispatches& out);
  Status sum_parts(const Op& op, const PlacedMatrix& part, const Shard& shard, std::uint32_t splits,
                   std::uint64_t split_stride, Dispatches& out);
  Status sum_left_parts(std::size_t product, std::uint32_t rows, Dispatches& out);

  // batch_few.cpp
  Status find_apart();
  void find_gated();
  void find_parts();
  Status columns(const Op& op, const PlacedMatrix& part, const Shard& shard, const Variant& variant,
                 Dispatches& out);
  std::optional<ColumnsShape> gated_shape(const GpuMatrix& matrix);
  Status gated_columns(const Variant& variant, Dispatches& out);
  std::optional<GemmShape> tiles_for(const GpuMatrix& matrix, std::uint32_t tokens, std::uint32_t rows) const;
  std::uint64_t rows_of_part(std::uint32_t rows, ValueId id) const;
  std::optional<GemmShape> parts_of(std::size_t product, std::uint32_t rows) const;
  Status heads_apart(const OpGroup& group, ShaderValues& values, std::vector<Bound>& buffers,
                     Dispatches& out);
  Status attend_apart(const Variant& variant, Dispatches& out);
  Status attend_in_splits(const Variant& variant, Dispatches& out);
  bool makes_blocks_apart(std::size_t attention) const;
  Status combine_apart(const Variant& variant, Dispatches& out);
  // Room for what `splits` splits of so many tokens leave.
  Status make_room_for_splits(const AttentionParams& a, std::uint64_t tokens, std::uint64_t splits);
  // Puts an attention's splits, or the parts of a prompt's, together: as floats, and in the 8-bit blocks that
  // the product behind reads, which may share scales.
  struct Combined {
    bool floats = false, blocks = false, wide = false;
  };
  Status combine(const Op& op, const PromptParts* parts, const Combined& made_as, Dispatches& out);
  std::optional<PromptParts> prompt_parts(const Op& op, std::uint32_t tile) const;
  Status add_tiles(KernelCall call, std::uint32_t tokens, std::uint32_t z, Dispatches& out);
  Status attention_in_parts(const Variant& variant, KernelCall call, const PromptParts& parts,
                            std::uint32_t tokens, const Buffer* scores, Dispatches& out);
  void find_parted();

  // batch_halves.cpp
  Status prepare_halves();
  Status leave_halves(ValueId id, Dispatches& out);
  Status matmul_halves(const Variant& variant, Dispatches& out);
  Status gemm_half(const Op& op, const PlacedMatrix& part, const Shard& shard, std::uint32_t rows,
                   Dispatches& out);
  // HALF_TOKENS and x16.
  void add_blocks(const Variant& variant, ShaderValues& values, std::vector<Bound>& buffers) const;
  void add_halves(ShaderValues& values, std::vector<Bound>& buffers) const;

  // batch_experts.cpp
  Status prepare_experts();
  Status find_experts();
  Status add_places(GemvSite site, const ShaderValues& values, const std::vector<Bound>& buffers,
                    Dispatch::Per per, Dispatches& out);
  Status places_in(const OpGroup& group, Dispatches& out);
  Status places_out(const OpGroup& group, Dispatches& out);
  Result<bool> multiply_places(std::size_t op, Dispatches& out);
  Status multiply_experts(const Variant& variant, Dispatches& out);
  Result<bool> multiply_grouped(const Variant& variant, Dispatches& out);
  Status sort_rows(const Op& op, std::uint32_t tile, Dispatches& out);

  Status fused_norm(const BatchGroup& group, const Variant& variant, Dispatches& out);
  Status fused_gated(const BatchGroup& group, const Variant& variant, Dispatches& out);
  Status fused_rope(const BatchGroup& group, bool emit, Dispatches& out);

  Context& context_;
  BatchProgram& program_;
  std::vector<KernelSource>* only_sources_;
};

}  // namespace doppler::gpu
