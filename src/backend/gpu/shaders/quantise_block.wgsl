// A block of 32 values becomes 32 codes from -127 to 127: value / scale, where scale = largest magnitude / 127.
// Magnitudes stand in the order of their bits, NaN behind infinity: it counts as infinity, because max() of floats would lose
// it, and an infinite scale makes every sum of the block NaN.
fn largest(v : vec4f) -> f32 {
  let a = bitcast<vec4u>(v) & vec4u(0x7fffffffu);
  return bitcast<f32>(min(max(max(a.x, a.y), max(a.z, a.w)), 0x7f800000u));
}
// `inverse` is 1 / scale, or 0 for a block of zeros. To the nearest, ties to even.
fn codes_of(v : vec4f, inverse : f32) -> vec4i {
  return vec4i(round(v * inverse));
}
