// The self-check passes what is right and notices what is wrong.
#include "kernel_variants.h"

namespace doppler::gpu {
namespace {

using namespace testing;

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

TEST(SelfCheck, NoticesWhatIsWrongWhereBlocksShareScales) {
  DOPPLER_NEEDS_ADAPTER();
  for (const Variant& variant : wide_block_variants())
    expect_wrong_with(variant, "quantise_vec.wgsl", "let first = (t >> 6u) * 8u;",
                      "let first = (t >> 5u) * 4u;");
  for (const DType type : {DType::kQ2_K, DType::kQ4_K, DType::kQ6_K}) {
    const Variant product = wide_product_variant(type);
    expect_wrong_with(product, "gemm.wgsl", "*= change;", "*= 1.0;");
    expect_wrong_with(product, "gemm.wgsl", "= unit * sum", "= sum");
    expect_wrong_with(product, "gemm.wgsl", "at % ${STEPS_OF_A_SCALE}u == 0u",
                      "at % ${STEPS_OF_A_SCALE}u == 1u");
  }
  const Variant minima = wide_product_variant(DType::kQ4_K);
  expect_wrong_with(minima, "gemm.wgsl", "sum${i}_${j} -= bias;", "sum${i}_${j} -= 0.999 * bias;");
  expect_wrong_with(minima, "gemm.wgsl", "b${n}.y * inverse", "b${n}.y");
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
  expect_wrong_with(combined, "combined.wgsl", "total = 1.0;", "total = 1.01;");
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
  expect_wrong_with(several, file, "x${n}_${e} * w${n}_${e} * factor${n}", "x${n}_${e} * factor${n}");
  expect_wrong_with(several, file, "select(s, -s, is_first)", "s");
  expect_wrong_with(several, "kv.wgsl", "slot * ${PAGE_ROW}u + ", "0u * slot * ${PAGE_ROW}u + ");
  const Variant in_pages = decode_attention_variant(true, false, true, 0);
  expect_wrong_with(in_pages, file, "/ ${CAPACITY}u != group.x", "/ ${CAPACITY}u == group.x");
  expect_wrong_with(in_pages, "kv.wgsl", "step[${ALONE_ROW}u + position / ${CAPACITY}u]",
                    "step[${ALONE_ROW}u]");
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

}  // namespace
}  // namespace doppler::gpu
