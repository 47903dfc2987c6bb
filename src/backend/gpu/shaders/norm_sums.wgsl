// A part of prologue() and of batch_norm.wgsl, so that a token has the same bits alone and in company: from each vector's residual r,
// branch p (ADD) and its norm's weight post_weight (POST), all 0 behind the row's end, h, the sum; f, the factor of the
// branch's norm, and q, the branch times that norm's weight; g, the factor of h's norm (NORM).
// EXPANDED 1: one reduction for both norms: the sum of squares of r + q f is expanded. Where it cancels, which costs digits, h
// is summed by itself.
#if POST
#for i in 0..VECS
  let q${i} = p${i} * post_weight${i};
#endfor
#endif
#if POST && NORM && EXPANDED
#for i in 0..VECS
  put_term(${i}u, vec4f(dot(p${i}, p${i}), dot(r${i}, r${i}), dot(r${i}, q${i}), dot(q${i}, q${i})), t);
#endfor
  let sums = sum_of_terms(t);
  let f = inverseSqrt(sums.x / ${WIDTH}.0 + bitcast<f32>(${POST_EPS_BITS}u));
#elif POST
#for i in 0..VECS
  put_term(${i}u, Term(dot(p${i}, p${i})), t);
#endfor
  let f = inverseSqrt(sum_of_terms(t) / ${WIDTH}.0 + bitcast<f32>(${POST_EPS_BITS}u));
#if NORM
  workgroupBarrier();
#endif
#endif
#for i in 0..VECS
#if POST
  let h${i} = fma(q${i}, vec4f(f), r${i});  // written out: a driver may join it or not, and must not decide by what is emitted
#elif ADD
  let h${i} = r${i} + p${i};
#else
  let h${i} = r${i};
#endif
#endfor
#if POST && NORM && EXPANDED
  var square = sums.y + 2.0 * f * sums.z + f * f * sums.w;
#if STRICT_BARRIERS
  // A browser's compiler wants it proven that all threads come to a barrier together.
  if (t == 0u) {
    cancels = u32(square < 0.0625 * (sums.y + f * f * sums.w));
  }
  if (workgroupUniformLoad(&cancels) != 0u) {
#else
  if (square < 0.0625 * (sums.y + f * f * sums.w)) {
    workgroupBarrier();
#endif
#for i in 0..VECS
    put_term(${i}u, vec4f(dot(h${i}, h${i}), 0.0, 0.0, 0.0), t);
#endfor
    square = sum_of_terms(t).x;
  }
#elif NORM
#for i in 0..VECS
  put_term(${i}u, dot(h${i}, h${i}), t);
#endfor
  let square = sum_of_terms(t);
#endif
#if NORM
  let g = inverseSqrt(square / ${WIDTH}.0 + bitcast<f32>(${EPS_BITS}u));
#endif
