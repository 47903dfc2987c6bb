// Activations in halves for gemm_half.wgsl, a thread for four of them. GATED: of activation(a) * b, else of a. Values beyond the
// width, up to the next multiple of 64, are zero. Workgroups: x over values, y over tokens. x16: see halves.wgsl.
// Template values (batch_halves.cpp): WIDTH values of a row, a multiple of 4; UNITS_K units of 64 that cover them; EMIT 1: the
// floats are stored in `out`. A token's row of a, b, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> a : array<vec4f>;
#if GATED
@group(0) @binding(1) var<storage, read> b : array<vec4f>;
#endif
@group(0) @binding(2) var<storage, read_write> x16 : array<vec2u>;
#if EMIT
@group(0) @binding(4) var<storage, read_write> out : array<vec4f>;
#endif
#include "halves.wgsl"
#if GATED
#include "activation.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let i = group.x * ${THREADS}u + t;
  if (i >= ${UNITS_K * 16}u) {
    return;
  }
  var x = vec4f(0.0);
  if (i < ${WIDTH / 4}u) {
    x = a[token * ${A_STRIDE / 4}u + ${A_OFFSET / 4}u + i];
#if GATED
    let factor = b[token * ${B_STRIDE / 4}u + ${B_OFFSET / 4}u + i];
    x = vec4f(activate(x.x), activate(x.y), activate(x.z), activate(x.w)) * factor;
#endif
#if EMIT
    out[token * ${OUT_STRIDE / 4}u + ${OUT_OFFSET / 4}u + i] = x;
#endif
  }
  x16[half_index(token, i)] = halves_of(x);
}
