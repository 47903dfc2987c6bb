// Takes the token that was chosen, by the head's workgroups (GREEDY: the likeliest of their candidates) or by the sampler,
// appends it to the ring of results and makes it the next step's: id, position, count, and with EMBEDS its embedding (embed_row.wgsl), too, which
// saves that step a dispatch. Workgroups: one, or x over the embedding's width; each finds the token by itself.
// Template values (decode_builder.cpp): CANDIDATES their number, each as in head.wgsl; VOCAB tokens; RING words of the ring;
// COUNTED, IDS, POSITIONS words of `step`: tokens in the ring so far, the id, the position. Token 0xffffffff: none could be
// chosen.
@group(0) @binding(0) var<storage, read_write> step : array<u32>;
@group(0) @binding(1) var<storage, read_write> ring : array<u32>;
#if GREEDY
@group(0) @binding(2) var<storage, read> candidates : array<vec2u>;
#include "best_of_workgroup.wgsl"
#else
@group(0) @binding(2) var<storage, read> chosen : array<u32>;
#endif
#default EMBEDS 0
#if EMBEDS
@group(0) @binding(3) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(4) var<storage, read> scales : array<u32>;
#endif
@group(0) @binding(5) var<storage, read_write> out : array<vec4f>;
#include "embed_row.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
#if GREEDY
  var best = -3.4e38;
  var best_row = 0xffffffffu;
  for (var i = t; i < ${CANDIDATES}u; i += ${THREADS}u) {
    let candidate = candidates[i];
    let value = bitcast<f32>(candidate.x);
    if (value > best || (value == best && candidate.y < best_row)) {
      best = value;
      best_row = candidate.y;
    }
  }
  best_values[t] = best;
  best_rows[t] = best_row;
  find_best_of_workgroup(t);
  let token = select(best_rows[0], 0xffffffffu, best_rows[0] >= ${VOCAB}u);
#else
  let token = chosen[0];
#endif
  let id = min(token, ${VOCAB - 1}u);
  if (group.x == 0u && t == 0u) {
    ring[step[${COUNTED}] % ${RING}u] = token;
    step[${COUNTED}] += 1u;
    step[${IDS}u] = id;
    step[${POSITIONS}u] += 1u;
  }
#if EMBEDS
  put_embedding(0u, id, group.x * ${THREADS}u + t);
#endif
}
