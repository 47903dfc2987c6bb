// Sums of products, written out: a driver may take any product into the addition behind it, or none, and another one in another kernel.
// `sum` and four products, one after the other.
fn plus_products(sum : f32, w : vec4f, v : vec4f) -> f32 {
  return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
}
// Four products alone.
fn four_products(w : vec4f, v : vec4f) -> f32 {
  return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, w.x * v.x)));
}
