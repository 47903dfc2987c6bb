// A part of prologue() and of batch_norm.wgsl, so that a token has the same bits alone and in company: from each vector's residual r,
// branch p (ADD) and its norm's weight post_weight (POST), all 0 behind the row's end, h, the sum; f, the factor of the
// branch's norm, and q, the branch times that norm's weight; g, the factor of h's norm (NORM).
// EXPANDED 1: one reduction for both norms: the sum of squares of r + q f is expanded. Where it cancels, which costs digits, h
// is summed by itself.
// All is written out in fma(), so that no driver joins other operations in one kernel than in the other.
#if POST
#for i in 0..VECS
  let q${i} = p${i} * post_weight${i};
#endfor
#endif
#if POST && NORM && EXPANDED
#for i in 0..VECS
  put_term(${i}u, vec4f(four_products(p${i}, p${i}), four_products(r${i}, r${i}), four_products(r${i}, q${i}), four_products(q${i}, q${i})), t);
#endfor
  let sums = sum_of_terms(t);
  let f = inverseSqrt(fma(sums.x, 1.0 / ${WIDTH}.0, bitcast<f32>(${POST_EPS_BITS}u)));
#elif POST
#for i in 0..VECS
  put_term(${i}u, Term(four_products(p${i}, p${i})), t);
#endfor
  let f = inverseSqrt(fma(sum_of_terms(t), 1.0 / ${WIDTH}.0, bitcast<f32>(${POST_EPS_BITS}u)));
#if NORM
  workgroupBarrier();
#endif
#endif
#for i in 0..VECS
#if POST
  let h${i} = fma(q${i}, vec4f(f), r${i});
#elif ADD
  let h${i} = r${i} + p${i};
#else
  let h${i} = r${i};
#endif
#endfor
#if POST && NORM && EXPANDED
  let apart = fma(f * f, sums.w, sums.y);
  var square = fma(2.0 * f, sums.z, apart);
#if STRICT_BARRIERS
  // A browser's compiler wants it proven that all threads come to a barrier together.
  if (t == 0u) {
    cancels = u32(square < 0.0625 * apart);
  }
  if (workgroupUniformLoad(&cancels) != 0u) {
#else
  if (square < 0.0625 * apart) {
    workgroupBarrier();
#endif
#for i in 0..VECS
    put_term(${i}u, vec4f(four_products(h${i}, h${i}), 0.0, 0.0, 0.0), t);
#endfor
    square = sum_of_terms(t).x;
  }
#elif NORM
#for i in 0..VECS
  put_term(${i}u, four_products(h${i}, h${i}), t);
#endfor
  let square = sum_of_terms(t);
#endif
#if NORM
  let g = inverseSqrt(fma(square, 1.0 / ${WIDTH}.0, bitcast<f32>(${EPS_BITS}u)));
#endif
