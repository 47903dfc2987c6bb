// Sums over the histogram, four buckets a thread, and the bucket in which a sum is reached.
#include "sampling_weight.wgsl"
struct Found {
  bucket : u32,
  count : u32,        // tokens of the buckets before it
  own_count : u32,
  mass : vec2u,       // of the buckets before it, in units of 2^-42
  own_mass : vec2u,
}
#define PER_THREAD BUCKETS / THREADS
var<workgroup> mass_sums : array<vec2u, ${THREADS}>;
var<workgroup> count_sums : array<u32, ${THREADS}>;
var<workgroup> found : array<Found, 5>;  // sampling_collect.wgsl says which; sampling_draw.wgsl: 0

// Sums over the threads before and up to each.
struct Sums {
  mass_before : vec2u,
  mass_with : vec2u,
  count_before : u32,
  count_with : u32,
}
// All threads call it; the whole is in mass_sums and count_sums of the last thread then.
fn scan_sums(own_mass : vec2u, own_count : u32, t : u32) -> Sums {
  var mass = own_mass;
  var count = own_count;
  workgroupBarrier();
  mass_sums[t] = mass;
  count_sums[t] = count;
  for (var back = 1u; back < ${THREADS}u; back <<= 1u) {
    workgroupBarrier();
    if (t >= back) {
      mass = add64(mass, mass_sums[t - back]);
      count += count_sums[t - back];
    }
    workgroupBarrier();
    mass_sums[t] = mass;
    count_sums[t] = count;
  }
  workgroupBarrier();
  return Sums(sub64(mass, own_mass), mass, count - own_count, count);
}

// The thread's buckets and their place in the sums.
var<private> masses : array<vec2u, ${PER_THREAD}>;
var<private> counts : array<u32, ${PER_THREAD}>;
var<private> sums : Sums;

fn scan_buckets(t : u32) {
  var mass = vec2u(0u);
  var count = 0u;
#for i in 0..PER_THREAD
  masses[${i}] = vec2u(histogram[own_histogram + t * ${PER_THREAD}u + ${BUCKETS + i}u], histogram[own_histogram + t * ${PER_THREAD}u + ${i}u]);
  counts[${i}] = histogram[own_histogram + t * ${PER_THREAD}u + ${2 * BUCKETS + i}u];
  mass = add64(mass, masses[${i}]);
  count += counts[${i}];
#endfor
  sums = scan_sums(mass, count, t);
}

// Notes in found[slot] the bucket with which the mass reaches `goal`, 1 or more and at most the whole. Visible
// after the next barrier.
fn find_mass(goal : vec2u, slot : u32, t : u32) {
  if (!less64(sums.mass_before, goal) || less64(sums.mass_with, goal)) { return; }
  var mass = sums.mass_before;
  var count = sums.count_before;
#for i in 0..PER_THREAD
  if (less64(mass, goal) && !less64(add64(mass, masses[${i}]), goal)) {
    found[slot] = Found(t * ${PER_THREAD}u + ${i}u, count, counts[${i}], mass, masses[${i}]);
  }
  mass = add64(mass, masses[${i}]);
  count += counts[${i}];
#endfor
}
// The same for a number of tokens.
fn find_count(goal : u32, slot : u32, t : u32) {
  if (sums.count_before >= goal || sums.count_with < goal) { return; }
  var mass = sums.mass_before;
  var count = sums.count_before;
#for i in 0..PER_THREAD
  if (count < goal && count + counts[${i}] >= goal) {
    found[slot] = Found(t * ${PER_THREAD}u + ${i}u, count, counts[${i}], mass, masses[${i}]);
  }
  mass = add64(mass, masses[${i}]);
  count += counts[${i}];
#endfor
}

// The mass that top-p wants of a whole: the likeliest alone at least. Rounded down, so that 0.9 of ten equal
// tokens are nine, though the double 0.9 is a little more.
fn enough_of(whole : vec2u) -> vec2u {
  return max64(mul64(parameters[row].top_p, whole).high, vec2u(0u, 1u));
}
// The first mass above the draw's share of a whole.
fn goal_of(share : vec2u, whole : vec2u) -> vec2u {
  return increment64(mul64(share, whole).high);
}
// Less than a whole where `keep` cuts it.
fn kept_of(whole : vec2u) -> vec2u {
  if (parameters[row].has_keep == 0u) { return whole; }
  return min64(whole, vec2u(histogram[own_histogram + ${3 * BUCKETS + 1}], histogram[own_histogram + ${3 * BUCKETS}]));
}
