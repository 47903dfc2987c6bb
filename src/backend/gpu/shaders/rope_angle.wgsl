// (cos, sin) for a pair at a position, and where the pair's other half lies. Needs PAIRS, HIGH_ROWS (rows of the first
// table), INTERLEAVED.
fn rope_angle(position : u32, pair : u32) -> vec2f {
  let high = angles[(position >> 8u) * ${PAIRS}u + pair];
  let low = angles[(${HIGH_ROWS}u + (position & 255u)) * ${PAIRS}u + pair];
  return vec2f(high.x * low.x - high.y * low.y, high.y * low.x + high.x * low.y);
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
