// The activations of a product as they lie in memory: 8-bit blocks (ACT 1), UNITS_K units a row, or floats (ACT 0), row i
// from float i * X_STRIDE + X_OFFSET on, WIDTH of them. X_VEC 1: they can be read in vectors of four. Rows are chosen by `token`.
#if ACT == 1
@group(0) @binding(3) var<storage, read> x8 : array<vec4u>;
@group(0) @binding(4) var<storage, read> xs : array<vec2f>;
#elif X_VEC
@group(0) @binding(3) var<storage, read> x : array<vec4f>;
#else
@group(0) @binding(3) var<storage, read> x : array<f32>;
#endif
var<private> token : u32;
#if ACT == 1
fn x8_at(unit : u32, piece : u32) -> vec4u { return x8[(token * ${UNITS_K}u + unit) * 4u + piece]; }
fn xs_at(unit : u32, block : u32) -> vec2f { return xs[(token * ${UNITS_K}u + unit) * 2u + block]; }
#else
fn x_at(unit : u32, j : u32) -> vec4f {
  let k = unit * 64u + j * 4u;
#if X_VEC
#if WIDTH % 64 == 0
  return x[token * ${X_STRIDE / 4}u + ${X_OFFSET / 4}u + k / 4u];
#else
  if (k >= ${WIDTH}u) { return vec4f(0.0); }
  return x[token * ${X_STRIDE / 4}u + ${X_OFFSET / 4}u + k / 4u];
#endif
#else
  let at = token * ${X_STRIDE}u + ${X_OFFSET}u + k;
  var v = vec4f(0.0);
#for e in 0..4
  if (k + ${e}u < ${WIDTH}u) { v[${e}] = x[at + ${e}u]; }
#endfor
  return v;
#endif
}
#endif
