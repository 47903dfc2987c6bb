// How much the tokens of each bucket weigh, and how many they are; also the draw itself. Workgroups: x over `chunk` tokens
// each; a workgroup's own histogram (local) is added to that of all.
#include "sampling_parameters.wgsl"
#include "sampling_weight.wgsl"
#include "sampling_philox.wgsl"
#include "sampling_partial.wgsl"
#include "sampling_logits.wgsl"
@group(0) @binding(1) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(2) var<storage, read> marks : array<vec2u>;
@group(0) @binding(3) var<storage, read> keys : array<vec2u>;
@group(0) @binding(4) var<storage, read> partials : array<Partial>;
@group(0) @binding(5) var<storage, read_write> histogram : array<atomic<u32>>;
@group(0) @binding(6) var<storage, read_write> state : array<u32>;
#include "sampling_score.wgsl"

var<workgroup> local : array<atomic<u32>, ${HISTOGRAM_WORDS}>;
var<workgroup> pairs : array<vec2u, ${THREADS}>;
var<workgroup> any_bad : atomic<u32>;

// Adds a 64-bit value to the words low_at and high_at; add_global: the workgroup's sum there to that of all.
fn add_local(low_at : u32, high_at : u32, value : vec2u) {
  let before = atomicAdd(&local[low_at], value.y);
  let high = value.x + u32(before + value.y < before);
  if (high != 0u) { atomicAdd(&local[high_at], high); }
}
fn add_global(low_at : u32, high_at : u32) {
  let value = vec2u(atomicLoad(&local[high_at]), atomicLoad(&local[low_at]));
  if (zero64(value)) { return; }
  let before = atomicAdd(&histogram[own_histogram + low_at], value.y);
  let high = value.x + u32(before + value.y < before);
  if (high != 0u) { atomicAdd(&histogram[own_histogram + high_at], high); }
}

// The largest of all threads' values.
fn workgroup_largest(value : vec2u, t : u32) -> vec2u {
  var largest = value;
  workgroupBarrier();
  pairs[t] = value;
  for (var width = ${THREADS / 2}u; width > 0u; width >>= 1u) {
    workgroupBarrier();
    if (t < width) {
      largest = max64(largest, pairs[t + width]);
      pairs[t] = largest;
    }
  }
  workgroupBarrier();
  return pairs[0];
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[group.y].listed);
  for (var i = t; i < ${HISTOGRAM_WORDS}u; i += ${THREADS}u) { atomicStore(&local[i], 0u); }
  if (t == 0u) { atomicStore(&any_bad, 0u); }
  workgroupBarrier();
  var largest = vec2u(0u);
  var smallest = vec2u(0xffffffffu);
  if (t < parameters[row].groups) {
    largest = partials[own_partials + t].largest;
    smallest = partials[own_partials + t].smallest;
    if (partials[own_partials + t].bad != 0u) { atomicOr(&any_bad, 1u); }
  }
  largest = workgroup_largest(largest, t);
  smallest = ~workgroup_largest(~smallest, t);
  let draws = !zero64(largest) && atomicLoad(&any_bad) == 0u;
  let top = unpack(double_of_key(largest));
  let cut = unpack(parameters[row].cut);
  let keep = unpack(parameters[row].keep);
  let rate = unpack(parameters[row].rate);
  var span = distance_of(top, smallest);
  if (not_above(cut, span)) { span = cut; }
  let ruler = ruler_of(span);
  let end = select(0u, min((group.x + 1u) * parameters[row].chunk, parameters[row].vocab), draws);
  for (var first = group.x * parameters[row].chunk + 4u * t; first < end; first += ${4 * THREADS}u) {
    var four = four_logits(first);
    for (var i = first; i < min(first + 4u, end); i += 1u) {
      let key = score_key(i, four.x);
      four = four.yzwx;
      if (zero64(key)) { continue; }
      let distance = distance_of(top, key);
      if (!not_above(distance, cut)) { continue; }
      let bucket = bucket_of(distance, ruler);
      let weight = weight_of(halvings(distance, rate));
      add_local(bucket, bucket + ${BUCKETS}u, weight);
      if (parameters[row].top_k != 0u) { atomicAdd(&local[bucket + ${2 * BUCKETS}u], 1u); }
      if (parameters[row].has_keep != 0u && not_above(distance, keep)) {
        add_local(${3 * BUCKETS}u, ${3 * BUCKETS + 1}u, weight);
      }
    }
  }
  workgroupBarrier();
  for (var b = t; b < ${BUCKETS}u; b += ${THREADS}u) {
    add_global(b, b + ${BUCKETS}u);
    let count = atomicLoad(&local[b + ${2 * BUCKETS}u]);
    if (count != 0u) { atomicAdd(&histogram[own_histogram + b + ${2 * BUCKETS}u], count); }
  }
  if (t == 0u) { add_global(${3 * BUCKETS}u, ${3 * BUCKETS + 1}u); }
  if (group.x == 0u && t == 0u) {
    let share = uniform_share(parameters[row].seed, vec2u(state[own_state + kDrawHigh], state[own_state + kDrawLow]));
    state[own_state + kCandidates] = 0u;
    state[own_state + kDraws] = u32(draws);
    state[own_state + kLargestHigh] = largest.x;
    state[own_state + kLargestLow] = largest.y;
    state[own_state + kExponent] = bitcast<u32>(ruler.exponent);
    state[own_state + kFactor] = ruler.factor;
    state[own_state + kShareHigh] = share.x;
    state[own_state + kShareLow] = share.y;
  }
}
