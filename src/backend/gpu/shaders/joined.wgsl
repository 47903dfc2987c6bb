// Kernels of a token in one dispatch: a product whose prologue adds another product's result to the residual stream, which it waits
// for; products beside one another, which multiply the same by matrices of several formats; or all of these. Workgroups that wait load their weights while
// the others compute, and there is one launch instead of several. A value that is handed over is its own flag:
// 0 is none yet (a result that is 0 becomes -0). So no ordering of memory is asked for, only that workgroups of lower
// numbers begin first, which holds on the GPUs that decode_join.cpp lists. A workgroup that waits in vain gives up with NaN.
// Source: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).
//
// Template values (joint.cpp): first.*, second.*, third.* those of the products (gemv.wgsl), with HANDS_OVER and TAKES_OVER 1 where they do; FIRST workgroups of the
// first, which hands over, or 0; SECOND of the second; BESIDE 1: the others are the third's, which needs what the second does; THREADS of each;
// with FIRST: HANDED values that are handed over, a multiple of 4; WORDS to be cleared; TRIES after which a workgroup gives up; FIRST_ROWS of a workgroup of the first; FIRST_SUMS 1: the
// first is expert_out.wgsl.
// handed: where they are; cleared: what the dispatch that was like this one before has left, to be 0 when it comes again.
#if FIRST
@group(0) @binding(96) var<storage, read_write> handed : array<atomic<u32>>;
@group(0) @binding(97) var<storage, read_write> cleared : array<atomic<u32>>;

// Where value number `row` is: all first values of vectors of four, then all second ones, and so on, so that threads beside one
// another ask for words beside one another (H100, Llama's down with q, k, v: 10.4 us with the values in order, 10.0 so).
fn place_of(row : u32) -> u32 {
  return (row & 3u) * ${HANDED / 4}u + (row >> 2u);
}
fn hand_over(row : u32, value : f32) {
  let bits = bitcast<u32>(value);
  atomicStore(&handed[place_of(row)], select(bits, 0x80000000u, bits == 0u));
}
fn handed_vec(v : u32) -> vec4f {
  var bits = vec4u(0u);
  for (var tries = 0u; tries < ${TRIES}u; tries += 1u) {
    bits = vec4u(atomicLoad(&handed[v]), atomicLoad(&handed[v + ${HANDED / 4}u]), atomicLoad(&handed[v + ${HANDED / 2}u]),
        atomicLoad(&handed[v + ${HANDED / 4 * 3}u]));
    if (all(bits != vec4u(0u))) {
      break;
    }
  }
  return bitcast<vec4f>(select(bits, vec4u(0x7fc00000u), bits == vec4u(0u)));
}
// Waits until a few workgroups of the first have handed over their last value, others for each workgroup that waits. The rest
// come about then, and handed_vec sees to them: all that polled for all that they need would keep the memory busy that the
// first works with (H100, Gemma's output with gates and ups: 16.0 us so, 12.5 apart; each polling 72 values 10.9, 4 values 10.5).
var<private> waiting : u32;  // the number of the workgroup among those that wait
#define POLLS 4
fn await_handed(t : u32) {
  if (t < ${min(POLLS, FIRST)}u) {
    let group = (t * ${FIRST}u / ${POLLS}u + waiting) % ${FIRST}u;
    let at = place_of(min(group * ${FIRST_ROWS}u + ${FIRST_ROWS - 1}u, ${HANDED - 1}u));
    for (var tries = 0u; tries < ${TRIES}u; tries += 1u) {
      if (atomicLoad(&handed[at]) != 0u) {
        break;
      }
    }
  }
  workgroupBarrier();
}
#if FIRST_SUMS
#module first "expert_out.wgsl"
#else
#module first "gemv.wgsl"
#endif
#endif
#module second "gemv.wgsl"
#if BESIDE
#module third "gemv.wgsl"
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
#if FIRST
  if (group.x < ${FIRST}u) {
    first_main(group, t);
    // Who has made the first's result has time: who waits for it has none.
    for (var i = group.x * ${THREADS}u + t; i < ${WORDS}u; i += ${FIRST * THREADS}u) {
      atomicStore(&cleared[i], 0u);
    }
    return;
  }
  waiting = group.x - ${FIRST}u;
#endif
#if BESIDE
  if (group.x >= ${FIRST + SECOND}u) {
    third_main(vec3u(group.x - ${FIRST + SECOND}u, group.y, group.z), t);
    return;
  }
#endif
  second_main(vec3u(group.x - ${FIRST}u, group.y, group.z), t);
}
