// SUM 1: out = [z +] the sum of a token's CHOSEN parts of `a`, times the weights b (WEIGHTED 0: as they are), in the order of
// expert_out.wgsl. SUM 0: out has
// CHOSEN parts, `a` times each of b. Workgroups: x over values of out, y over tokens.
// Source: the plan's ops kExpertSum and kSpread.
// Template values (op_kernels.cpp): WIDTH values of a part; ADDS 1: there is z. Row i of a, b, z, out begins at float
// i * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> a : array<f32>;
#if WEIGHTED
@group(0) @binding(1) var<storage, read> b : array<f32>;
#endif
#if ADDS
@group(0) @binding(2) var<storage, read> z : array<f32>;
#endif
@group(0) @binding(3) var<storage, read_write> out : array<f32>;
#define OUT_WIDTH WIDTH * (SUM == 1) + WIDTH * CHOSEN * (SUM == 0)

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${OUT_WIDTH}u) {
    return;
  }
  let from_a = group.y * ${A_STRIDE}u + ${A_OFFSET}u;
#if WEIGHTED
  let from_b = group.y * ${B_STRIDE}u + ${B_OFFSET}u;
#endif
#if SUM
#for c in 0..CHOSEN
#if WEIGHTED
  let total_${c} = fma(a[from_a + ${c * WIDTH}u + i], b[from_b + ${c}u], 1.2e-38);  // as expert_out.wgsl has it
#else
  let total_${c} = a[from_a + ${c * WIDTH}u + i];
#endif
#sum total, c, CHOSEN
#endfor
#if ADDS
  let value = z[group.y * ${Z_STRIDE}u + ${Z_OFFSET}u + i] + total;
#else
  let value = total;
#endif
#else
  let value = a[from_a + i % ${WIDTH}u] * b[from_b + i / ${WIDTH}u];
#endif
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
