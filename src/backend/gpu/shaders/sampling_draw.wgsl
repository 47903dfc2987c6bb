// The drawn token: the places that decide are looked for one after the other, each among the tokens of its
// bucket, whose range of scores is narrowed until few are left. One workgroup.
#include "sampling_parameters.wgsl"
@group(0) @binding(0) var<storage, read> parameters : array<Parameters>;
@group(0) @binding(1) var<storage, read> histogram : array<u32>;
@group(0) @binding(2) var<storage, read> candidates : array<vec4u>;
@group(0) @binding(3) var<storage, read_write> state : array<u32>;
@group(0) @binding(4) var<storage, read_write> marks : array<vec2u>;
@group(0) @binding(5) var<storage, read_write> window : array<u32>;
@group(0) @binding(6) var<storage, read_write> chosen : array<u32>;
#if GUESSED
@group(0) @binding(7) var<storage, read> step : array<u32>;
#endif
#include "sampling_buckets.wgsl"
#include "sampling_accept.wgsl"

// PARTS of a range that are summed at a time; FEW tokens that are compared one by one.
#define PARTS THREADS
#define FEW 64
var<workgroup> part_low : array<atomic<u32>, ${PARTS}>;
var<workgroup> part_high : array<atomic<u32>, ${PARTS}>;
var<workgroup> part_count : array<atomic<u32>, ${PARTS}>;
var<workgroup> least_keys : array<vec2u, ${THREADS}>;
var<workgroup> most_keys : array<vec2u, ${THREADS}>;
var<workgroup> few : array<vec4u, ${FEW}>;
var<workgroup> few_weights : array<vec2u, ${FEW}>;
var<workgroup> few_count : atomic<u32>;
// Of the place that is looked for: the range of ranks that may hold it, mass and tokens before that range, and at last the
// mass up to the place and its token.
var<workgroup> range_low : vec2u;
var<workgroup> range_high : vec2u;
var<workgroup> before_mass : vec2u;
var<workgroup> before_count : u32;
var<workgroup> place_mass : vec2u;
var<workgroup> place_id : u32;
var<workgroup> width : vec2u;     // highest - lowest rank
var<workgroup> inside : u32;      // tokens in the range
var<workgroup> listed : u32;      // candidates
var<workgroup> all_tokens : u32;  // in the histogram

fn id_of(candidate : vec4u) -> u32 {
  return candidate.z & 0x3fffffu;
}

// A candidate's place in the order: how far its score's key is below the largest, then its id.
fn rank_of(candidate : vec4u, by_id : bool) -> vec2u {
  return select(candidate.xy, vec2u(0u, id_of(candidate)), by_id);
}

// Four candidates a turn, because their loads take the time; those beyond the last (n are listed) lie in the bucket
// that stays empty.
const kNobody = vec4u(0xffffffffu);
struct Four {
  a : vec4u,
  b : vec4u,
  c : vec4u,
  d : vec4u,
}
fn load_four(i : u32, n : u32) -> Four {
  let last = n - 1u;
  var four = Four(candidates[base + i], candidates[base + min(i + ${THREADS}u, last)], candidates[base + min(i + ${2 * THREADS}u, last)],
                  candidates[base + min(i + ${3 * THREADS}u, last)]);
  if (i + ${THREADS}u > last) { four.b = kNobody; }
  if (i + ${2 * THREADS}u > last) { four.c = kNobody; }
  if (i + ${3 * THREADS}u > last) { four.d = kNobody; }
  return four;
}
fn rotated(four : Four) -> Four {
  return Four(four.b, four.c, four.d, four.a);
}

// Where a place is looked for at the moment: a bucket and a range of ranks in it.
struct Stage {
  bucket : u32,
  by_id : bool,    // all that are left have the score `equal`, and rank by id
  equal : vec2u,
  low : vec2u,     // least rank
  high : vec2u,    // largest rank
}
fn takes_part(candidate : vec4u, s : Stage) -> bool {
  if ((candidate.z >> 22u) != s.bucket || (s.by_id && !equal64(candidate.xy, s.equal))) { return false; }
  let rank = rank_of(candidate, s.by_id);
  return !less64(rank, s.low) && !less64(s.high, rank);
}

// Finds the lowest and the highest rank and the number of those that take part: least_keys[0], most_keys[0],
// inside.
fn measure(s : Stage, n : u32, t : u32) {
  var least = vec2u(0xffffffffu);
  var most = vec2u(0u);
  var count = 0u;
  for (var i = t; i < n; i += ${4 * THREADS}u) {
    var four = load_four(i, n);
    for (var k = 0u; k < 4u; k += 1u) {
      let candidate = four.a;
      four = rotated(four);
      if (!takes_part(candidate, s)) { continue; }
      let rank = rank_of(candidate, s.by_id);
      least = min64(least, rank);
      most = max64(most, rank);
      count += 1u;
    }
  }
  workgroupBarrier();
  least_keys[t] = least;
  most_keys[t] = most;
  count_sums[t] = count;
  for (var reach = ${THREADS / 2}u; reach > 0u; reach >>= 1u) {
    workgroupBarrier();
    if (t < reach) {
      least = min64(least, least_keys[t + reach]);
      most = max64(most, most_keys[t + reach]);
      count += count_sums[t + reach];
      least_keys[t] = least;
      most_keys[t] = most;
      count_sums[t] = count;
    }
  }
  if (t == 0u) {
    inside = count;
    width = sub64(most, least);
  }
  atomicStore(&part_low[t], 0u);
  atomicStore(&part_high[t], 0u);
  atomicStore(&part_count[t], 0u);
  if (t == 0u) { atomicStore(&few_count, 0u); }
  workgroupBarrier();
}

