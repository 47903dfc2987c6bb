// (cos, sin) for a pair at a position, and where the pair's other half lies. Needs
//   PAIRS        pairs of a head that turn: the first 2 * PAIRS of its values d
//   INTERLEAVED  1: a pair is neighbours (2i, 2i + 1), 0: values (i, i + PAIRS)
//   HIGH_ROWS    rows of the first table
//   angles       two tables of (cos, sin), rows of PAIRS: of position 256 * row, then of position 0 to 255
fn rope_angle(position : u32, pair : u32) -> vec2f {
  let high = angles[(position >> 8u) * ${PAIRS}u + pair];
  let low = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS}u + pair];
  return vec2f(fma(high.x, low.x, -(high.y * low.y)), fma(high.y, low.x, high.x * low.y));
}
#if INTERLEAVED
fn rope_pair(d : u32) -> u32 { return d >> 1u; }
fn rope_partner(d : u32) -> u32 { return d ^ 1u; }
fn rope_is_first(d : u32) -> bool { return (d & 1u) == 0u; }
#else
fn rope_pair(d : u32) -> u32 { return select(d - ${PAIRS}u, d, d < ${PAIRS}u); }
fn rope_partner(d : u32) -> u32 { return select(d - ${PAIRS}u, d + ${PAIRS}u, d < ${PAIRS}u); }
fn rope_is_first(d : u32) -> bool { return d < ${PAIRS}u; }
#endif
