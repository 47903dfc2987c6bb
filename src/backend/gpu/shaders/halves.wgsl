// Activations as halves, in the order that gemm_half.wgsl multiplies them in: the two middle ones of every four change places,
// as nibbles do when a word of them is split. They are divided by 32, which the weights are multiplied by: the largest
// activation is 2 million then. Larger ones become NaN, which ends a generation with an error, not with a wrong text.
fn half_bits(v : vec4f) -> vec4f {
  let small = v * 0.03125;
  return select(small, bitcast<vec4f>(bitcast<vec4u>(small) | vec4u(0x7fc00000u)), abs(small) > vec4f(65504.0));
}
fn halves_of(v : vec4f) -> vec2u {
  let h = half_bits(v);
  return vec2u(pack2x16float(h.xz), pack2x16float(h.yw));
}
// Where values 4i .. 4i+3 of a token lie in x16 [block of 32][HALF_TOKENS][8 vectors].
fn half_index(token : u32, i : u32) -> u32 {
  return ((i >> 3u) * ${HALF_TOKENS}u + token) * 8u + (i & 7u);
}
