// prologue() of gemv.wgsl (PRO 1) and head.wgsl: h = residual + [norm of] branch (ADD, POST), x = norm of h. Every workgroup
// computes it for itself, because a dispatch of its own would cost more than the arithmetic. x goes where prologue_x.wgsl
// keeps it; the first workgroup stores h in `carried` (CARRY), x (EMIT_NORMED), x as the 8-bit blocks of quantise.wgsl
// (EMIT_BLOCKS), the branch's norm (EMIT_POST) and, where it is handed over (joined.wgsl), the branch (KEEPS) where they are read elsewhere.
// norm_weights: the weight of x's norm, then (POST) of the branch's.
// Template values (decode_products.cpp): the flags above, 0 or 1; WIDTH values of the row, a multiple of 4; UNITS_K units of
// 64 that cover them; EPS_BITS the bits of both norms' eps; EXPANDED see norm_sums.wgsl.
@group(0) @binding(10) var<storage, read> residual : array<vec4f>;
#default TAKES_OVER 0
#default KEEPS 0
#default AHEAD 0
#if ADD && !TAKES_OVER
@group(0) @binding(11) var<storage, read> branch : array<vec4f>;
#endif
#if CARRY
@group(0) @binding(12) var<storage, read_write> carried : array<vec4f>;
#endif
@group(0) @binding(13) var<storage, read> norm_weights : array<vec4f>;
#if EMIT_NORMED
@group(0) @binding(14) var<storage, read_write> normed_out : array<vec4f>;
#endif
#if EMIT_POST
@group(0) @binding(15) var<storage, read_write> post_out : array<vec4f>;
#endif
#if KEEPS
@group(0) @binding(18) var<storage, read_write> branch_out : array<vec4f>;
#endif
#if EMIT_BLOCKS
@group(0) @binding(16) var<storage, read_write> normed8 : array<u32>;
@group(0) @binding(17) var<storage, read_write> normed_scales : array<vec2f>;
#include "quantise_vec.wgsl"
#endif
#define NORM 1
#define POST_EPS_BITS EPS_BITS
#default EXPANDED 1
#define TERMS UNITS_K * 16
#include "norm_terms.wgsl"
#include "prologue_x.wgsl"
// Vectors of four values that a thread takes.
#define VECS (UNITS_K * 16 + THREADS - 1) / THREADS

// t: the thread's number; is_first: whether this is the first workgroup, the one that stores.
fn prologue(t : u32, is_first : bool) {
#for i in 0..VECS
  // Of the i-th: v its place in the row, r residual, p branch, w weight of x's norm.
  let v${i} = t + ${i * THREADS}u;
  let has${i} = v${i} < ${WIDTH / 4}u;
  var r${i} = vec4f(0.0);
  var w${i} = vec4f(0.0);  // loaded with the rest, before the reduction
#if ADD
  var p${i} = vec4f(0.0);
#endif
#if POST
  var post_weight${i} = vec4f(0.0);
#endif
  if (has${i}) {
    r${i} = residual[v${i}];
    w${i} = norm_weights[v${i}];
#if POST
    post_weight${i} = norm_weights[${WIDTH / 4}u + v${i}];
#endif
#if ADD && !TAKES_OVER
    p${i} = branch[v${i}];
#endif
  }
#endfor
#if ADD && TAKES_OVER
  // Waits for other workgroups of the dispatch, when all that they do not make is under way.
  await_handed(t);
#for i in 0..VECS
  if (has${i}) {
    p${i} = handed_vec(v${i});
  }
#endfor
#if AHEAD
  load_next();
#endif
#endif
#include "norm_sums.wgsl"
#for i in 0..VECS
  var x${i} = vec4f(0.0);
  if (has${i}) {
    x${i} = h${i} * g * w${i};
    if (is_first) {
#if CARRY
      carried[v${i}] = h${i};
#endif
#if EMIT_NORMED
      normed_out[v${i}] = x${i};
#endif
#if EMIT_POST
      post_out[v${i}] = q${i} * f;
#endif
#if KEEPS
      branch_out[v${i}] = p${i};
#endif
    }
  }
#if EMIT_BLOCKS
  if (is_first) {
    let made = quantise_vec(x${i}, t);
    if (v${i} < ${UNITS_K * 16}u) {
      normed8[v${i}] = made.word;
      if ((v${i} & 7u) == 0u) {
        normed_scales[v${i} >> 3u] = vec2f(made.scale, made.scale * f32(made.sum));
      }
    }
  }
#endif
  put_x(v${i}, x${i});
#endfor
  workgroupBarrier();
}
