// Turns pairs of each head by the token's position. The angle's cosine and sine come from two tables, of multiples of
// 256 positions and of the rest, made in double precision: a product position * frequency in f32 would lose
// the last bits of large positions. Magnitudes (yarn) are in the first table. Workgroups: x over values, y over tokens.
// Source: Su et al., "RoFormer" (2021).
// Template values (op_kernels.cpp): HEADS heads of DIM values, which turn from BEGIN on; TO_HALF 1: neighbours turn, and
// are left in two halves; PAIRS, HIGH_ROWS, INTERLEAVED see rope_angle.wgsl; POSITIONS
// the word of `step` where the tokens' positions begin. A token's row of x, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> x : array<f32>;
@group(0) @binding(2) var<storage, read> angles : array<vec2f>;
@group(0) @binding(3) var<storage, read_write> out : array<f32>;
#include "rope_angle.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let i = group.x * ${THREADS}u + t;
  if (i >= ${HEADS * DIM}u) {
    return;
  }
  // d: the value's place in its head, from the first that turns; a: (cos, sin) of its pair.
  let d = i % ${DIM}u - ${BEGIN}u;
  let base_at = token * ${X_STRIDE}u + ${X_OFFSET}u + i - d;
  let own = x[base_at + d];
  var turned = own;
#if TO_HALF
  if (d < ${2 * PAIRS}u) {
    let first = d < ${PAIRS}u;
    let pair = select(d - ${PAIRS}u, d, first);
    let a = rope_angle(step[${POSITIONS}u + token], pair);
    let p = vec2f(x[base_at + 2u * pair], x[base_at + 2u * pair + 1u]);
    turned = select(p.y * a.x + p.x * a.y, p.x * a.x - p.y * a.y, first);
  }
#else
  if (d < ${2 * PAIRS}u) {
    let a = rope_angle(step[${POSITIONS}u + token], rope_pair(d));
    let other = x[base_at + rope_partner(d)];
    turned = select(own * a.x + other * a.y, own * a.x - other * a.y, rope_is_first(d));
  }
#endif
  out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = turned;
}
