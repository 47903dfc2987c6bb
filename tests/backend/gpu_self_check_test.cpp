// The self-check: passes what is right, notices what is wrong, puts the next variant in its place, and
// remembers.
#include "backend/gpu/self_check.h"

#include "backend/gpu/attention_shape.h"
#include "backend/gpu/kernel_report.h"
#include "backend/gpu/token_check.h"
#include "base/files.h"
#include "environment.h"
#include "gpu_weights.h"
#include "harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;
using doppler::testing::Environment;
using doppler::testing::TempDir;

Variant gemv_variant(DType type, std::int64_t rows, std::int64_t units, bool eight_bits, bool bias = false) {
  const WeightFormat format = format_of(type);
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
Variant fused_variant(DType type, int prologue, bool gated, bool eight_bits, bool quantises = false) {
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

Variant norm_variant(std::int64_t dim) {
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
Variant row_norm_variant(std::int64_t width, std::int64_t parts, bool post) {
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

Variant attention_variant(bool half, std::int64_t window, bool cap, std::int64_t capacity) {
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
Variant half_attention_variant(std::int64_t window) {
  Variant variant = attention_variant(true, window, window == 0, 160);
  variant.file = "attention_half.wgsl";
  for (const char* name : {"THREADS", "VALUE_DIM"}) variant.values.erase(name);
  variant.values.merge(ShaderValues{{"RT", 1}, {"NS", 4}, {"CHUNK", 32}, {"COOP", 0}, {"COUNT", 0}});
  variant.values["POSITIONS"] = 64;
  variant.values["SLOTS"] = 128;
  return variant;
}

// For a tile of a prompt's tokens, in `parts` if that is not 0.
Variant tiled_attention_variant(bool half, std::int64_t window, std::int64_t parts) {
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
Variant decode_attention_variant(bool half, bool many, bool paged, std::int64_t window) {
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
  return variant;
}

// What turns a step's heads and writes them to the cache.
Variant rope_variant(bool half, bool norm, bool paged) {
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
Variant quantise_variant(bool gated, std::int64_t width, bool stores) {
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

Variant embed_variant(DType type) {
  const WeightFormat format = format_of(type);
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
Variant combine_variant(bool half, std::int64_t window, bool blocks) {
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
Variant splits_variant() {
  Variant variant = combine_variant(true, 0, true);
  for (const char* name : {"PARTED", "PART"}) variant.values.erase(name);
  variant.values["MOST_SPLITS"] = 32;
  variant.values["PARTS"] = 4;
  return variant;
}

// Experts' gates and ups (`in`), or their downs and sum.
Variant experts_variant(DType type, bool in, bool eight_bits, bool shaped) {
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
Variant route_variant(std::int64_t what, RouterScore score, std::int64_t groups) {
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

std::vector<Variant> some_variants() {
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
  for (const DType type : {DType::kF16, DType::kQ4_0, DType::kQ6_K, DType::kMXFP4})
    variants.push_back(embed_variant(type));
  for (const std::int64_t parts : {0, 3}) {
    variants.push_back(tiled_attention_variant(true, 0, parts));
    variants.push_back(tiled_attention_variant(false, 80, parts));
  }
  if (device(Mode::kUnchecked)->features().f16) {
    for (const std::int64_t window : {0, 32}) variants.push_back(half_attention_variant(window));
  }
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16})
    variants.push_back(gemv_variant(type, 30, 5, false));
  for (const DType type :
       {DType::kQ4_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ6_K, DType::kQ4_K, DType::kMXFP4}) {
    variants.push_back(gemv_variant(type, 3000, 12, true));
    variants.push_back(gemv_variant(type, 30, 12, false, true));
  }
  return variants;
}

Result<std::string> difference(Device& d, const Variant& variant) {
  DOPPLER_ASSIGN(const auto kernel, Kernel::create(d, variant.file, variant.values));
  return difference_from_cpu(d, kernel, variant.values);
}

TEST(SelfCheck, PassesWhatIsRight) {
  DOPPLER_NEEDS_ADAPTER();
  for (const Variant& variant : some_variants()) {
    ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(*device(Mode::kUnchecked), variant));
    EXPECT_EQ(wrong, "") << variant.name();
  }
}

TEST(SelfCheck, PassesWhatIsFused) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  for (const Variant& variant :
       {fused_variant(DType::kQ4_0, 1, false, true), fused_variant(DType::kBF16, 1, false, false),
        fused_variant(DType::kQ4_K, 1, true, true, true), fused_variant(DType::kF16, 1, true, false),
        fused_variant(DType::kQ8_0, 2, false, true), fused_variant(DType::kF32, 2, false, false)}) {
    ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(d, variant));
    EXPECT_EQ(wrong, "") << variant.name();
    if (!variant.values.contains("POST") || variant.values.at("POST") == 0) continue;
    Variant strict = variant;
    strict.values["STRICT_BARRIERS"] = 1;
    ASSERT_OK_AND_ASSIGN(const std::string wrong_for_browsers, difference(d, strict));
    EXPECT_EQ(wrong_for_browsers, "") << variant.name();
  }
}

TEST(SelfCheck, PassesExperts) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  std::vector<Variant> variants;
  for (const bool in : {true, false}) {
    for (const DType type : {DType::kMXFP4, DType::kQ5_0, DType::kQ6_K, DType::kQ4_K, DType::kQ8_0})
      variants.push_back(experts_variant(type, in, true, type == DType::kMXFP4));
    variants.push_back(experts_variant(DType::kBF16, in, false, true));
    variants.push_back(experts_variant(DType::kMXFP4, in, false, false));
    variants.push_back(experts_variant(DType::kQ6_K, in, false, false));
  }
  for (const std::int64_t what : {0, 1, 2}) {
    variants.push_back(route_variant(what, RouterScore::kSoftmax, 1));
    variants.push_back(route_variant(what, RouterScore::kSigmoid, 4));
    variants.push_back(route_variant(what, RouterScore::kSoftmaxOfChosen, 1));
  }
  for (const Variant& variant : variants) {
    ASSERT_TRUE(can_check(variant.file, variant.values)) << variant.name();
    ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(d, variant));
    EXPECT_EQ(wrong, "") << variant.name();
  }
}

// A kernel with `after` in the place of `before` does not pass.
void expect_wrong_with(const Variant& variant, const char* file, const char* before, const char* after) {
  const Broken broken(file, before, after);
  ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(*device(Mode::kUnchecked), variant));
  EXPECT_NE(wrong, "") << variant.name() << " with " << after;
}

TEST(SelfCheck, NoticesWhatIsWrongInExperts) {
  DOPPLER_NEEDS_ADAPTER();
  if (device(Mode::kUnchecked)->features().subgroup_size < 8)
    GTEST_SKIP() << "lines are changed that are for subgroups of eight";
  const Variant in = experts_variant(DType::kMXFP4, true, true, true),
                out = experts_variant(DType::kMXFP4, false, true, true),
                five = experts_variant(DType::kQ5_0, false, true, true),
                six = experts_variant(DType::kQ6_K, false, true, false);
  expect_wrong_with(in, "expert_in.wgsl", "expert * ${ROWS}u + own", "own");
  expect_wrong_with(in, "expert_in.wgsl", "SET_ROWS EXPERTS * ROWS", "SET_ROWS ROWS");
  expect_wrong_with(in, "expert_in.wgsl", "+ up_bias[row]", "+ up_bias[own]");
  expect_wrong_with(in, "expert_in.wgsl", "var expert = id0;", "var expert = id1;");
  expect_wrong_with(in, "expert_in.wgsl", "ids_out[${IDS_OFFSET + i}u] = f32(id${i})",
                    "ids_out[${IDS_OFFSET + i}u] = f32(id0)");
  expect_wrong_with(in, "gate.wgsl", "clamp(up, -limit, limit)", "min(up, limit)");
  expect_wrong_with(in, "gate.wgsl", "min(gate, limit)", "gate");
  expect_wrong_with(out, "expert_out.wgsl", "fma(part, weight, 1.2e-38)", "part");
  expect_wrong_with(out, "expert_out.wgsl", "* ${CHOSEN}u + place) * ${UNITS_K}u + unit) * 4u",
                    "* ${CHOSEN}u) * ${UNITS_K}u + unit) * 4u");
  expect_wrong_with(out, "expert_out.wgsl", "bias[expert_at(of_place)", "bias[expert_at(0u)");
  expect_wrong_with(out, "expert_out.wgsl", "${Z_OFFSET}u + own]", "${Z_OFFSET}u]");
  expect_wrong_with(out, "weights.wgsl", "(~one & (w | three))", "(one & (w | three))");
  expect_wrong_with(out, "weights.wgsl", "word >> ((unit & 1u) * 16u)", "word");
  expect_wrong_with(out, "dot.wgsl", "13 * (dot4I8Packed(j.x", "12 * (dot4I8Packed(j.x");
  expect_wrong_with(five, "weights.wgsl", "vec4u(3u, 2u, 1u, 0u)", "vec4u(2u, 2u, 1u, 0u)");
  expect_wrong_with(six, "weights.wgsl", "vec4u(6u, 4u, 2u, 0u)", "vec4u(6u, 4u, 0u, 0u)");
  const Variant both = route_variant(2, RouterScore::kSigmoid, 4);
  expect_wrong_with(both, "routing_steps.wgsl", "e${e} == id${i}", "e${e} == 0xffffffffu");
  expect_wrong_with(both, "routing_steps.wgsl", "score${e} += corrections[min(e${e}, ${EXPERTS - 1}u)];", "");
  expect_wrong_with(both, "route.wgsl", "* each[id${i}]", "");
  expect_wrong_with(both, "route.wgsl", "(group.x - 1u) * ${THREADS}u + t", "group.x * ${THREADS}u + t");
  expect_wrong_with(route_variant(2, RouterScore::kSoftmaxOfChosen, 1), "routing_steps.wgsl", "w${i} /= all;",
                    "");
  expect_wrong_with(route_variant(0, RouterScore::kSoftmax, 1), "routing.wgsl", "v > u ||", "v < u ||");
  expect_wrong_with(route_variant(2, RouterScore::kSoftmax, 1), "routing_steps.wgsl",
                    "most${i} = max(most${i}, key${e});", "most${i} = min(most${i}, key${e});");
}

TEST(SelfCheck, NoticesWhatIsWrongInFusedKernels) {
  DOPPLER_NEEDS_ADAPTER();
  if (device(Mode::kUnchecked)->features().subgroup_size < 8)
    GTEST_SKIP() << "lines are changed that are for subgroups of eight";
  expect_wrong_with(fused_variant(DType::kQ4_0, 1, false, true), "norm_prologue.wgsl",
                    "carried[v${i}] = h${i}", "carried[v${i}] = r${i}");
  expect_wrong_with(fused_variant(DType::kQ4_0, 1, false, true), "prologue_x.wgsl", "word2, word3)",
                    "word2, word2)");
  expect_wrong_with(fused_variant(DType::kQ8_0, 2, false, true), "combined.wgsl", "exp(m${i}.x - most)",
                    "1.0");
  expect_wrong_with(fused_variant(DType::kQ4_K, 1, true, true, true), "gemv.wgsl", "activate(gate) * up",
                    "activate(up) * gate");
}

TEST(SelfCheck, NoticesWhatIsWrong) {
  DOPPLER_NEEDS_ADAPTER();
  const auto expect_wrong = [](const Variant& variant) {
    ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(*device(Mode::kUnchecked), variant));
    EXPECT_NE(wrong, "") << variant.name();
  };
  {
    const Broken broken("norm.wgsl", "x[base_at + i] * factor", "x[base_at + i + 1u] * factor");
    expect_wrong(norm_variant(64));
  }
  {
    const Broken broken("attention.wgsl", "at <= position", "at < position");
    expect_wrong(attention_variant(true, 0, false, 4096));
  }
  {
    const Broken broken("attention.wgsl", "position + 1u - ${WINDOW}u", "position - ${WINDOW}u");
    expect_wrong(attention_variant(false, 32, true, 287));
  }
  if (device(Mode::kUnchecked)->features().f16) {
    {
      const Broken broken("attention_half.wgsl", "at <= vec4u(position${r})", "at < vec4u(position${r})");
      expect_wrong(half_attention_variant(0));
    }
    const Broken broken("attention_half.wgsl", "${NEXT * KV}u + column", "column");
    expect_wrong(half_attention_variant(32));
  }
  {
    const Broken broken("weights.wgsl", "& 63u", "& 31u");
    expect_wrong(gemv_variant(DType::kQ4_0, 3000, 12, true));
  }
  {
    const Broken broken("dot.wgsl", "+ db${b}) >> kCodeShift", "+ db${b}) >> (kCodeShift + 1u)");
    expect_wrong(gemv_variant(DType::kQ4_K, 30, 12, true));
  }
  {
    const bool once = device(Mode::kUnchecked)->features().fma_rounds_once;
    const Broken broken("dot.wgsl", once ? "return sum * kCodeFactor" : "+ db${b}) >> kCodeShift",
                        once ? "return sum" : "+ db${b})");
    expect_wrong(gemv_variant(DType::kQ4_0, 30, 12, true));
  }
  {
    const Broken broken("gemv.wgsl", "row < ${ROWS}u", "row < ${ROWS - 1}u");
    expect_wrong(gemv_variant(DType::kF16, 30, 5, false));
  }
}

TEST(SelfCheck, NoticesWhatIsWrongBetweenProducts) {
  DOPPLER_NEEDS_ADAPTER();
  const Variant halves = rope_variant(true, true, true), floats = rope_variant(false, false, false);
  for (const Variant& variant : {halves, floats}) {
    expect_wrong_with(variant, "rope_append.wgsl", "position = step[${POSITIONS}u + token]",
                      "position = step[${POSITIONS}u]");
    expect_wrong_with(variant, "rope_append.wgsl", "own * a.x - other * a.y, rope_is_first",
                      "own * a.x, rope_is_first");
    expect_wrong_with(variant, "rope_append.wgsl", "q_out[to + 1u] = pair.y", "q_out[to + 1u] = pair.x");
    expect_wrong_with(variant, "kv.wgsl", "* ${KV_HEADS}u + kv_head)", "* ${KV_HEADS}u)");
  }
  expect_wrong_with(halves, "rope_append.wgsl", "x${e} * factor * k_weight", "x${e} * k_weight");
  expect_wrong_with(halves, "rope_append.wgsl", "values[row + w] = pack2x16float(pair);", "");
  const Variant gated = quantise_variant(true, 200, true);
  expect_wrong_with(gated, "batch_quantise.wgsl", ") * factor;", ") + factor;");
  expect_wrong_with(gated, "batch_quantise.wgsl", "x8[token * ${UNITS_K * 16}u + i]", "x8[i]");
  expect_wrong_with(gated, "batch_quantise.wgsl", "made.scale * f32(made.sum)", "made.scale");
  expect_wrong_with(gated, "quantise_block.wgsl", "round(v * inverse)", "trunc(v * inverse)");
  expect_wrong_with(quantise_variant(false, 203, false), "quantise.wgsl", "pack4xI8(c6), pack4xI8(c7)",
                    "pack4xI8(c6), pack4xI8(c6)");
  expect_wrong_with(embed_variant(DType::kQ4_0), "embed_row.wgsl", "let row = id - ${ROW0}u;",
                    "let row = 0u;");
  Variant in_blocks = row_norm_variant(1000, 1, false);
  in_blocks.values["QUANT"] = 1;
  in_blocks.values["UNITS_K"] = 16;
  expect_wrong_with(in_blocks, "batch_norm.wgsl", "x8[token * ${UNITS_K * 16}u + v${i}] = made.word;", "");
}

TEST(SelfCheck, NoticesWhatIsWrongInAPromptsAttention) {
  DOPPLER_NEEDS_ADAPTER();
  const Variant whole = tiled_attention_variant(true, 0, 0),
                of_window = tiled_attention_variant(false, 80, 0),
                parts = tiled_attention_variant(true, 0, 3);
  const char* tiled = "attention_tiled.wgsl";
  for (const Variant& variant : {whole, of_window, parts}) {
    expect_wrong_with(variant, tiled, "(at <= vec4u(to${r}))", "(at < vec4u(to${r}))");
    expect_wrong_with(variant, tiled, "lane + ${e * LANES}u]", "lane]");
    expect_wrong_with(variant, tiled, "sum${i}_${r} *= fade;", "");
    expect_wrong_with(variant, tiled, "let next_base = select(base_at, ", "let next_base = select(first, ");
  }
  expect_wrong_with(of_window, "seen.wgsl", "position + 1u - ${WINDOW}u,", "position - ${WINDOW}u,");
  expect_wrong_with(parts, tiled, "min(newest, part_begin(part + 1u) - 1u)", "newest");
  expect_wrong_with(parts, tiled, "vec2f(most${r}, all)", "vec2f(most${r}, 1.0)");
  expect_wrong_with(parts, tiled, "pack2x16float(mean.zw)", "pack2x16float(mean.xy)");
  expect_wrong_with(parts, "prompt_parts.wgsl", "max(part, 1u) - 1u", "max(part, 2u) - 2u");
  const Variant combined = combine_variant(true, 0, true);
  expect_wrong_with(combined, "combined.wgsl", "fma(m${i}.y, w${i}, total)", "total + w${i}");
  expect_wrong_with(combined, "combined.wgsl", "most = sinks[head", "most = sinks[0u * head");
  expect_wrong_with(combined, "prompt_parts.wgsl", "part_of(position) + 1u - first)",
                    "part_of(position) - first)");
  expect_wrong_with(combined, "attention_combine.wgsl", "out8[token * ${UNITS_K * 16}u + v]", "out8[v]");
  expect_wrong_with(combined, "quantise_block.wgsl", "round(v * inverse)", "trunc(v * inverse)");
  expect_wrong_with(combine_variant(false, 512, false), "prompt_parts.wgsl",
                    "(s.first + i) % ${MOST_SPLITS}u", "i");
}

TEST(SelfCheck, NoticesWhatIsWrongInAnAttentionOfNewestTokens) {
  DOPPLER_NEEDS_ADAPTER();
  const char* file = "attention_decode.wgsl";
  const Variant several = decode_attention_variant(true, true, true, 0),
                alone = decode_attention_variant(true, false, false, 80),
                floats = decode_attention_variant(false, true, false, 48);
  for (const Variant& variant : {several, alone, floats}) {
    expect_wrong_with(variant, file, "let seen${r} = p${r} < end;", "let seen${r} = p${r} + 1u < end;");
    expect_wrong_with(variant, file, "fma(own${g}.y, fade, shares)", "shares + own${g}.y * 0.5");
    expect_wrong_with(variant, file, "let to = cache_row(slot, kv_head, position) * ${K_VECS}u;",
                      "let to = cache_row(slot, kv_head, position - 1u) * ${K_VECS}u;");
    expect_wrong_with(variant, "splits.wgsl", "s.end = position + 1u;", "s.end = position;");
  }
  expect_wrong_with(several, file, "let from_x = token * ${QKV_STRIDE / 4}u",
                    "let from_x = token * ${QKV_STRIDE / 4}u + 1u");
  expect_wrong_with(several, file, "first = later;", "");
  // With several splits the newest key is read from the cache after it was written, which a device may see.
  for (const Variant& variant : {alone, floats})
    expect_wrong_with(variant, file, "= p${r} >= position;", "= p${r} > position;");
  expect_wrong_with(alone, file, "let fade = exp(most${h} - most);", "let fade = exp(most${h} + most);");
  expect_wrong_with(alone, file, "let next = base + ${ROUNDS * PG}u;", "let next = base;");
  expect_wrong_with(splits_variant(), "attention_combine.wgsl", "exp(marked[t + ${p * HERE}u].x - most)",
                    "exp(marked[t + ${p * HERE}u].y - most)");
  expect_wrong_with(several, file, "x${e} * w${e} * factor", "x${e} * factor");
  expect_wrong_with(several, file, "select(s, -s, is_first)", "s");
  expect_wrong_with(several, "kv.wgsl", "slot * ${PAGE_ROW}u + ", "0u * slot * ${PAGE_ROW}u + ");
  expect_wrong_with(floats, "rope_angle.wgsl", "return d ^ 1u", "return d");
  Variant only_appends = floats, only_attends = several;
  only_appends.values["ATTEND"] = only_attends.values["APPEND"] = 0;
  for (const Variant& variant : {only_appends, only_attends}) {
    ASSERT_OK_AND_ASSIGN(const std::string wrong, difference(*device(Mode::kUnchecked), variant));
    EXPECT_EQ(wrong, "") << variant.name();
  }
  expect_wrong_with(only_appends, file, "values[to + i] = sv[i];", "values[to + i] = sk[i];");
  expect_wrong_with(only_attends, file, "pack2x16float(mean.zw)", "pack2x16float(mean.xy)");
}

TEST(SelfCheck, TakesTheNextVariantAndSaysWhy) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  if (!d.features().subgroups) GTEST_SKIP() << "the adapter has no subgroups to get wrong";
  for (const auto& [variant, file, from, to] :
       {std::tuple(norm_variant(640), "reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);", "v += v;"),
        std::tuple(rope_variant(true, true, true), "reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);",
                   "v += v;"),
        std::tuple(combine_variant(true, 0, true), "quantise_vec.wgsl",
                   "most = max(most, subgroupShuffleXor(most, 4u));", ""),
        std::tuple(quantise_variant(true, 200, false), "quantise_vec.wgsl",
                   "most = max(most, subgroupShuffleXor(most, 4u));", "")}) {
    // Blocks are made without small ones.
    if (d.features().subgroup_size < 8 && std::string_view(file) == "quantise_vec.wgsl") continue;
    const Broken broken(file, from, to);
    SelfCheck check(d, {});
    ASSERT_OK_AND_ASSIGN(const auto kernel, check.check(nullptr, variant.file, variant.values));
    EXPECT_NE(kernel->label().find("SUBGROUPS=0"), std::string::npos) << kernel->label();
    ASSERT_EQ(check.refusals().size(), 1u);
    EXPECT_NE(check.refusals()[0].find("computes the kernel " + variant.name()), std::string::npos);
    EXPECT_NE(check.refusals()[0].find("should be"), std::string::npos);
    EXPECT_EQ(check.runs(), 2u);
    const Variant alone[] = {variant};
    EXPECT_ERROR(check.choose(alone), variant.name().c_str(), "No other variant of it is left",
                 "--backend cpu");
  }
}

// Kernels of a program are declared, then compiled and checked together; of those the wrong one is replaced
// when it is asked for again.
TEST(SelfCheck, FindsWhatIsWrongAmongKernelsThatAreCheckedTogether) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device(Mode::kUnchecked);
  if (!d.features().subgroups) GTEST_SKIP() << "the adapter has no subgroups to get wrong";
  ThreadPool pool(2);
  const auto caches = [&](SelfCheck& check) {
    KernelCache kernels(d);
    kernels.check_with(
        [&](std::shared_ptr<const Kernel> compiled, std::string_view file, const ShaderValues& values) {
          return check.check(std::move(compiled), file, values);
        },
        [&](std::span<KernelCache::Compiled> compiled, ThreadPool& threads) {
          return check.check_ahead(compiled, threads);
        });
    return kernels;
  };
  const Variant variants[] = {norm_variant(640), attention_variant(true, 0, true, 5)};
  const Variant& norm = variants[0];
  const auto declare = [&](KernelCache& kernels) {
    kernels.defer();
    for (const Variant& variant : variants) {
      auto kernel = kernels.get(variant.file, variant.values);
      ASSERT_OK(kernel);
      EXPECT_EQ((*kernel)->pipeline(), nullptr);
      EXPECT_NE((*kernel)->layout(), nullptr);
    }
  };
  {
    SelfCheck check(d, {});
    KernelCache kernels = caches(check);
    declare(kernels);
    ASSERT_OK_AND_ASSIGN(const bool passed, kernels.finish(pool));
    EXPECT_TRUE(passed);
    EXPECT_EQ(check.runs(), 2u);
    ASSERT_OK_AND_ASSIGN(const auto kernel, kernels.get(norm.file, norm.values));
    EXPECT_NE(kernel->pipeline(), nullptr);
    EXPECT_EQ(check.runs(), 2u);
  }
  const Broken wrong("reduce.wgsl", "v += subgroupShuffleXor(v, ${1 << k}u);", "v += v;");
  SelfCheck check(d, {});
  KernelCache kernels = caches(check);
  declare(kernels);
  ASSERT_OK_AND_ASSIGN(const bool passed, kernels.finish(pool));
  EXPECT_FALSE(passed);
  EXPECT_TRUE(check.refusals().empty());
  ASSERT_OK_AND_ASSIGN(const auto kernel, kernels.get(norm.file, norm.values));
  EXPECT_NE(kernel->label().find("SUBGROUPS=0"), std::string::npos) << kernel->label();
  EXPECT_EQ(check.refusals().size(), 1u);
}

TEST(SelfCheck, RemembersWhatPassed) {
  DOPPLER_NEEDS_ADAPTER();
  const TempDir folder;
  Device& d = *device(Mode::kUnchecked);
  const Variant a = norm_variant(64), b = norm_variant(128);
  SelfCheck first(d, folder / "deep" / "er");
  ASSERT_OK(first.check(nullptr, a.file, a.values));
  EXPECT_EQ(first.runs(), 1u);
  first.remember();
  SelfCheck second(d, folder / "deep" / "er");
  ASSERT_OK(second.check(nullptr, a.file, a.values));
  EXPECT_EQ(second.runs(), 0u);
  ASSERT_OK(second.check(nullptr, b.file, b.values));
  EXPECT_EQ(second.runs(), 1u);
  // Another device, another file: its kernels are others.
  SelfCheck elsewhere(*device(Mode::kChecked), folder / "deep" / "er");
  ASSERT_OK(elsewhere.check(nullptr, a.file, a.values));
  EXPECT_EQ(elsewhere.runs(), 1u);

  // A file that somebody broke is as good as none, and one that cannot be written is no error.
  const auto file = *std::filesystem::directory_iterator(folder / "deep" / "er");
  for (const char* text : {"", "{", "[]", "{\"passed\": 1}", "{\"passed\": [1, null]}"}) {
    doppler::testing::write_file(file.path(), text);
    SelfCheck broken(d, folder / "deep" / "er");
    ASSERT_OK(broken.check(nullptr, a.file, a.values));
    EXPECT_EQ(broken.runs(), 1u) << text;
  }
  doppler::testing::write_file(folder / "file", "");
  SelfCheck nowhere(d, folder / "file" / "below");
  ASSERT_OK(nowhere.check(nullptr, a.file, a.values));
  nowhere.remember();
}

TEST(SelfCheck, TokensBetweenTwoExpertsAreToldFromWrongOnes) {
  const CheckedToken expected{.logits = {1, -2, 0.5f},
                              .routing = {{0, {{3, 1, 1.0001f}, {0, 2}}}, {1, {{1, 2, 3}, {2, 1}}}}};
  bool tied = true;
  EXPECT_EQ(token_difference(expected, expected, 1e-3, tied), "");
  EXPECT_FALSE(tied);

  CheckedToken other = expected;  // the same experts in another order, and logits within what is allowed
  other.routing[1].ids = {1, 2};
  other.logits[0] = 1.001f;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "");
  EXPECT_FALSE(tied);
  other.logits[0] = 1.1f;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the token 0 the logit 1.1 where it should be 1");

  other.routing[0].ids = {0, 1};  // between experts 1 and 2: all behind is another computation
  other.routing[1].logits = {9, 9, 9};
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "");
  EXPECT_TRUE(tied);

  other.routing[0].logits[1] = 2;  // its router is wrong
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the expert 1 of layer 0 the logit 2 where it should be 1");
  EXPECT_FALSE(tied);
  other.routing.erase(0);
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied), "shows no experts of layer 0");
  other = expected;
  other.logits[2] = NAN;
  EXPECT_EQ(token_difference(expected, other, 1e-3, tied),
            "gives the token 2 the logit nan where it should be 0.5");
}

