// The sum over the LANES threads of each row, for the threads t < R; rows lie at t % R. (R, LANES: see gemv.wgsl.) Where a workgroup
// has rows of several PLACES, LANES * R threads for each, thread t < PLACES * R gets the sum of row t % R of place t / R.
// Adds two values at a time, neighbours first, then neighbouring pairs, and so on (docs/kernels.md: one order of sums), whatever R
// is. SHUFFLES 1: a subgroup first adds up its own threads of a row, which leaves ROW_PARTS sums.
#default PLACES 1
#define SHUFFLES SUBGROUPS && R < SUBGROUP_SIZE && SUBGROUP_SIZE % R == 0 && (R * LANES) % SUBGROUP_SIZE == 0
#if SHUFFLES
#define ROW_PARTS R * LANES / SUBGROUP_SIZE
#else
#define ROW_PARTS LANES
#endif
#define GATHERS ROW_PARTS * PLACES > 1
#if GATHERS
var<workgroup> row_parts : array<vec2f, ${PLACES * ROW_PARTS * R}>;  // [place][part][row]
#endif
fn row_sum(value : vec2f, t : u32) -> vec2f {
  var v = value;
#if SHUFFLES
#for k in 0..8
#if (1 << k) >= R && (1 << k) < SUBGROUP_SIZE
  v += subgroupShuffleXor(v, ${1 << k}u);
#endif
#endfor
#if GATHERS
  if (t % ${SUBGROUP_SIZE}u < ${R}u) {
    row_parts[(t / ${SUBGROUP_SIZE}u) * ${R}u + t % ${SUBGROUP_SIZE}u] = v;
  }
#endif
#elif GATHERS
  row_parts[t] = v;
#endif
#if GATHERS
  workgroupBarrier();
  v = vec2f(0.0);
  if (t < ${PLACES * R}u) {
    let at = t / ${R}u * ${ROW_PARTS * R}u + t % ${R}u;
#for i in 0..ROW_PARTS
    let part_${i} = row_parts[at + ${i * R}u];
#sum part, i, ROW_PARTS
#endfor
    v = part;
  }
#endif
  return v;
}
