// Ops that scale or combine columns. OP: 0 a * b[column, or 0]; 1 a and b side by side; 2 streams a plus what is mixed
// in of b. Workgroups: x over the WIDTH values of a row of `out`, y over rows.
// Template values (op_columns.cpp): EACH 1: b has a factor for each column. A row of `out` is parts of PART values: FROM
// values of a, then those of b, whose parts are B_STEP apart. Streams are PART wide; b has PARTS of them, c (COEFFICIENTS
// 1) a number for each stream and part of b, to which OFFSET_BITS is added; streams before FIRST stay. Row i of a, b, c,
// out begins at float i * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> a : array<f32>;
@group(0) @binding(1) var<storage, read> b : array<f32>;
#if OP == 2
#if COEFFICIENTS
@group(0) @binding(2) var<storage, read> c : array<f32>;
#endif
#endif
@group(0) @binding(3) var<storage, read_write> out : array<f32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${WIDTH}u) {
    return;
  }
  let row = group.y;
  let at = row * ${A_STRIDE}u + ${A_OFFSET}u;
#if OP == 0
  let value = a[at + i] * b[i * ${EACH}u];
#else
  let part = i / ${PART}u;
  let d = i % ${PART}u;
#if OP == 1
  var value = 0.0;
  if (d < ${FROM}u) {
    value = a[at + part * ${FROM}u + d];
  } else {
    value = b[row * ${B_STRIDE}u + ${B_OFFSET}u + part * ${B_STEP}u + d - ${FROM}u];
  }
#else
  var value = a[at + i];
  if (part >= ${FIRST}u) {
    for (var p = 0u; p < ${PARTS}u; p++) {
      var factor = bitcast<f32>(${OFFSET_BITS}u);
#if COEFFICIENTS
      factor += c[row * ${C_STRIDE}u + ${C_OFFSET}u + part * ${PARTS}u + p];
#endif
      value = fma(factor, b[row * ${B_STRIDE}u + ${B_OFFSET}u + p * ${PART}u + d], value);
    }
  }
#endif
#endif
  out[row * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
