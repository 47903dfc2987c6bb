// Columns of x side by side: up to four ranges, each of the same columns of every group of a row. Workgroups: x over
// columns of out, y over tokens.
// Template values (recurrent_kernels.cpp): RANGES ranges; of range r: TO_r the column of out where it begins, WIDTH_r columns of
// each group from the group's column FIRST_r on, GROUP_r columns of a group, SCALE_r the bits of its factor; WIDTH columns of
// out. A token's row of x, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read_write> out : array<f32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${WIDTH}u) {
    return;
  }
  let row = group.y * ${X_STRIDE}u + ${X_OFFSET}u;
  var value = 0.0;
  if (i >= ${TO_0}u) {
    let within = i - ${TO_0}u;
    value = x[row + within / ${WIDTH_0}u * ${GROUP_0}u + ${FIRST_0}u + within % ${WIDTH_0}u] * bitcast<f32>(${SCALE_0}u);
  }
#if RANGES > 1
  if (i >= ${TO_1}u) {
    let within = i - ${TO_1}u;
    value = x[row + within / ${WIDTH_1}u * ${GROUP_1}u + ${FIRST_1}u + within % ${WIDTH_1}u] * bitcast<f32>(${SCALE_1}u);
  }
#endif
#if RANGES > 2
  if (i >= ${TO_2}u) {
    let within = i - ${TO_2}u;
    value = x[row + within / ${WIDTH_2}u * ${GROUP_2}u + ${FIRST_2}u + within % ${WIDTH_2}u] * bitcast<f32>(${SCALE_2}u);
  }
#endif
#if RANGES > 3
  if (i >= ${TO_3}u) {
    let within = i - ${TO_3}u;
    value = x[row + within / ${WIDTH_3}u * ${GROUP_3}u + ${FIRST_3}u + within % ${WIDTH_3}u] * bitcast<f32>(${SCALE_3}u);
  }
#endif
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
