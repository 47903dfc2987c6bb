// A block of 32 values becomes 32 codes from -127 to 127: value / scale, where scale = largest magnitude / 127.
fn largest(v : vec4f) -> f32 {
  let a = abs(v);
  return max(max(a.x, a.y), max(a.z, a.w));
}
// `inverse` is 1 / scale, or 0 for a block of zeros. To the nearest, ties to even.
fn codes_of(v : vec4f, inverse : f32) -> vec4i {
  return vec4i(round(v * inverse));
}
