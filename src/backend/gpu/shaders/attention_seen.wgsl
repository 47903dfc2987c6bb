// Which positions a token sees, where they lie in the cache, and what becomes of a score; for kernels that go through the
// positions of one sequence after the other. Values and buffers: those of attention.wgsl; BQ tokens of a workgroup.
#include "kv.wgsl"
#include "seen.wgsl"
#if ALIBI
#include "alibi.wgsl"
#endif
// A position's row in the cache. head_row: row 0 of the slot and head, where these have one.
fn row_at(slot : u32, kv_head : u32, head_row : u32, position : u32) -> u32 {
#if PAGE_TABLE
  return cache_row(slot, kv_head, position);
#elif WINDOW
  return head_row + position % ${CAPACITY}u;
#else
  return head_row + position;
#endif
}
// The end of the run of tokens of one sequence that begins at `begin` of the workgroup's `rows` tokens, at most BQ.
fn run_end(token0 : u32, begin : u32, rows : u32) -> u32 {
  let slot = step[${SLOTS}u + token0 + begin];
  // A sequence's tokens are a position apart: if the last one is its and as many positions further as rows, so are all between. To
  // look at one after the other takes as long as a tile of positions.
  let way = step[${POSITIONS}u + token0 + rows - 1u] - step[${POSITIONS}u + token0 + begin];
  if (step[${SLOTS}u + token0 + rows - 1u] == slot && way == rows - 1u - begin) {
    return rows;
  }
  var end = begin + 1u;
  while (end < rows && step[${SLOTS}u + token0 + min(end, ${BQ - 1}u)] == slot) {
    end++;
  }
  return end;
}
// Of a product that is scaled already.
fn score_of(score : f32) -> f32 {
#if SOFTCAP
  // clamp() would make a number of NaN.
  let capped = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(score / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
  return select(capped, score, (bitcast<u32>(score) & 0x7fffffffu) > 0x7f800000u);
#else
  return score;
#endif
}