// Narrows the range to that of its PARTS parts in which the goal is reached, a mass or (by_count) a number of tokens.
fn narrow(s : Stage, n : u32, goal : vec2u, by_count : bool, t : u32) {
  let least = least_keys[0];
  let bits = 64u - leading_zeros64(sub64(most_keys[0], least));
  let shift = max(bits, 8u) - 8u;  // PARTS has 9 bits
  for (var i = t; i < n; i += ${4 * THREADS}u) {
    var four = load_four(i, n);
    for (var k = 0u; k < 4u; k += 1u) {
      let candidate = four.a;
      four = rotated(four);
      if (!takes_part(candidate, s)) { continue; }
      let part = right64(sub64(rank_of(candidate, s.by_id), least), shift).y;
      let weight = weight_of(candidate.w);
      let old = atomicAdd(&part_low[part], weight.y);
      let high = weight.x + u32(old + weight.y < old);
      if (high != 0u) { atomicAdd(&part_high[part], high); }
      atomicAdd(&part_count[part], 1u);
    }
  }
  workgroupBarrier();
  let start_mass = before_mass;
  let start_count = before_count;
  let part_mass = vec2u(atomicLoad(&part_high[t]), atomicLoad(&part_low[t]));
  let own = scan_sums(part_mass, atomicLoad(&part_count[t]), t);
  let lower = select(add64(start_mass, own.mass_before), vec2u(0u, start_count + own.count_before), by_count);
  let upper = select(add64(start_mass, own.mass_with), vec2u(0u, start_count + own.count_with), by_count);
  if (less64(lower, goal) && !less64(upper, goal)) {
    range_low = add64(least, left64(vec2u(0u, t), shift));
    range_high = add64(range_low, sub64(left64(vec2u(0u, 1u), shift), vec2u(0u, 1u)));
    before_mass = add64(start_mass, own.mass_before);
    before_count = start_count + own.count_before;
  }
  workgroupBarrier();
}

// Compares the few that are left with each other.
fn finish(s : Stage, n : u32, goal : vec2u, by_count : bool, t : u32) {
  for (var i = t; i < n; i += ${4 * THREADS}u) {
    var four = load_four(i, n);
    for (var k = 0u; k < 4u; k += 1u) {
      let candidate = four.a;
      four = rotated(four);
      if (!takes_part(candidate, s)) { continue; }
      let at = atomicAdd(&few_count, 1u);
      few[at] = candidate;
      few_weights[at] = weight_of(candidate.w);
    }
  }
  workgroupBarrier();
  let count = atomicLoad(&few_count);
  if (t < count) {
    let own = few[t];
    var mass = before_mass;
    var tokens = before_count;
    for (var j = 0u; j < count; j += 1u) {
      let other = few[j];
      if (less64(other.xy, own.xy) || (equal64(other.xy, own.xy) && id_of(other) <= id_of(own))) {
        mass = add64(mass, few_weights[j]);
        tokens += 1u;
      }
    }
    let here = select(!less64(mass, goal) && less64(sub64(mass, few_weights[t]), goal), tokens == goal.y, by_count);
    if (here) {
      place_mass = mass;
      place_id = id_of(own);
    }
  }
  workgroupBarrier();
}

// Finds the place in found[0]'s bucket at which the mass, or the number of tokens, reaches the goal.
fn reach_goal(n : u32, goal : vec2u, by_count : bool, t : u32) {
  var s = Stage(found[0].bucket, false, vec2u(0u), vec2u(0u), vec2u(0xffffffffu));
  if (t == 0u) {
    before_mass = found[0].mass;
    before_count = found[0].count;
  }
  // Each turn takes 8 bits of the range's width away, of 64 bits of scores and 22 of ids, or goes on from
  // those to these.
  for (var turn = 0u; turn < 13u; turn += 1u) {
    measure(s, n, t);
    if (workgroupUniformLoad(&inside) <= ${FEW}u) { break; }
    if (zero64(workgroupUniformLoad(&width))) {
      s.by_id = true;
      s.equal = least_keys[0];
      s.low = vec2u(0u);
      s.high = vec2u(0xffffffffu);
    } else {
      narrow(s, n, goal, by_count, t);
      s.low = range_low;
      s.high = range_high;
    }
  }
  finish(s, n, goal, by_count, t);
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let own = parameters[group.y].listed;
  begin_row(own);
  scan_buckets(t);
  if (t == 0u) {
    listed = select(0u, state[own_state + kCandidates], state[own_state + kDraws] != 0u);
    all_tokens = count_sums[${THREADS - 1}];
    place_id = 0xffffffffu;
    place_mass = mass_sums[${THREADS - 1}];
  }
  let n = workgroupUniformLoad(&listed);
  let bounded = parameters[own].top_k != 0u && workgroupUniformLoad(&all_tokens) > parameters[own].top_k;
  let share = vec2u(state[own_state + kShareHigh], state[own_state + kShareLow]);
  // The k-th token, top-p's last and the drawn one; each leaves the mass that the next is a part of. One loop,
  // because compilers write out each call.
  for (var i = 0u; i < 3u; i += 1u) {
    if ((i == 0u && !bounded) || (i == 1u && parameters[own].has_top_p == 0u)) { continue; }
    let whole = place_mass;
    var goal = vec2u(0u, parameters[own].top_k);
    if (i == 0u) {
      find_count(parameters[own].top_k, 0u, t);
    } else {
      goal = enough_of(whole);
      if (i == 2u) { goal = goal_of(share, kept_of(whole)); }
      find_mass(goal, 0u, t);
    }
    workgroupBarrier();
    reach_goal(n, goal, i == 0u, t);
  }
  if (t == 0u) { accept(select(0xffffffffu, place_id, state[own_state + kDraws] != 0u)); }
}
