// Puts together the results of the workgroups of attention_decode.wgsl by itself, where no product does it on its way, or
// where they are so many that each workgroup of a product would read too much (see combined.wgsl for `parts`, `marks` and the
// template values). A vector of four of the WIDTH = heads * head size values has PARTS threads, one for each eight splits at least.
// Workgroups: x over THREADS / PARTS vectors, y over tokens.
//
// Template values (decode_attention.cpp): PARTS; FLOATS 1: stored in `out`, token i's row from float i * OUT_STRIDE + OUT_OFFSET on; BLOCKS 1: as out8, outs, the 8-bit blocks of
// quantise.wgsl, UNITS_K of 64 values.
@group(0) @binding(0) var<storage, read> step : array<u32>;
#if KV_HALF
@group(0) @binding(1) var<storage, read> parts : array<vec2u>;
#else
@group(0) @binding(1) var<storage, read> parts : array<vec4f>;
#endif
@group(0) @binding(2) var<storage, read> marks : array<vec2f>;
#if FLOATS
@group(0) @binding(3) var<storage, read_write> out : array<vec4f>;
#endif
#if SINKS
@group(0) @binding(4) var<storage, read> sinks : array<f32>;
#endif
#if BLOCKS
@group(0) @binding(5) var<storage, read_write> out8 : array<u32>;
@group(0) @binding(6) var<storage, read_write> outs : array<vec2f>;
#include "quantise_vec.wgsl"
#endif
#include "combined.wgsl"
#define HERE THREADS / PARTS
var<workgroup> marked : array<vec2f, ${THREADS}>;  // [part][vector]: maximum, sum of shares
var<workgroup> summed : array<vec4f, ${THREADS}>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let splits = splits_of(step[${POSITIONS}u + token]);
  let v = group.x * ${HERE}u + t % ${HERE}u;
  let own = share_of(token * ${WIDTH / 4}u + min(v, ${WIDTH / 4 - 1}u), t / ${HERE}u * 8u, splits);
  marked[t] = vec2f(own.most, own.total);
  summed[t] = own.sum;
  workgroupBarrier();
  var x = vec4f(0.0);
  if (t < ${HERE}u && v < ${WIDTH / 4}u) {
    if (splits.count <= 8u) {
      x = own.sum / own.total;
    } else {
      var most = own.most;
#for p in 1..EIGHTS
      most = max(most, marked[t + ${p * HERE}u].x);
#endfor
      var total = 0.0;
#for p in 0..EIGHTS
      let weight${p} = exp(marked[t + ${p * HERE}u].x - most);
      total = fma(marked[t + ${p * HERE}u].y, weight${p}, total);
      x = fma(summed[t + ${p * HERE}u], vec4f(weight${p}), x);
#endfor
      x /= total;
    }
#if FLOATS
    out[token * ${OUT_STRIDE / 4}u + ${OUT_OFFSET / 4}u + v] = x;
#endif
  }
#if BLOCKS
  let made = quantise_vec(x, t);
  if (t < ${HERE}u && v < ${UNITS_K * 16}u) {
    out8[token * ${UNITS_K * 16}u + v] = made.word;
    if ((v & 7u) == 0u) {
      outs[token * ${UNITS_K * 2}u + (v >> 3u)] = vec2f(made.scale, made.scale * f32(made.sum));
    }
  }
#endif
}
