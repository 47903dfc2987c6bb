// Scores: penalties and biases on the logits of the tokens that have some, and each workgroup's largest and
// smallest score. Also empties the histogram. Workgroups: x over `chunk` tokens each.
#include "sampling_parameters.wgsl"
#include "sampling_double.wgsl"
#include "sampling_partial.wgsl"
#include "sampling_logits.wgsl"
@group(0) @binding(1) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(2) var<storage, read> marks : array<vec2u>;
@group(0) @binding(3) var<storage, read> biases : array<vec2u>;
@group(0) @binding(4) var<storage, read_write> keys : array<vec2u>;
@group(0) @binding(5) var<storage, read_write> partials : array<Partial>;
@group(0) @binding(6) var<storage, read_write> histogram : array<u32>;
#include "sampling_score.wgsl"

const kMinusInfinity = 0xfff00000u;  // high word of the double

// The key of a logit after penalties and bias. mark: how often the token counts as seen, and the number of its bias or 0.
fn adjusted_key(bits : u32, mark : vec2u) -> vec2u {
  if (bits == 0xff800000u) { return vec2u(0u); }
  var score = double_of_float(bits);
  if (mark.x != 0u) {
    if (parameters[row].has_repeat != 0u) {
      let positive = (score.x >> 31u) == 0u;
      if (positive) {
        score = div_double(score, parameters[row].repeat);
      } else {
        score = mul_double(score, parameters[row].repeat);
      }
    }
    let frequency = mul_double(parameters[row].frequency, double_of_count(mark.x));
    score = add_double(score, negated(add_double(parameters[row].presence, frequency)));
  }
  if (mark.y != 0u) {
    let bias = biases[parameters[row].biases_at + mark.y - 1u];
    if (bias.x == kMinusInfinity) { return vec2u(0u); }
    score = add_double(score, bias);
  }
  return key_of(score);
}

var<workgroup> largest_keys : array<vec2u, ${THREADS}>;
var<workgroup> largest_ids : array<u32, ${THREADS}>;
var<workgroup> smallest_keys : array<vec2u, ${THREADS}>;
var<workgroup> any_bad : atomic<u32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  begin_row(parameters[group.y].listed);
  if (t == 0u) { atomicStore(&any_bad, 0u); }
  workgroupBarrier();
  for (var i = group.x * ${THREADS}u + t; i < ${HISTOGRAM_WORDS}u; i += parameters[row].groups * ${THREADS}u) { histogram[own_histogram + i] = 0u; }
  var largest = vec2u(0u);
  var id = 0u;
  var smallest = vec2u(0xffffffffu);
  var bad = false;
  let end = min((group.x + 1u) * parameters[row].chunk, parameters[row].vocab);
  for (var first = group.x * parameters[row].chunk + 4u * t; first < end; first += ${4 * THREADS}u) {
    var four = four_logits(first);
    for (var i = first; i < min(first + 4u, end); i += 1u) {
      let bits = four.x;
      four = four.yzwx;
      bad = bad || bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u;
      var key = plain_key(bits);
      if (parameters[row].adjusts != 0u) {
        let mark = marks[base + i];
        if (any(mark != vec2u(0u))) {
          key = adjusted_key(bits, mark);
          keys[base + i] = key;
        }
      }
      if (less64(largest, key)) {
        largest = key;
        id = i;
      }
      if (!zero64(key)) { smallest = min64(smallest, key); }
    }
  }
  if (bad) { atomicOr(&any_bad, 1u); }
  largest_keys[t] = largest;
  largest_ids[t] = id;
  smallest_keys[t] = smallest;
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
      smallest = min64(smallest, smallest_keys[t + width]);
      smallest_keys[t] = smallest;
    }
  }
  if (t == 0u) { partials[own_partials + group.x] = Partial(largest, smallest, id, atomicLoad(&any_bad)); }
}
