// A team: TEAM neighbouring threads of the workgroup, which add up together without the others. A subgroup where it has eight
// threads or more, else 16 threads (enough that a head has few rounds, few enough that each reads all), through workgroup
// memory. With TOGETHER 1 every thread of the workgroup must make each call, because barriers are in it.
// Includer: THREADS, a multiple of TEAM; WIDEST_TEAM a power of two, 8 or more, beyond which threads would have nothing to add.
#define TOGETHER !(SUBGROUPS && SUBGROUP_SIZE >= 8)
#if TOGETHER
#define TEAM 16
var<workgroup> team_slots : array<f32, ${THREADS}>;
fn team_sum(value : f32, t : u32) -> f32 {
  workgroupBarrier();  // all have read what the call before left
  team_slots[t] = value;
  workgroupBarrier();
  let first = t & ~${TEAM - 1}u;
  var total = team_slots[first];
#for i in 1..TEAM
  total += team_slots[first + ${i}u];
#endfor
  return total;
}
#else
#define TEAM min(SUBGROUP_SIZE, WIDEST_TEAM)
fn team_sum(value : f32, t : u32) -> f32 {
  var total = value;
#for k in 0..8
#if (1 << k) < TEAM
  total += subgroupShuffleXor(total, ${1 << k}u);
#endif
#endfor
  return total;
}
#endif
