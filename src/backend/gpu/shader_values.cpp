#include "backend/gpu/shader_values.h"

#include <bit>

namespace doppler::gpu {

std::uint32_t ceil_div(std::uint32_t a, std::uint32_t b) {
  return (a + b - 1) / b;
}

void add_format(ShaderValues& values, const GpuMatrix& matrix) {
  values["FORM"] = static_cast<std::int64_t>(matrix.format.codes);
  values["SCALES"] = static_cast<std::int64_t>(matrix.format.scales);
  values["UNITS_K"] = matrix.units;
}

void bind_shard(std::vector<Bound>& buffers, const GpuMatrix& matrix, const Shard& shard) {
  buffers.push_back({"codes", shard.codes});
  if (matrix.format.has_scales()) buffers.push_back({"scales", shard.scales});
}

void bind_bias(const PlacedMatrix& part, const Shard& shard, ShaderValues& values,
               std::vector<Bound>& buffers) {
  values["BIAS"] = part.bias ? 1 : 0;
  if (part.bias) buffers.push_back({"bias", part.bias, std::uint64_t{shard.first_row} * 4, 0});
}

void add_embed(const Context& context, const Op& op, std::size_t which, const GpuMatrix& table,
               const Shard& shard, std::uint32_t threads, ShaderValues& values, std::vector<Bound>& buffers) {
  const bool positions = which > 0;
  values["THREADS"] = threads;
  values["IDS"] = positions ? context.layout.positions() : context.layout.ids();
  values["ADDS"] = positions ? 1 : 0;
  values["WIDTH"] = context.plan.values[op.outputs[0]].width;
  values["ROW0"] = shard.first_row;
  values["ROWS"] = shard.rows;
  values["TABLE"] = table.rows;
  values["FACTOR_BITS"] = float_bits(positions ? 1 : std::get<EmbedParams>(op.params).scale);
  add_format(values, table);
  buffers.push_back({"step", context.step});
  bind_shard(buffers, table, shard);
}

void add_cache(const Context& context, const Op& attention, ShaderValues& values) {
  const auto& a = std::get<AttentionParams>(attention.params);
  values["KV_HALF"] = context.options.kv_type == KvType::kF16 ? 1 : 0;
  values["DIM"] = a.head_dim;
  values["KV_HEADS"] = a.kv_heads;
  const KvBuffers& kv = context.kv[a.cache_of(attention.layer)];
  values["CAPACITY"] = kv.capacity;
  if (kv.paged) {
    values["PAGE_TABLE"] = context.layout.page_table();
    values["PAGE_ROW"] = context.layout.page_row;
  }
  values["SLOTS"] = context.layout.slots();
  values["POSITIONS"] = context.layout.positions();
}

void add_scores(const Op& attention, ShaderValues& values) {
  const auto& a = std::get<AttentionParams>(attention.params);
  values["HEADS"] = a.heads;
  values["WINDOW"] = a.window;
  values["CHUNKED"] = a.chunked ? 1 : 0;
  values["SINKS"] = attention.weights.empty() ? 0 : 1;
  values["SCALE_BITS"] = float_bits(a.scale);
  values["SOFTCAP"] = a.softcap > 0 ? 1 : 0;
  if (a.softcap > 0) values["SOFTCAP_BITS"] = float_bits(a.softcap);
  values["ALIBI"] = a.alibi.max_bias > 0 ? 1 : 0;
  if (!(a.alibi.max_bias > 0)) return;
  const std::uint32_t whole = std::bit_floor(a.heads);
  values["ALIBI_HEADS"] = whole;
  values["ALIBI_STEP_BITS"] = float_bits(a.alibi.max_bias / whole);
  values["ALIBI_SCALE_BITS"] = float_bits(a.alibi.scale);
  values["ALIBI_ROUNDED"] = a.alibi.rounded ? 1 : 0;
}

Status bind_sinks(Context& context, const Op& attention, std::vector<Bound>& buffers) {
  if (attention.weights.empty()) return {};
  DOPPLER_ASSIGN(const Buffer sinks, context.vectors(attention.weights[0], 1));
  buffers.push_back({"sinks", sinks});
  return {};
}

void add_rotation(const Context& context, const RopeParams& rope, ShaderValues& values) {
  values["PAIRS"] = static_cast<std::int64_t>(context.plan.rope_tables[rope.table].inverse_frequency.size());
  values["HIGH_ROWS"] = context.high_rows();
  values["INTERLEAVED"] = rope.layout == RopeLayout::kHalf ? 0 : 1;
}

}  // namespace doppler::gpu
