// activation(gate) * norm of x, by heads of DIM values, as norm.wgsl has the norm: as floats (FLOATS), in the 8-bit blocks of
// quantise.wgsl (BLOCKS: DIM is a multiple of 32), or both. Workgroups: x over heads.
// Template values (decode_recurrent.cpp): the flags above, 0 or 1; DIM, a multiple of 4; EPS_BITS the bits of eps; ACTIVATION see
// activation.wgsl; X_OFFSET, GATE_OFFSET, OUT_OFFSET the floats where the rows begin, multiples of 4.
@group(0) @binding(0) var<storage, read> x : array<vec4f>;
@group(0) @binding(1) var<storage, read> gate : array<vec4f>;
@group(0) @binding(2) var<storage, read> weight : array<vec4f>;
#if FLOATS
@group(0) @binding(3) var<storage, read_write> out : array<vec4f>;
#endif
#if BLOCKS
@group(0) @binding(4) var<storage, read_write> x8 : array<u32>;
@group(0) @binding(5) var<storage, read_write> xs : array<vec2f>;
#include "quantise_vec.wgsl"
#endif
#define VECS DIM / 4
#define EACH (VECS + THREADS - 1) / THREADS
#include "reduce.wgsl"
#include "activation.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  var square = 0.0;
#for e in 0..EACH
  // i: a vector of the head; v its values, g of the gate, w the norm's weights.
  let i${e} = t + ${e * THREADS}u;
  var v${e} = vec4f(0.0);
  var g${e} = vec4f(0.0);
  var w${e} = vec4f(0.0);
  if (i${e} < ${VECS}u) {
    v${e} = x[${X_OFFSET / 4}u + group.x * ${VECS}u + i${e}];
    g${e} = gate[${GATE_OFFSET / 4}u + group.x * ${VECS}u + i${e}];
    w${e} = weight[i${e}];
  }
  square += dot(v${e}, v${e});
#endfor
  let mean = workgroup_sum_once(vec4f(square, 0.0, 0.0, 0.0), t).x / ${DIM}.0;
  let factor = 1.0 / sqrt(mean + bitcast<f32>(${EPS_BITS}u));
#for e in 0..EACH
  {
    let y = vec4f(activate(g${e}.x), activate(g${e}.y), activate(g${e}.z), activate(g${e}.w)) * (v${e} * factor * w${e});
    let at = group.x * ${VECS}u + i${e};
#if FLOATS
    if (i${e} < ${VECS}u) {
      out[${OUT_OFFSET / 4}u + at] = y;
    }
#endif
#if BLOCKS
    let made = quantise_vec(y, t);
    if (i${e} < ${VECS}u) {
      x8[at] = made.word;
      if ((at & 7u) == 0u) {
        xs[at >> 3u] = vec2f(made.scale, made.scale * f32(made.sum));
      }
    }
#endif
  }
#endfor
}
