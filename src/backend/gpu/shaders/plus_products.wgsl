// One sum more, of four products one after the other: written out, so that every kernel adds them alike.
fn plus_products(sum : f32, w : vec4f, v : vec4f) -> f32 {
  return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
}