TEST(SelfCheck, RunsSingleTokensAsABatchWhereTheirProgramIsWrong) {
  DOPPLER_NEEDS_ADAPTER();
  const TempDir folder;
  const Environment cache("XDG_CACHE_HOME", folder.path().c_str());
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  const BackendOptions options{
      .threads = 2, .context = 96, .slots = 1, .max_step_tokens = 80, .disabled_passes = {}};
  const auto why = [&]() -> Result<std::string> {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    EXPECT_EQ(backend->can_continue({}),
              backend->describe()->front().why.find("wrongly") == std::string::npos);
    EXPECT_EQ(backend->length(0), 0u);
    StepInput input;
    input.add(1, 0, 0, true);
    DOPPLER_TRY(backend->step(input, nullptr));
    DOPPLER_ASSIGN(const auto rows, backend->describe());
    const bool told = std::ranges::any_of(
        backend->fallbacks(), [&](const Fallback& fallback) { return fallback.why == rows.front().why; });
    EXPECT_EQ(told, rows.front().variant == "as a batch");
    return rows.front().variant == "as a batch" ? rows.front().why : std::string();
  };
  const auto expect_refused = [&](const char* file, const char* from, const char* to, const char* said) {
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const std::string reason, why());
    EXPECT_NE(reason.find("computes single tokens wrongly"), std::string::npos) << file << ": " << reason;
    EXPECT_NE(reason.find(said), std::string::npos) << file << ": " << reason;
  };
  expect_refused("head.wgsl", "      logits[${ROW0}u + row] = logit;",
                 "      logits[${ROW0}u + row] = logit + f32(row & 1u);", "gives the token");
  expect_refused("head.wgsl", "best_row = ${ROW0}u + row;", "best_row = ${ROW0}u + row + 1u;",
                 "does not choose the likeliest token");
}

