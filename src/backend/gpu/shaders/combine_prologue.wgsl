// Puts together what the workgroups of attention_decode.wgsl left: for each head and split, the sum of shares times values,
// and (maximum, sum of shares).
@group(0) @binding(10) var<storage, read> step : array<u32>;
@group(0) @binding(11) var<storage, read> parts : array<vec4f>;
@group(0) @binding(12) var<storage, read> marks : array<vec2f>;
#if EMIT_ATTN
@group(0) @binding(14) var<storage, read_write> attn_out : array<vec4f>;
#endif
#include "prologue_x.wgsl"
#include "splits.wgsl"
#define VECS (UNITS_K * 16 + THREADS - 1) / THREADS
#define HEAD_VECS DIM / 4

// Eight splits' loads are under way at a time.
fn combined(v : u32, count : u32) -> vec4f {
  let head = v / ${HEAD_VECS}u;
  let at = head * ${MOST_SPLITS}u;
  var most = -3.0e38;
  var total = 0.0;
  var sum = vec4f(0.0);
  for (var s = 0u; s < count; s += 8u) {
#for i in 0..8
    let m${i} = marks[at + min(s + ${i}u, count - 1u)];
    let p${i} = parts[(at + min(s + ${i}u, count - 1u)) * ${HEAD_VECS}u + v % ${HEAD_VECS}u];
#endfor
    let before = most;
    most = max(most, max(max(max(m0.x, m1.x), max(m2.x, m3.x)), max(max(m4.x, m5.x), max(m6.x, m7.x))));
    let fade = exp(before - most);
    total *= fade;
    sum *= fade;
#for i in 0..8
    let w${i} = select(0.0, exp(m${i}.x - most), s + ${i}u < count);
    total += m${i}.y * w${i};
    sum += p${i} * w${i};
#endfor
  }
  return sum / total;
}

fn prologue(t : u32, is_first : bool) {
  let count = splits_of(step[${POSITIONS}u]).count;
#for i in 0..VECS
  {
    let v = t + ${i * THREADS}u;
    var x = vec4f(0.0);
    if (v < ${WIDTH / 4}u) {
      x = combined(v, count);
#if EMIT_ATTN
      if (is_first) {
        attn_out[v] = x;
      }
#endif
    }
    put_x(v, x);
  }
#endfor
  workgroupBarrier();
}
