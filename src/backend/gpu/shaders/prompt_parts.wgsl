// How the positions of a prompt's sequence are dealt out to MOST_SPLITS workgroups of attention_tiled.wgsl, and where
// attention_combine.wgsl finds a token's: in parts that lie at the same positions whatever else is in a step, so that a token has
// one order of sums in any company.
//   WINDOW 0: positions [0, PART), [PART, 2 PART), [2 PART, 4 PART) and so on, the last part without an end: few parts do for
//     long sequences. Part i is kept in place i.
//   Else PART positions each, kept in a ring of MOST_SPLITS places, which hold all parts that the tokens of a tile see.
#include "seen.wgsl"
fn part_of(position : u32) -> u32 {
#if WINDOW
  return position / ${PART}u;
#else
  return min(32u - countLeadingZeros(position / ${PART}u), ${MOST_SPLITS - 1}u);
#endif
}
fn part_begin(part : u32) -> u32 {
#if WINDOW
  return part * ${PART}u;
#else
  return select(${PART}u << (max(part, 1u) - 1u), 0u, part == 0u);
#endif
}
// A token's parts, from the first that it sees on, as combined.wgsl takes them.
struct Splits {
  first : u32,
  count : u32,
}
fn splits_of(position : u32) -> Splits {
  let first = part_of(first_of(position));
  return Splits(first, part_of(position) + 1u - first);
}
// Where split i of a token is kept.
fn place_of(s : Splits, i : u32) -> u32 {
#if WINDOW
  return (s.first + i) % ${MOST_SPLITS}u;
#else
  return i;
#endif
}