// Whether a line says that this kernel is computed wrongly.
bool tells_of(const std::vector<Fallback>& fallbacks, std::string_view kernel) {
  return std::ranges::any_of(fallbacks, [&](const Fallback& told) {
    return told.why.find(fmt::format("computes the kernel {} ", kernel)) != std::string::npos;
  });
}

// Of the ways in which a prompt attends the first is broken, then the first two: the next one runs, the
// product behind quantises for itself where nobody leaves it blocks, and a line says so.
TEST(SelfCheck, TakesTheNextWayToAttendWhereTheFirstAreWrong) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/gemma3_k288.Q4_0.gguf")));
  BackendOptions options{.threads = 2, .context = 64, .slots = 1, .max_step_tokens = 48};
  options.gpu_setup.tune = false;
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 44; ++i)
    ids.push_back((i * i + 7 * i) % static_cast<std::int32_t>(model.spec.vocab_size));
  struct Seen {
    std::vector<float> logits;
    std::vector<Fallback> fallbacks;
  };
  const auto look = [&]() -> Result<Seen> {
    const TempDir folder;  // where nobody knows what has passed
    const Environment cache("XDG_CACHE_HOME", folder.path().c_str());
    DOPPLER_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
    Seen seen{.logits = doppler::testing::run_in_pieces(*backend, ids, {40, 1}),
              .fallbacks = backend->fallbacks()};
    return seen;
  };
  ASSERT_OK_AND_ASSIGN(const Seen whole, look());
  const auto expect_without = [&](const char* kernel, const char* file, const char* from, const char* to) {
    SCOPED_TRACE(kernel);
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const Seen other, look());
    // Other orders of sums, where a last bit decides between two codes of an activation.
    EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
    EXPECT_GT(other.fallbacks.size(), whole.fallbacks.size());
    EXPECT_TRUE(tells_of(other.fallbacks, kernel));
  };
  expect_without("attention_combine.wgsl", "prompt_parts.wgsl", "part_of(position) + 1u - first)",
                 "part_of(position) - first)");
  expect_without("attention_tiled.wgsl", "attention_tiled.wgsl", "vec2f(most${r}, all)",
                 "vec2f(most${r}, 1.0)");
  expect_without("attention_tiled.wgsl", "attention_tiled.wgsl", "(at <= vec4u(to${r}))",
                 "(at < vec4u(to${r}))");
}

