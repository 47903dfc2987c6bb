// The likeliest token; of equals the lowest id. One workgroup, with a thread for each workgroup of the scan.
#include "sampling_parameters.wgsl"
#include "sampling_u64.wgsl"
#include "sampling_partial.wgsl"
@group(0) @binding(0) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(1) var<storage, read> partials : array<Partial>;
@group(0) @binding(2) var<storage, read_write> state : array<u32>;
@group(0) @binding(3) var<storage, read_write> marks : array<vec2u>;
@group(0) @binding(4) var<storage, read_write> window : array<u32>;
@group(0) @binding(5) var<storage, read_write> chosen : array<u32>;
#if GUESSED
@group(0) @binding(6) var<storage, read> step : array<u32>;
#endif
#include "sampling_accept.wgsl"

var<workgroup> largest_keys : array<vec2u, ${THREADS}>;
var<workgroup> largest_ids : array<u32, ${THREADS}>;
var<workgroup> any_bad : atomic<u32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[parameters[0].drawn + group.y].listed);
  if (t == 0u) { atomicStore(&any_bad, 0u); }
  workgroupBarrier();
  var largest = vec2u(0u);
  var id = 0xffffffffu;
  if (t < parameters[row].groups) {
    largest = partials[own_partials + t].largest;
    id = partials[own_partials + t].id;
    if (partials[own_partials + t].bad != 0u) { atomicOr(&any_bad, 1u); }
  }
  largest_keys[t] = largest;
  largest_ids[t] = id;
  for (var width = ${THREADS / 2}u; width > 0u; width >>= 1u) {
    workgroupBarrier();
    if (t < width) {
      let key = largest_keys[t + width];
      let other = largest_ids[t + width];
      if (less64(largest, key) || (equal64(largest, key) && other < id)) {
        largest = key;
        id = other;
        largest_keys[t] = key;
        largest_ids[t] = other;
      }
    }
  }
  if (t == 0u) { accept(select(id, 0xffffffffu, zero64(largest) || atomicLoad(&any_bad) != 0u)); }
}
