// The sum over the LANES threads of each row, for the threads t < R. Rows lie at t % R. (R, LANES: see gemv.wgsl.)
// Adds two values at a time. SHUFFLES 1: a subgroup first adds up its own threads of a row, which leaves ROW_PARTS sums.
#define SHUFFLES SUBGROUPS && R < SUBGROUP_SIZE && SUBGROUP_SIZE % R == 0 && (R * LANES) % SUBGROUP_SIZE == 0
#if SHUFFLES
#define ROW_PARTS R * LANES / SUBGROUP_SIZE
#else
#define ROW_PARTS LANES
#endif
#if ROW_PARTS > 1
var<workgroup> row_parts : array<vec2f, ${ROW_PARTS * R}>;  // [part][row]
#endif
fn row_sum(value : vec2f, t : u32) -> vec2f {
  var v = value;
#if SHUFFLES
#for k in 0..8
#if (1 << k) >= R && (1 << k) < SUBGROUP_SIZE
  v += subgroupShuffleXor(v, ${1 << k}u);
#endif
#endfor
#if ROW_PARTS > 1
  if (t % ${SUBGROUP_SIZE}u < ${R}u) {
    row_parts[(t / ${SUBGROUP_SIZE}u) * ${R}u + t % ${SUBGROUP_SIZE}u] = v;
  }
#endif
#elif ROW_PARTS > 1
  row_parts[t] = v;
#endif
#if ROW_PARTS > 1
  workgroupBarrier();
  v = vec2f(0.0);
  if (t < ${R}u) {
#for i in 0..ROW_PARTS
    v += row_parts[${i * R}u + t];
#endfor
  }
#endif
  return v;
}
