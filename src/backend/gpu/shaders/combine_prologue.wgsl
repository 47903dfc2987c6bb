// prologue() of gemv.wgsl (PRO 2): puts together the results of the workgroups of attention_decode.wgsl, for each head and
// split the values' mean by its shares (parts), and (maximum, sum of shares) (marks): see combined.wgsl. The row of WIDTH
// values, zeros up to UNITS_K * 64, goes where prologue_x.wgsl keeps it. EMIT_ATTN 1: the first workgroup also stores it.
@group(0) @binding(10) var<storage, read> step : array<u32>;
#if KV_HALF
@group(0) @binding(11) var<storage, read> parts : array<vec2u>;
#else
@group(0) @binding(11) var<storage, read> parts : array<vec4f>;
#endif
@group(0) @binding(12) var<storage, read> marks : array<vec2f>;
#if EMIT_ATTN
@group(0) @binding(14) var<storage, read_write> attn_out : array<vec4f>;
#endif
#if SINKS
@group(0) @binding(15) var<storage, read> sinks : array<f32>;
#endif
#include "prologue_x.wgsl"
#include "combined.wgsl"
// Vectors of four values that a thread takes.
#define VECS (UNITS_K * 16 + THREADS - 1) / THREADS

fn combine_at(v : u32, splits : Splits, is_first : bool) {
  var x = vec4f(0.0);
  if (v < ${WIDTH / 4}u) {
    x = combined(v, splits);
#if EMIT_ATTN
    if (is_first) {
      attn_out[v] = x;
    }
#endif
  }
  put_x(v, x);
}
// t: the thread's number; is_first: whether this is the first workgroup, the one that stores.
fn prologue(t : u32, is_first : bool) {
  let splits = splits_of(step[${POSITIONS}u]);
#if THREADS < 32
  // So few only tiny matrices take. A software adapter compiles a thread's four vectors, written out, for eight seconds.
  for (var i = 0u; i < ${VECS}u; i++) {
    combine_at(t + i * ${THREADS}u, splits, is_first);
  }
#else
#for i in 0..VECS
  combine_at(t + ${i * THREADS}u, splits, is_first);
#endfor
#endif
  workgroupBarrier();
}
