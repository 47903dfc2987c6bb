// Elementwise ops. OP: 0 a + [SCALE] b; 1 activation(a) * b; 2 CAP * tanh([SCALE] a / CAP); 3 [SCALE] a; 4 row wanted[row] of a;
// 5 activation(a); 6 a * (1 + BETA ln(1 + floor((position + AHEAD) / EVERY))); 7 [SCALE] a cut to +- CAP. Workgroups: x over values, y over rows.
// Template values (op_kernels.cpp): OP; WIDTH values of a row; CAP_BITS, SCALE_BITS floats' bits, SCALED whether there is a scale; WANTED the word of `step` where the
// list of wanted rows begins; ONE_GATE 1: a is one value for the row; SHAPED 1: gate and up are cut at GATE_LIMIT, silu takes ALPHA * gate, UP_OFFSET is
// added to up; BETA_BITS, EVERY, AHEAD see OP 6, POSITIONS the word where the tokens' positions begin. Row i of a, b, out begins at float i * STRIDE + OFFSET.
#if OP == 4 || OP == 6
@group(0) @binding(0) var<storage, read> step : array<u32>;
#endif
@group(0) @binding(1) var<storage, read> a : array<f32>;
#if OP <= 1
@group(0) @binding(2) var<storage, read> b : array<f32>;
#endif
@group(0) @binding(3) var<storage, read_write> out : array<f32>;
#if OP == 1
#include "gate.wgsl"
#elif OP == 5
#include "activation.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${WIDTH}u) {
    return;
  }
#if OP == 4
  let row = step[${WANTED}u + group.y];
#else
  let row = group.y;
#endif
#if ONE_GATE
  let left = a[row * ${A_STRIDE}u + ${A_OFFSET}u];
#else
  let left = a[row * ${A_STRIDE}u + ${A_OFFSET}u + i];
#endif
#if SCALED && (OP == 2 || OP == 3 || OP == 7)
  let scaled = left * bitcast<f32>(${SCALE_BITS}u);
#else
  let scaled = left;
#endif
#if OP == 0 && SCALED
  let value = fma(bitcast<f32>(${SCALE_BITS}u), b[row * ${B_STRIDE}u + ${B_OFFSET}u + i], left);
#elif OP == 0
  let value = left + b[row * ${B_STRIDE}u + ${B_OFFSET}u + i];
#elif OP == 1
  let value = gated(left, b[row * ${B_STRIDE}u + ${B_OFFSET}u + i]);
#elif OP == 6
  let steps = (step[${POSITIONS}u + group.y] + ${AHEAD}u) / ${EVERY}u;
  let value = left * (1.0 + bitcast<f32>(${BETA_BITS}u) * log(1.0 + f32(steps)));
#elif OP == 5
  let value = activate(left);
#elif OP == 7
  let cap = bitcast<f32>(${CAP_BITS}u);
  // clamp() would make a number of NaN.
  let value = select(clamp(scaled, -cap, cap), scaled, (bitcast<u32>(scaled) & 0x7fffffffu) > 0x7f800000u);
#elif OP == 2
  // clamp() would make a number of NaN.
  let capped = bitcast<f32>(${CAP_BITS}u) * tanh(clamp(scaled / bitcast<f32>(${CAP_BITS}u), -15.0, 15.0));
  let value = select(capped, scaled, (bitcast<u32>(scaled) & 0x7fffffffu) > 0x7f800000u);
#else
  let value = scaled;
#endif
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
