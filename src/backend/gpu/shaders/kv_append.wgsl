// Stores the step's keys and values in the cache. Workgroups: x over words of a token's rows, y over tokens.
// Template values: DIM, KV_HEADS, CAPACITY, KV_HALF, PAGE_TABLE, PAGE_ROW see kv.wgsl; SLOTS, POSITIONS the words of `step` where the tokens' slots
// and positions begin. A token's keys, as KV_HEADS x DIM floats, begin at float token * K_STRIDE + K_OFFSET of k, its values
// likewise in v; HAS_VALUES 0: there are none.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> k : array<f32>;
#if KV_HALF
@group(0) @binding(2) var<storage, read_write> keys : array<u32>;
#else
@group(0) @binding(2) var<storage, read_write> keys : array<f32>;
#endif
#if HAS_VALUES
@group(0) @binding(3) var<storage, read> v : array<f32>;
#if KV_HALF
@group(0) @binding(4) var<storage, read_write> values : array<u32>;
#else
@group(0) @binding(4) var<storage, read_write> values : array<f32>;
#endif
#endif
#include "kv.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let token = group.y;
  let i = group.x * ${THREADS}u + t;
  if (i >= ${KV_HEADS * KV_WORDS}u) {
    return;
  }
  let head = i / ${KV_WORDS}u;
  let word = i % ${KV_WORDS}u;
  let to = kv_row(step[${SLOTS}u + token], head, step[${POSITIONS}u + token]) + word;
  let from_k = token * ${K_STRIDE}u + ${K_OFFSET}u;
#if KV_HALF
  keys[to] = pack2x16float(vec2f(k[from_k + 2u * i], k[from_k + 2u * i + 1u]));
#else
  keys[to] = k[from_k + i];
#endif
#if HAS_VALUES
  let from_v = token * ${V_STRIDE}u + ${V_OFFSET}u;
#if KV_HALF
  values[to] = pack2x16float(vec2f(v[from_v + 2u * i], v[from_v + 2u * i + 1u]));
#else
  values[to] = v[from_v + i];
#endif
#endif
}
