// Finds the buckets in which the places that decide may lie (the k-th token, top-p's last, the drawn one) and
// lists their tokens. The mass before such a place is known only to within a bucket so far, so for each
// there are bounds; they are near each other, and so the buckets are few.
// found: 0 the bucket of the k-th token; 1, 2 the first and last that may hold top-p's last; 3, 4 those for the drawn one.
// Workgroups: x over `chunk` tokens each.
#include "sampling_parameters.wgsl"
#include "sampling_logits.wgsl"
@group(0) @binding(1) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(2) var<storage, read> marks : array<vec2u>;
@group(0) @binding(3) var<storage, read> keys : array<vec2u>;
@group(0) @binding(4) var<storage, read> histogram : array<u32>;
@group(0) @binding(5) var<storage, read_write> state : array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> candidates : array<vec4u>;
#include "sampling_buckets.wgsl"
#include "sampling_score.wgsl"

var<workgroup> carried : array<u32, kStateWords>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[group.y].listed);
  // For all the workgroup once: loads of atomics go past the caches.
  if (t < kStateWords) { carried[t] = atomicLoad(&state[own_state + t]); }
  scan_buckets(t);
  var least = mass_sums[${THREADS - 1}];
  var most = least;
  let bounded = parameters[row].top_k != 0u && count_sums[${THREADS - 1}] > parameters[row].top_k;
  if (bounded) { find_count(parameters[row].top_k, 0u, t); }
  workgroupBarrier();
  if (bounded) {
    least = found[0].mass;
    most = add64(least, found[0].own_mass);
  }
  if (parameters[row].has_top_p != 0u) {
    find_mass(enough_of(least), 1u, t);
    find_mass(enough_of(most), 2u, t);
  }
  workgroupBarrier();
  if (parameters[row].has_top_p != 0u) {
    least = min64(least, found[1].mass);
    most = min64(most, add64(found[2].mass, found[2].own_mass));
  }
  let share = vec2u(carried[kShareHigh], carried[kShareLow]);
  find_mass(goal_of(share, kept_of(least)), 3u, t);
  find_mass(goal_of(share, kept_of(most)), 4u, t);
  workgroupBarrier();

  let largest = vec2u(carried[kLargestHigh], carried[kLargestLow]);
  let ruler = Ruler(bitcast<i32>(carried[kExponent]), carried[kFactor]);
  let top = unpack(double_of_key(largest));
  let cut = unpack(parameters[row].cut);
  let rate = unpack(parameters[row].rate);
  let end = select(0u, min((group.x + 1u) * parameters[row].chunk, parameters[row].vocab), carried[kDraws] != 0u);
  for (var first = group.x * parameters[row].chunk + 4u * t; first < end; first += ${4 * THREADS}u) {
    var four = four_logits(first);
    for (var i = first; i < min(first + 4u, end); i += 1u) {
      let key = score_key(i, four.x);
      four = four.yzwx;
      if (zero64(key)) { continue; }
      let distance = distance_of(top, key);
      if (!not_above(distance, cut)) { continue; }
      let b = bucket_of(distance, ruler);
      if ((bounded && b == found[0].bucket) ||
          (parameters[row].has_top_p != 0u && b >= found[1].bucket && b <= found[2].bucket) ||
          (b >= found[3].bucket && b <= found[4].bucket)) {
        // Ids have 22 bits and buckets 10.
        let at = atomicAdd(&state[own_state + kCandidates], 1u);
        candidates[base + at] = vec4u(sub64(largest, key), i | (b << 22u), halvings(distance, rate));
      }
    }
  }
}
