fn largest(v : vec4f) -> f32 {
  let a = abs(v);
  return max(max(a.x, a.y), max(a.z, a.w));
}
// To the nearest, ties to even.
fn codes_of(v : vec4f, inverse : f32) -> vec4i {
  return vec4i(round(v * inverse));
}