// What newest tokens attend with is broken: the program for single tokens does without it, and so does a step
// of several sequences, with the blocks that the product behind reads.
TEST(SelfCheck, TakesTheNextWayToAttendForNewestTokens) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Model model,
                       load_model(doppler::testing::data_path("gguf/gemma3_k288.Q4_0.gguf")));
  BackendOptions options{.threads = 2, .context = 64, .slots = 2, .max_step_tokens = 48};
  options.gpu_setup.tune = false;
  struct Seen {
    std::vector<float> logits;  // of steps of two sequences, then of a single token
    std::vector<Fallback> fallbacks;
    std::size_t agree = 0;  // rows_that_agree()
    bool continues = false, checks = false;
  };
  const auto look = [&]() -> Result<Seen> {
    const TempDir folder;  // where nobody knows what has passed
    const Environment cache("XDG_CACHE_HOME", folder.path().c_str());
    DOPPLER_ASSIGN(const auto backend, make_backend("gpu", model.spec, model.weights, options));
    Seen seen{.checks = backend->continuer()->prepare_check(4, {}).has_value()};
    for (std::int32_t i = 0; i < 12; ++i) {
      StepInput two;
      two.add(i * 31 % 97, i, 0, true);
      two.add(i * 57 % 89, i, 1, true);
      DOPPLER_ASSIGN(const auto logits, backend->step(two, nullptr));
      seen.logits.insert(seen.logits.end(), logits.begin(), logits.end());
    }
    StepInput one;
    one.add(5, 12, 1, true);
    DOPPLER_ASSIGN(const auto logits, backend->step(one, nullptr));
    seen.logits.insert(seen.logits.end(), logits.begin(), logits.end());
    seen.fallbacks = backend->fallbacks();
    seen.agree = backend->rows_that_agree();
    seen.continues = backend->can_continue({});
    return seen;
  };
  ASSERT_OK_AND_ASSIGN(const Seen whole, look());
  EXPECT_TRUE(whole.continues && whole.checks);
  EXPECT_GT(whole.agree, 1u);
  for (const auto& [file, from, to, kernel] :
       {std::tuple("splits.wgsl", "s.end = position + 1u;", "s.end = position;", "attention_decode.wgsl"),
        std::tuple("attention_decode.wgsl", "let from_x = token * ${QKV_STRIDE / 4}u",
                   "let from_x = token * ${QKV_STRIDE / 4}u + 1u", "attention_decode.wgsl"),
        std::tuple("attention_combine.wgsl", "token * ${WIDTH / 4}u", "token", "attention_combine.wgsl")}) {
    SCOPED_TRACE(to);
    const Broken broken(file, from, to);
    ASSERT_OK_AND_ASSIGN(const Seen other, look());
    // Other orders of sums, where a last bit decides between two codes of an activation.
    EXPECT_LT(doppler::testing::relative_error(other.logits, whole.logits), 0.02);
    EXPECT_TRUE(other.continues);
    EXPECT_EQ(other.agree, 1u);
    EXPECT_FALSE(other.checks);  // guesses would be taken for what a single token does not choose
    EXPECT_TRUE(tells_of(other.fallbacks, kernel));
  }
}

