// The elementwise chain between two matrix products, a workgroup for a token:
//   POST  branch' = norm(branch) * post_weight, else the branch itself
//   ADD   h = residual + branch', stored; else h is the residual
//   NORM  x = norm(h) * weight, stored as floats (FLOATS) and for the product that follows, in 8-bit blocks (QUANT 1) or halves (2)
// PARTS > 1: the branch is a sum of so many, PART_STRIDE floats apart, which a split product left (gemm_sum.wgsl's order).
// EMIT stores branch', which is otherwise nowhere. Workgroups: y over tokens.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019).
//
// Template values (batch_fused.cpp): the flags above, 0 or 1; WIDTH values of a row, a multiple of 4; UNITS_K units of 64
// that cover them; *_BITS bits of a float. A token's row of a buffer begins at float token * STRIDE + OFFSET.
// x8, xs: see batch_quantise.wgsl; x16: halves.wgsl.
@group(0) @binding(0) var<storage, read> residual : array<vec4f>;
#if ADD
@group(0) @binding(1) var<storage, read> branch : array<vec4f>;
@group(0) @binding(2) var<storage, read_write> h_out : array<vec4f>;
#endif
#if POST
@group(0) @binding(3) var<storage, read> post_weight : array<vec4f>;
#if EMIT
@group(0) @binding(4) var<storage, read_write> post_out : array<vec4f>;
#endif
#endif
#if NORM
@group(0) @binding(5) var<storage, read> weight : array<vec4f>;
#if FLOATS
@group(0) @binding(6) var<storage, read_write> x_out : array<vec4f>;
#endif
#if QUANT == 2
@group(0) @binding(7) var<storage, read_write> x16 : array<vec2u>;
#elif QUANT
@group(0) @binding(7) var<storage, read_write> x8 : array<u32>;
@group(0) @binding(8) var<storage, read_write> xs : array<vec2f>;
#endif
#endif
#define EXPANDED 1
#default PART_STRIDE 0
#if NORM && QUANT
#if QUANT == 2
#include "halves.wgsl"
#else
#include "quantise_vec.wgsl"
#endif
#define VECS (UNITS_K * 16 + THREADS - 1) / THREADS
#else
#define VECS (WIDTH / 4 + THREADS - 1) / THREADS
#endif

#if POST || NORM
#define TERMS WIDTH / 4
#include "norm_terms.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
#for i in 0..VECS
  // Of the thread's i-th vector of four: v its place in the row, r the residual, p the branch.
  let v${i} = t + ${i * THREADS}u;
  let has${i} = v${i} < ${WIDTH / 4}u;
  var r${i} = vec4f(0.0);
#if ADD
  var p${i} = vec4f(0.0);
#endif
#if POST
  var post_weight${i} = vec4f(0.0);
#endif
  if (has${i}) {
    r${i} = residual[token * ${RESIDUAL_STRIDE / 4}u + ${RESIDUAL_OFFSET / 4}u + v${i}];
#if POST
    post_weight${i} = post_weight[v${i}];
#endif
#if ADD
#for s in 0..PARTS
    let part${i}_${s} = branch[token * ${BRANCH_STRIDE / 4}u + ${BRANCH_OFFSET / 4 + s * (PART_STRIDE / 4)}u + v${i}];
#sum part${i}, s, PARTS
#endfor
    p${i} = part${i};
#endif
  }
#endfor
#include "norm_sums.wgsl"
#for i in 0..VECS
  if (has${i}) {
#if POST && EMIT
    post_out[token * ${POST_STRIDE / 4}u + ${POST_OFFSET / 4}u + v${i}] = q${i} * f;
#endif
#if ADD
    h_out[token * ${H_STRIDE / 4}u + ${H_OFFSET / 4}u + v${i}] = h${i};
#endif
  }
#endfor
#if NORM
#for i in 0..VECS
  {
    var x = vec4f(0.0);
    if (has${i}) {
      x = h${i} * g * weight[v${i}];
#if FLOATS
      x_out[token * ${X_STRIDE / 4}u + ${X_OFFSET / 4}u + v${i}] = x;
#endif
    }
#if QUANT == 2
    if (v${i} < ${UNITS_K * 16}u) {
      x16[half_index(token, v${i})] = halves_of(x);
    }
#elif QUANT
    let made = quantise_vec(x, t);
    if (v${i} < ${UNITS_K * 16}u) {
      x8[token * ${UNITS_K * 16}u + v${i}] = made.word;
      if ((v${i} & 7u) == 0u) {
        xs[token * ${UNITS_K * 2}u + v${i} / 8u] = vec2f(made.scale, made.scale * f32(made.sum));
      }
    }
#endif
  }
#endfor
#endif
}
