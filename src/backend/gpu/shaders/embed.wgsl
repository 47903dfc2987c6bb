// out[token] = row ids[token] of an embedding table, times a factor; with ADDS added to what is there. A table of several buffers has a dispatch for
// each, which leaves the other buffers' tokens alone. Workgroups: x over the width, y over tokens.
// Source: the plan's op kEmbed.
// Template values (shader_values.cpp): IDS the word of `step` where the tokens' ids begin; ROW0, ROWS the rows in
// this buffer of the table's TABLE, beyond which tokens have row 0; WIDTH values of a row, of which a thread takes four (number q); FACTOR_BITS the factor's bits.
// codes, scales, FORM, SCALES, UNITS_K: see weights.wgsl.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(2) var<storage, read> scales : array<u32>;
#endif
@group(0) @binding(3) var<storage, read_write> out : array<vec4f>;
#include "weights.wgsl"
#include "weight_at.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let asked = step[${IDS}u + token];
  let id = select(0u, asked, asked < ${TABLE}u);
  let q = group.x * ${THREADS}u + t;
  if (q >= ${WIDTH / 4}u || id < ${ROW0}u || id >= ${ROW0 + ROWS}u) {
    return;
  }
  let row = id - ${ROW0}u;
#if ADDS
  out[token * ${WIDTH / 4}u + q] += weight_at(row, q) * bitcast<f32>(${FACTOR_BITS}u);
#else
  out[token * ${WIDTH / 4}u + q] = weight_at(row, q) * bitcast<f32>(${FACTOR_BITS}u);
#endif
}