// The shape that looks best is broken, the others are not.
TEST(SelfCheck, TakesTheNextShapesWhereTheFirstAreWrong) {
  DOPPLER_NEEDS_ADAPTER();
  const TempDir folder;
  const Environment cache("XDG_CACHE_HOME", folder.path().c_str());
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  BackendOptions options{.threads = 2, .context = 96, .slots = 1, .max_step_tokens = 80};
  options.gpu_setup.tune =
      false;  // else the second load may measure other shapes as the fastest, and break none
  struct Seen {
    std::string head;  // "R=8 LANES=1 UNITS=1"
    std::vector<Fallback> fallbacks;
    bool continues = false;
  };
  const auto look = [&]() -> Result<Seen> {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    DOPPLER_ASSIGN(const auto rows, backend->describe());
    Seen seen{.head = {}, .fallbacks = backend->fallbacks(), .continues = backend->can_continue({})};
    for (const VariantRow& row : rows) {
      if (!row.variant.starts_with("head.wgsl")) continue;
      const KernelLabel label(row.variant);
      seen.head =
          fmt::format("R={} LANES={} UNITS={}", label.get("R"), label.get("LANES"), label.get("UNITS"));
    }
    return seen;
  };
  ASSERT_OK_AND_ASSIGN(const Seen whole, look());
  ASSERT_TRUE(whole.continues);
  std::uint32_t r = 0, lanes = 0, units = 0;
  ASSERT_EQ(std::sscanf(whole.head.c_str(), "R=%u LANES=%u UNITS=%u", &r, &lanes, &units), 3) << whole.head;
  const Broken broken(
      "head.wgsl", "best_row = ${ROW0}u + row;",
      fmt::format("best_row = ${{ROW0}}u + row + select(0u, 1u, ${{R}}u == {}u && ${{LANES}}u == "
                  "{}u && ${{UNITS}}u == {}u);",
                  r, lanes, units));
  const TempDir fresh;  // where nobody knows that this program has passed
  const Environment fresh_cache("XDG_CACHE_HOME", fresh.path().c_str());
  ASSERT_OK_AND_ASSIGN(const Seen next, look());
  EXPECT_TRUE(next.continues);
  EXPECT_NE(next.head, whole.head);
  ASSERT_EQ(next.fallbacks.size(), whole.fallbacks.size() + 1);
  EXPECT_NE(next.fallbacks.front().what.find("other shapes"), std::string::npos)
      << next.fallbacks.front().what;
  EXPECT_NE(next.fallbacks.front().why.find("does not choose the likeliest token"), std::string::npos)
      << next.fallbacks.front().why;
}

