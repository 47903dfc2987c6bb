// Sums and maxima over a workgroup of THREADS threads, in an order that depends on nothing but THREADS and the device's
// SUBGROUPS and SUBGROUP_SIZE: by shuffles within subgroups, or through workgroup memory. t: the thread's number.
#define REDUCE_SLOTS (THREADS + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE
var<workgroup> reduce_slots : array<vec4f, ${REDUCE_SLOTS}>;  // a subgroup's sum or maximum each
#if SUBGROUPS && THREADS % SUBGROUP_SIZE == 0
fn subgroup_sum(value : vec4f) -> vec4f {
  var v = value;
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
  v += subgroupShuffleXor(v, ${1 << k}u);
#endif
#endfor
  return v;
}
fn subgroup_max(value : f32) -> f32 {
  var v = value;
#for k in 0..8
#if (1 << k) < SUBGROUP_SIZE
  v = max(v, subgroupShuffleXor(v, ${1 << k}u));
#endif
#endfor
  return v;
}
// Every thread gets the sum over all. For kernels that reduce once only: its memory must not be used again before another
// barrier.
fn workgroup_sum_once(value : vec4f, t : u32) -> vec4f {
  let mine = subgroup_sum(value);
  if (t % ${SUBGROUP_SIZE}u == 0u) {
    reduce_slots[t / ${SUBGROUP_SIZE}u] = mine;
  }
  workgroupBarrier();
  var total = vec4f(0.0);
#for s in 0..REDUCE_SLOTS
  total += reduce_slots[${s}];
#endfor
  return total;
}
// The same; ends with memory that the next call may use.
fn workgroup_sum(value : vec4f, t : u32) -> vec4f {
  let total = workgroup_sum_once(value, t);
  workgroupBarrier();
  return total;
}
fn workgroup_max(value : f32, t : u32) -> f32 {
  let mine = subgroup_max(value);
  if (t % ${SUBGROUP_SIZE}u == 0u) {
    reduce_slots[t / ${SUBGROUP_SIZE}u].x = mine;
  }
  workgroupBarrier();
  var most = reduce_slots[0].x;
#for s in 1..REDUCE_SLOTS
  most = max(most, reduce_slots[${s}].x);
#endfor
  workgroupBarrier();
  return most;
}
#else
var<workgroup> reduce_all : array<vec4f, ${THREADS}>;
fn workgroup_sum(value : vec4f, t : u32) -> vec4f {
  reduce_all[t] = value;
  workgroupBarrier();
  for (var width = ${THREADS}u; width > 1u;) {
    let half = (width + 1u) / 2u;
    if (t < width - half) {
      reduce_all[t] += reduce_all[t + half];
    }
    workgroupBarrier();
    width = half;
  }
  let total = reduce_all[0];
  workgroupBarrier();
  return total;
}
fn workgroup_sum_once(value : vec4f, t : u32) -> vec4f {
  return workgroup_sum(value, t);
}
fn workgroup_max(value : f32, t : u32) -> f32 {
  reduce_all[t].x = value;
  workgroupBarrier();
  for (var width = ${THREADS}u; width > 1u;) {
    let half = (width + 1u) / 2u;
    if (t < width - half) {
      reduce_all[t].x = max(reduce_all[t].x, reduce_all[t + half].x);
    }
    workgroupBarrier();
    width = half;
  }
  let most = reduce_all[0].x;
  workgroupBarrier();
  return most;
}
#endif
