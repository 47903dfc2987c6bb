// How a token's sequence is split among workgroups: at most MOST_SPLITS (16, 32 or 64) parts of a multiple of 32 positions,
// which are what a workgroup takes at a time: one position more in each part would cost as much as 32.
#include "seen.wgsl"
struct Splits {
  begin : u32,  // first position that is seen
  end : u32,    // after the newest
  each : u32,   // positions of a split, fewer in the last
  count : u32,  // of splits
}
fn splits_of(position : u32) -> Splits {
  var s : Splits;
  s.begin = first_of(position);
  s.end = position + 1u;
  let length = s.end - s.begin;
  s.each = 32u * ((length + ${32 * MOST_SPLITS - 1}u) / ${32 * MOST_SPLITS}u);
  s.count = (length + s.each - 1u) / s.each;
  return s;
}
// Where split i of a token is kept.
fn place_of(s : Splits, i : u32) -> u32 {
  return i;
}