TEST(SelfCheck, ChecksAWholeModelOnce) {
  DOPPLER_NEEDS_ADAPTER();
  const TempDir folder;
  const Environment cache("XDG_CACHE_HOME", folder.path().c_str());
  EXPECT_EQ(gpu::CacheFile::user_folder(), folder / "doppler");
  ASSERT_OK_AND_ASSIGN(const auto fixture, doppler::testing::load_fixture("llama"));
  BackendOptions options{.threads = 2, .context = 64, .max_step_tokens = 8, .disabled_passes = {}};
  options.gpu_setup.tune = false;  // what a second load measures may be another program
  // Kernels are made, and checked, for the first step that needs them.
  const auto first_step = [&]() -> Status {
    DOPPLER_ASSIGN(const auto backend,
                   make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    StepInput input;
    input.add(1, 0, 0, false);
    input.add(2, 1, 0, true);
    DOPPLER_TRY(backend->step(input, nullptr));
    EXPECT_TRUE(backend->can_continue({}))  // the program for single tokens passes, too
        << (backend->fallbacks().empty() ? "" : backend->fallbacks().front().why);
    return {};
  };
  ASSERT_OK(first_step());
  ASSERT_TRUE(std::filesystem::exists(folder / "doppler"));
  std::filesystem::path checked;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "doppler")) {
    if (entry.path().filename().string().starts_with("gpu-checked-")) checked = entry.path();
  }
  ASSERT_OK_AND_ASSIGN(const std::string text, read_text_file(checked, 1 << 20));
  EXPECT_NE(text.find("\"gemv.wgsl "), std::string::npos) << text;
  EXPECT_NE(text.find("\"batch_norm.wgsl "), std::string::npos) << text;
  // Remembered: the broken kernel is not looked at again.
  const Broken broken("batch_norm.wgsl", "x = h${i} * g", "x = h${i} * g * 2.0");
  ASSERT_OK(first_step());
}

}  // namespace
}  // namespace doppler::gpu
