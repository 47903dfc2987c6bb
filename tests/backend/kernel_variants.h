// Kernels of every kind that the self-check knows, by values that leave rows, units and lanes over: for tests
// that check them right, and broken.
#pragma once

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/gemm_shape.h"
#include "backend/gpu/kernel_report.h"
#include "backend/gpu/self_check.h"
#include "gpu_weights.h"

namespace doppler::gpu::testing {

inline Variant gemv_variant(StoredAs type, std::int64_t rows, std::int64_t units, bool eight_bits,
                            bool bias = false) {
  const WeightFormat format = type.format();
  Variant variant{"gemv.wgsl",
                  {{"R", 8},
                   {"LANES", 4},
                   {"UNITS", (units + 3) / 4},
                   {"ROWS", rows},
                   {"PRO", 0},
                   {"EPI", 0},
                   {"ACT", eight_bits ? 1 : 0},
                   {"BIAS", bias ? 1 : 0},
                   {"OUT_STRIDE", rows + 9},
                   {"OUT_OFFSET", 7},
                   {"QUANTISE_OUT", 0},
                   {"EMIT_PARTS", 0},
                   {"EMIT_ACT", 0},
                   {"FORM", static_cast<std::int64_t>(format.codes)},
                   {"SCALES", static_cast<std::int64_t>(format.scales)},
                   {"UNITS_K", units}}};
  if (!eight_bits) {
    variant.values.merge(
        ShaderValues{{"X_VEC", 0}, {"WIDTH", units * 64 - 3}, {"X_STRIDE", units * 64}, {"X_OFFSET", 2}});
  }
  return variant;
}

// As the fused program has them: 1 norm, 2 attention before; gate and up or plain rows after.
inline Variant fused_variant(DType type, int prologue, bool gated, bool eight_bits, bool quantises = false) {
  Variant variant = gemv_variant(type, gated ? 96 : 90, 12, eight_bits, gated);
  ShaderValues& v = variant.values;
  for (const char* unused : {"X_VEC", "X_STRIDE", "X_OFFSET", "QUANTISE_OUT", "OUT_STRIDE"}) v.erase(unused);
  v["PRO"] = prologue;
  v["WIDTH"] = 740;
  v["OUT_OFFSET"] = 3;
  v["OUT_STRIDE"] = 0;
  if (prologue == 1) {
    v.merge(ShaderValues{{"EPS_BITS", bits_of(1e-6)},
                         {"ADD", 1},
                         {"CARRY", 1},
                         {"POST", quantises ? 0 : 1},
                         {"EMIT_NORMED", 0},
                         {"EMIT_BLOCKS", 0},
                         {"EMIT_POST", 0}});
  } else {
    v["WIDTH"] = 768;
    v.merge(ShaderValues{{"DIM", 64},
                         {"MOST_SPLITS", 16},
                         {"KV_HALF", eight_bits ? 1 : 0},
                         {"POSITIONS", 5},
                         {"WINDOW", eight_bits ? 300 : 0},
                         {"CHUNKED", 0},
                         {"SINKS", 0},
                         {"EMIT_ATTN", 0}});
  }
  v["EPI"] = gated ? 1 : 0;
  if (!gated) return variant;
  v["ACTIVATION"] = quantises ? 1 : 0;
  v["QUANTISE_OUT"] = quantises ? 1 : 0;
  if (quantises) {
    v["R"] = 32;
    v["OUT_UNITS"] = 2;
    v.erase("OUT_OFFSET");
    v.erase("OUT_STRIDE");
  }
  return variant;
}

inline Variant norm_variant(std::int64_t dim) {
  return {"norm.wgsl",
          {{"THREADS", 128},
           {"DIM", dim},
           {"EPS_BITS", bits_of(1e-6)},
           {"LAYER", 0},
           {"BIAS", 0},
           {"OWN", 0},
           {"X_STRIDE", 2 * dim + 4},
           {"X_OFFSET", 4},
           {"OUT_STRIDE", 2 * dim},
           {"OUT_OFFSET", 0}}};
}

// Sums of a branch in parts and their norm, as floats.
inline Variant row_norm_variant(std::int64_t width, std::int64_t parts, bool post) {
  Variant made = {"batch_norm.wgsl",
                  {{"THREADS", 128},
                   {"WIDTH", width},
                   {"ADD", parts > 0 ? 1 : 0},
                   {"POST", post ? 1 : 0},
                   {"NORM", 1},
                   {"QUANT", 0},
                   {"FLOATS", 1},
                   {"EPS_BITS", bits_of(1e-6)},
                   {"RESIDUAL_STRIDE", 2 * width},
                   {"RESIDUAL_OFFSET", 4},
                   {"X_STRIDE", width + 8},
                   {"X_OFFSET", 4}}};
  if (parts > 0)
    made.values.merge(ShaderValues{{"PARTS", parts},
                                   {"BRANCH_STRIDE", width},
                                   {"BRANCH_OFFSET", 0},
                                   {"H_STRIDE", width + 4},
                                   {"H_OFFSET", 4}});
  if (parts > 1) made.values["PART_STRIDE"] = 3 * width;
  if (post) made.values.merge(ShaderValues{{"POST_EPS_BITS", bits_of(1e-5)}, {"EMIT", 0}});
  return made;
}

inline Variant attention_variant(bool half, std::int64_t window, bool cap, std::int64_t capacity) {
  Variant variant{"attention.wgsl",
                  {{"KV_HALF", half ? 1 : 0},
                   {"DIM", 64},
                   {"VALUE_DIM", 64},
                   {"KV_HEADS", 2},
                   {"CAPACITY", capacity},
                   {"THREADS", 64},
                   {"WINDOW", window},
                   {"CHUNKED", 0},
                   {"SINKS", 0},
                   {"HEADS", 4},
                   {"SCALE_BITS", bits_of(0.125)},
                   {"SOFTCAP", cap ? 1 : 0},
                   {"ALIBI", 0},
                   {"EMIT_SCORES", 0},
                   {"Q_STRIDE", 512},
                   {"Q_OFFSET", 8},
                   {"OUT_STRIDE", 256},
                   {"OUT_OFFSET", 0},
                   {"SLOTS", 12},
                   {"POSITIONS", 8}}};
  if (cap) variant.values["SOFTCAP_BITS"] = bits_of(1.5);
  return variant;
}

// For a workgroup's tokens on tensor cores, with loops in their place.
inline Variant half_attention_variant(std::int64_t window) {
  Variant variant = attention_variant(true, window, window == 0, 160);
  variant.file = "attention_half.wgsl";
  for (const char* name : {"THREADS", "VALUE_DIM"}) variant.values.erase(name);
  variant.values.merge(ShaderValues{{"RT", 1}, {"NS", 4}, {"CHUNK", 32}, {"COOP", 0}, {"COUNT", 0}});
  variant.values["POSITIONS"] = 64;
  variant.values["SLOTS"] = 128;
  return variant;
}

// For a tile of a prompt's tokens, in `parts` if that is not 0.
inline Variant tiled_attention_variant(bool half, std::int64_t window, std::int64_t parts) {
  Variant variant = attention_variant(half, window, window == 0, 600);
  variant.file = "attention_tiled.wgsl";
  for (const char* name : {"THREADS", "VALUE_DIM"}) variant.values.erase(name);
  AttentionShape shape = attention_shapes().back();
  shape.unrolled = false;  // takes a software adapter's compiler long
  const auto cut = cut_attention(device(Mode::kUnchecked)->limits(), shape, 64);
  EXPECT_TRUE(cut.has_value());
  if (cut) add_attention_cut(variant.values, shape, *cut);
  variant.values.merge(ShaderValues{{"COUNT", 0}});
  variant.values["POSITIONS"] = 64;
  variant.values["SLOTS"] = 128;
  if (parts == 0) return variant;
  variant.values.merge(ShaderValues{{"PARTED", 1}, {"PART", 96}, {"MOST_SPLITS", parts}});
  for (const char* name : {"OUT_STRIDE", "OUT_OFFSET"}) variant.values.erase(name);
  return variant;
}

// For the newest tokens of several sequences (`many`) or of one.
inline Variant decode_attention_variant(bool half, bool many, bool paged, std::int64_t window) {
  Variant variant{"attention_decode.wgsl",
                  {{"LP", 8},
                   {"PG", 16},
                   {"ROUNDS", 2},
                   {"HEADS_EACH", 2},
                   {"AT_ONCE", 1},
                   {"KV_HALF", half ? 1 : 0},
                   {"DIM", 64},
                   {"HEADS", 8},
                   {"KV_HEADS", 2},
                   {"CAPACITY", paged ? 32 : 160},
                   {"WINDOW", window},
                   {"CHUNKED", 0},
                   {"SCALE_BITS", bits_of(0.125)},
                   {"SOFTCAP", window != 0 ? 1 : 0},
                   {"ALIBI", 0},
                   {"MOST_SPLITS", many ? 4 : 2},  // of more than 32 positions each
                   {"MANY", many ? 1 : 0},
                   {"Q_OFFSET", 4},
                   {"K_OFFSET", 516},
                   {"V_OFFSET", 644},
                   {"PAIRS", half ? 32 : 14},
                   {"HIGH_ROWS", 4},
                   {"INTERLEAVED", half ? 0 : 1},
                   {"QK_NORM", half ? 1 : 0},
                   {"EMIT_ROPE", 0},
                   {"EMIT_NORM", 0},
                   {"SLOTS", 12},
                   {"POSITIONS", 8}}};
  if (window != 0) variant.values["SOFTCAP_BITS"] = bits_of(1.5);
  if (half) variant.values["EPS_BITS"] = bits_of(1e-6);
  if (many) variant.values.merge(ShaderValues{{"QKV_STRIDE", 800}, {"WORKGROUPS", 2}});
  if (paged) variant.values.merge(ShaderValues{{"PAGE_TABLE", 16}, {"PAGE_ROW", 5}});
  if (paged && !many) {
    variant.values["ALONE_ROW"] = 30;
    variant.values["PAIRS"] = 16;  // half of a head does not turn
  }
  return variant;
}

// What turns a step's heads and writes them to the cache.
inline Variant rope_variant(bool half, bool norm, bool paged) {
  Variant variant{"rope_append.wgsl",
                  {{"TPH", 32},
                   {"HPW", norm ? 1 : 4},
                   {"HEADS", 6},
                   {"KV_HEADS", 2},
                   {"DIM", 80},
                   {"CAPACITY", paged ? 32 : 400},
                   {"KV_HALF", half ? 1 : 0},
                   {"PAIRS", half ? 40 : 12},
                   {"HIGH_ROWS", 4},
                   {"INTERLEAVED", half ? 0 : 1},
                   {"NORM", norm ? 1 : 0},
                   {"EMIT", 0},
                   {"QKV_STRIDE", 900},
                   {"Q_OFFSET", 2},
                   {"K_OFFSET", 500},
                   {"V_OFFSET", 700},
                   {"Q_OUT_STRIDE", 500},
                   {"Q_OUT_OFFSET", 6},
                   {"SLOTS", 12},
                   {"POSITIONS", 8}}};
  if (norm) variant.values["EPS_BITS"] = bits_of(1e-6);
  if (paged) variant.values.merge(ShaderValues{{"PAGE_TABLE", 16}, {"PAGE_ROW", 11}});
  return variant;
}

// Rows in 8-bit blocks: gated, as they are in vectors of four, and as they are one by one.
inline Variant quantise_variant(bool gated, std::int64_t width, bool stores) {
  Variant variant{width % 4 == 0 ? "batch_quantise.wgsl" : "quantise.wgsl",
                  {{"THREADS", 64}, {"WIDTH", width}, {"UNITS_K", (width + 63) / 64}}};
  const char* a = width % 4 == 0 ? "A" : "X";
  variant.values[fmt::format("{}_STRIDE", a)] = 2 * width + 4;
  variant.values[fmt::format("{}_OFFSET", a)] = 4;
  if (width % 4 != 0) return variant;
  variant.values.merge(ShaderValues{{"GATED", gated ? 1 : 0}, {"EMIT", stores ? 1 : 0}});
  if (gated) variant.values.merge(ShaderValues{{"ACTIVATION", 0}, {"B_STRIDE", width + 8}, {"B_OFFSET", 0}});
  if (stores) variant.values.merge(ShaderValues{{"OUT_STRIDE", width}, {"OUT_OFFSET", 8}});
  return variant;
}

inline Variant embed_variant(StoredAs type) {
  const WeightFormat format = type.format();
  return {"embed.wgsl",
          {{"THREADS", 64},
           {"IDS", 9},
           {"ADDS", 0},
           {"WIDTH", 252},
           {"ROW0", 100},
           {"ROWS", 50},
           {"TABLE", 500},
           {"FACTOR_BITS", bits_of(15.5)},
           {"FORM", static_cast<std::int64_t>(format.codes)},
           {"SCALES", static_cast<std::int64_t>(format.scales)},
           {"UNITS_K", 4}}};
}

// What puts the parts together.
inline Variant combine_variant(bool half, std::int64_t window, bool blocks) {
  Variant variant{"attention_combine.wgsl",
                  {{"THREADS", 128},
                   {"PARTS", 1},
                   {"FLOATS", 1},
                   {"BLOCKS", blocks ? 1 : 0},
                   {"WIDTH", 192},
                   {"DIM", 64},
                   {"KV_HALF", half ? 1 : 0},
                   {"WINDOW", window},
                   {"CHUNKED", 0},
                   {"SINKS", blocks ? 1 : 0},
                   {"PARTED", 1},
                   {"PART", 256},
                   {"MOST_SPLITS", 4},
                   {"POSITIONS", 5},
                   {"OUT_STRIDE", 200},
                   {"OUT_OFFSET", 4}}};
  if (blocks) variant.values["UNITS_K"] = 4;
  return variant;
}

// What puts the splits of newest tokens together, more of them than a thread takes.
inline Variant splits_variant() {
  Variant variant = combine_variant(true, 0, true);
  for (const char* name : {"PARTED", "PART"}) variant.values.erase(name);
  variant.values["MOST_SPLITS"] = 32;
  variant.values["PARTS"] = 4;
  return variant;
}

// Experts' gates and ups (`in`), or their downs and sum.
inline Variant experts_variant(DType type, bool in, bool eight_bits, bool shaped) {
  const WeightFormat format = format_of(type);
  ShaderValues v = {{"R", 32},
                    {"UNITS", 2},
                    {"EXPERTS", 5},
                    {"ROWS", 192},
                    {"ACT", eight_bits ? 1 : 0},
                    {"IDS_OFFSET", 3},
                    {"BIAS", shaped ? 1 : 0},
                    {"EMIT_PARTS", 0},
                    {"FORM", static_cast<std::int64_t>(format.codes)},
                    {"SCALES", static_cast<std::int64_t>(format.scales)},
                    {"UNITS_K", 5}};
  if (in) {
    if (!eight_bits) v.merge(ShaderValues{{"WIDTH", 300}, {"X_VEC", 0}, {"X_STRIDE", 300}, {"X_OFFSET", 1}});
    const bool routes = eight_bits && shaped;  // one of the two
    if (routes)
      v.merge(ShaderValues{{"CHOSEN", 3},
                           {"SCORE", static_cast<std::int64_t>(RouterScore::kSigmoid)},
                           {"GROUPS", 1},
                           {"KEPT_GROUPS", 1},
                           {"CORRECTED", 1},
                           {"LOGITS_OFFSET", 2},
                           {"WEIGHTS_OFFSET", 1},
                           {"EACH", 1},
                           {"NORMALISE", 0},
                           {"SCALE_BITS", bits_of(2.5)}});
    v.merge(ShaderValues{{"LANES", 3},
                         {"ROUTES", routes ? 1 : 0},
                         {"QUANTISE_OUT", eight_bits ? 1 : 0},
                         {"EMIT_ACT", 0},
                         {"SHAPED", shaped ? 1 : 0}});
    if (shaped)
      v.merge(ShaderValues{
          {"GATE_LIMIT_BITS", bits_of(8)}, {"ALPHA_BITS", bits_of(1.7)}, {"UP_OFFSET_BITS", bits_of(1)}});
    else
      v["ACTIVATION"] = 0;
    return {"expert_in.wgsl", v};
  }
  v.merge(ShaderValues{{"PLACE_LANES", 3},
                       {"CHOSEN", 3},
                       {"WEIGHTED", 1},
                       {"WEIGHTS_OFFSET", 2},
                       {"ADDS", shaped ? 1 : 0},
                       {"OUT_OFFSET", 4}});
  v["R"] = 16;
  v["ROWS"] = 190;
  if (shaped) v["Z_OFFSET"] = 1;
  if (!eight_bits) v.merge(ShaderValues{{"WIDTH", 300}, {"X_OFFSET", 1}});
  return {"expert_out.wgsl", v};
}

// `what` 0: experts are chosen, 1: weighed, 2: both.
// What chooses and weighs (2) runs as decoding runs it: one subgroup, whose threads have several experts
// each. The others are workgroups of several subgroups.
inline Variant route_variant(std::int64_t what, RouterScore score, std::int64_t groups) {
  const std::int64_t subgroup = device(Mode::kUnchecked)->features().subgroup_size;
  const std::int64_t threads = what == 2 ? std::max<std::int64_t>(subgroup, 8)
                                         : std::max<std::int64_t>(2 * subgroup, 64),
                     experts = what == 2 ? 5 * threads : 40;
  ShaderValues v = {{"THREADS", threads},
                    {"WEIGH", what},
                    {"EXPERTS", experts},
                    {"CHOSEN", score == RouterScore::kSparseMixer ? 2 : 6},
                    {"SCORE", static_cast<std::int64_t>(score)},
                    {"LOGITS_STRIDE", experts},
                    {"LOGITS_OFFSET", 2},
                    {"QUANTISES", what == 2 ? 1 : 0}};
  if (what == 2) v.merge(ShaderValues{{"WIDTH", 300}, {"GIVEN_OFFSET", 4}, {"UNITS_K", 5}});
  if (what != 1) {
    v.merge(ShaderValues{{"GROUPS", groups},
                         {"KEPT_GROUPS", (groups + 1) / 2},
                         {"CORRECTED", groups > 1 ? 1 : 0},
                         {"OUT_STRIDE", 6},
                         {"OUT_OFFSET", 1}});
    if (groups > 1) v["GROUP_BEST"] = 2;
  } else {
    v.merge(ShaderValues{{"IDS_STRIDE", 6}, {"IDS_OFFSET", 3}});
  }
  if (what == 0) return {"route.wgsl", v};
  v.merge(ShaderValues{{"WEIGHTS_STRIDE", 6},
                       {"WEIGHTS_OFFSET", 2},
                       {"EACH", groups > 1 ? 1 : 0},
                       {"NORMALISE", groups > 1 ? 1 : 0},
                       {"SCALE_BITS", bits_of(2.5)}});
  if (groups > 1) v.merge(ShaderValues{{"NORM_EPS_BITS", bits_of(1e-20)}, {"NORM_FLOOR_BITS", bits_of(0)}});
  if (score == RouterScore::kSparseMixer) v["BAND_BITS"] = bits_of(0.02);
  return {"route.wgsl", v};
}

// A product in tiles whose activations share scales, in two parts that begin within one.
inline Variant wide_product_variant(DType type) {
  const GemmShape shape{32, 32, 4, 4, 1, 2, false};
  Variant variant{"gemm.wgsl", gemm_values(shape, format_of(type), 40, 12)};
  variant.values.merge(ShaderValues{{"WIDE", 1},
                                    {"BIAS", 0},
                                    {"COUNT", 0},
                                    {"OUT_STRIDE", 40},
                                    {"OUT_OFFSET", 0},
                                    {"SPLIT_STRIDE", 40 * 32}});
  return variant;
}

// What makes such activations: a norm, a gate, and an attention's parts that are put together.
inline std::vector<Variant> wide_block_variants() {
  Variant norm = row_norm_variant(1024, 1, false), gate = quantise_variant(true, 512, true),
          parts = combine_variant(true, 0, true);
  norm.values.merge(ShaderValues{{"UNITS_K", 16}, {"WIDE", 1}});
  norm.values["QUANT"] = 1;
  gate.values["WIDE"] = 1;
  parts.values["WIDE"] = 1;
  parts.values["WIDTH"] = 512;
  parts.values["UNITS_K"] = 8;
  parts.values["OUT_STRIDE"] = 520;
  return {norm, gate, parts};
}

inline std::vector<Variant> some_variants() {
  std::vector<Variant> variants = {norm_variant(64),
                                   norm_variant(1000),
                                   row_norm_variant(64, 0, false),
                                   row_norm_variant(1000, 1, false),
                                   row_norm_variant(1000, 3, true),
                                   attention_variant(true, 0, false, 4096),
                                   attention_variant(false, 32, true, 287),
                                   attention_variant(true, 0, true, 5),
                                   combine_variant(true, 0, true),
                                   combine_variant(false, 512, false),
                                   splits_variant(),
                                   decode_attention_variant(true, true, true, 0),
                                   decode_attention_variant(true, false, false, 80),
                                   decode_attention_variant(true, false, true, 0),
                                   decode_attention_variant(false, true, false, 48)};
  for (const bool half : {true, false}) {
    variants.push_back(rope_variant(half, half, !half));
    variants.push_back(rope_variant(half, !half, half));
    Variant in_blocks = row_norm_variant(1000, half ? 3 : 1, half);
    in_blocks.values["QUANT"] = 1;
    in_blocks.values["UNITS_K"] = 16;
    if (half) {
      in_blocks.values["FLOATS"] = 0;
      for (const char* name : {"X_STRIDE", "X_OFFSET"}) in_blocks.values.erase(name);
    }
    variants.push_back(in_blocks);
    variants.push_back(quantise_variant(half, 200, half));
  }
  variants.push_back(quantise_variant(false, 203, false));
  for (const Variant& variant : wide_block_variants()) variants.push_back(variant);
  for (const DType type : {DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K})
    variants.push_back(wide_product_variant(type));
  for (const StoredAs type : {StoredAs(DType::kF16), kHeadOfBF16, StoredAs(DType::kQ4_0),
                              StoredAs(DType::kQ6_K), StoredAs(DType::kMXFP4)})
    variants.push_back(embed_variant(type));
  for (const std::int64_t parts : {0, 3}) {
    variants.push_back(tiled_attention_variant(true, 0, parts));
    variants.push_back(tiled_attention_variant(false, 80, parts));
  }
  if (device(Mode::kUnchecked)->features().f16) {
    for (const std::int64_t window : {0, 32}) variants.push_back(half_attention_variant(window));
  }
  for (const StoredAs type :
       {StoredAs(DType::kF32), StoredAs(DType::kF16), StoredAs(DType::kBF16), kHeadOfBF16})
    variants.push_back(gemv_variant(type, 30, 5, false));
  for (const DType type :
       {DType::kQ4_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ6_K, DType::kQ4_K, DType::kMXFP4}) {
    variants.push_back(gemv_variant(type, 3000, 12, true));
    variants.push_back(gemv_variant(type, 30, 12, false, true));
  }
  return variants;
}

}  // namespace doppler::gpu::testing
