// Adds the parts that the workgroups of a split product (gemm.wgsl) left, neighbours first (docs/kernels.md: one order of sums). Workgroups: x over rows of W, y
// over tokens. parts [SPLITS][token][ROWS], SPLIT_STRIDE floats a split; BIAS 1: bias[row] is added. Token i's row of `out`
// begins at float i * OUT_STRIDE + OUT_OFFSET. Template values: batch_builder.cpp.
@group(0) @binding(0) var<storage, read> parts : array<f32>;
@group(0) @binding(1) var<storage, read_write> out : array<f32>;
#if BIAS
@group(0) @binding(2) var<storage, read> bias : array<f32>;
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row = group.x * ${THREADS}u + t;
  if (row >= ${ROWS}u) {
    return;
  }
  let from_part = group.y * ${ROWS}u + row;
#for s in 0..SPLITS
  let sum_${s} = parts[from_part + ${s * SPLIT_STRIDE}u];
#sum sum, s, SPLITS
#endfor
#if BIAS
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = sum + bias[row];
#else
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = sum;
#endif
}
