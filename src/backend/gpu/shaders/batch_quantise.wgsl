// Activations in 8 bits for gemm.wgsl and gemv.wgsl, eight threads to a block of 32 values. GATED: of activation(a) * b,
// else of a. Values beyond the width, up to the next multiple of 64, are zero. Workgroups: x over values, y over tokens.
//   x8 [token][UNITS_K * 64]: signed bytes, four in a word
//   xs [token][UNITS_K * 2]: of each block (scale, scale * sum of its codes)
// Template values (op_kernels.cpp, batch_fused.cpp): WIDTH values of a row, a multiple of 4; UNITS_K units of 64 that cover
// them; EMIT 1: the floats are stored in `out`. A token's row of a, b, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> a : array<vec4f>;
#if GATED
@group(0) @binding(1) var<storage, read> b : array<vec4f>;
#endif
@group(0) @binding(2) var<storage, read_write> x8 : array<u32>;
@group(0) @binding(3) var<storage, read_write> xs : array<vec2f>;
#if EMIT
@group(0) @binding(4) var<storage, read_write> out : array<vec4f>;
#endif
#include "quantise_vec.wgsl"
#if GATED
#include "activation.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let i = group.x * ${THREADS}u + t;
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
  let made = quantise_vec(x, t);
  if (i < ${UNITS_K * 16}u) {
    x8[token * ${UNITS_K * 16}u + i] = made.word;
    if ((i & 7u) == 0u) {
      xs[token * ${UNITS_K * 2}u + i / 8u] = vec2f(made.scale, made.scale * f32(made.sum));
    }
  }
}
