// alibi(head, key, position): what a head adds to the score of the key at position `key`, seen from `position`; see
// model/alibi.h. Template values (shader_values.cpp): ALIBI_HEADS the largest power of two among the heads; ALIBI_STEP_BITS
// bits of the largest bias / ALIBI_HEADS, ALIBI_SCALE_BITS of the factor; ALIBI_ROUNDED 1: bfloat16 holds everything.
#if ALIBI_ROUNDED
fn as_bf16(x : f32) -> f32 {
  let bits = bitcast<u32>(x);
  return bitcast<f32>((bits + 0x7fffu + ((bits >> 16u) & 1u)) & 0xffff0000u);
}
#endif
fn alibi(head : u32, key : u32, position : u32) -> f32 {
  let power = select(f32(head) - ${ALIBI_HEADS}.0 + 0.5, f32(head + 1u), head < ${ALIBI_HEADS}u);
  let slope = exp2(-bitcast<f32>(${ALIBI_STEP_BITS}u) * power);
#if ALIBI_ROUNDED
  return as_bf16(as_bf16(slope) * as_bf16(f32(key))) * bitcast<f32>(${ALIBI_SCALE_BITS}u);
#else
  return slope * -f32(position - key) * bitcast<f32>(${ALIBI_SCALE_BITS}u);
#endif
}
