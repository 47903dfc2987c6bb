// Each head of a row times a matrix of its own; what the head has beyond the TAKES values that are multiplied follows the
// GIVES results. Workgroups: x over the values of a row of `out`, a thread each, y over tokens.
// Template values (op_columns.cpp): HEADS heads, FROM values of x apart (0: all take the same), TO of `out`.
// weights: [head][input][output]. A token's row of x, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read> weights : array<f32>;
@group(0) @binding(2) var<storage, read_write> out : array<f32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${HEADS * TO}u) {
    return;
  }
  let head = i / ${TO}u;
  let o = i % ${TO}u;
  let from_x = group.y * ${X_STRIDE}u + ${X_OFFSET}u + head * ${FROM}u;
  var sum = 0.0;
  if (o < ${GIVES}u) {
    for (var k = 0u; k < ${TAKES}u; k++) {
      sum = fma(x[from_x + k], weights[(head * ${TAKES}u + k) * ${GIVES}u + o], sum);
    }
  } else {
    sum = x[from_x + ${TAKES}u + o - ${GIVES}u];
  }
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = sum;
}
