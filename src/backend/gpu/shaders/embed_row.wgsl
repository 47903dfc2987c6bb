// put_embedding: vec4 number q of a token's row of `out` = the same of row `id` of an embedding table, times a factor; with ADDS added to what is
// there. What lies beyond the row, and tokens whose row lies in another buffer of the table, stay as they are.
// Template values (shader_values.cpp): ROW0, ROWS the rows in this buffer of the table's TABLE, beyond which tokens have row 0; WIDTH values of a
// row; FACTOR_BITS the factor's bits. codes, scales, FORM, SCALES, UNITS_K: see weights.wgsl.
#include "weights.wgsl"
#include "weight_at.wgsl"

fn put_embedding(token : u32, asked : u32, q : u32) {
  let id = select(0u, asked, asked < ${TABLE}u);
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
