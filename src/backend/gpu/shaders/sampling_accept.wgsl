// Writes the chosen token `id` (0xffffffff: none could be chosen), raises the draw's number and counts the token into the
// history. For one thread. state, window, marks, chosen: see sampling_parameters.wgsl.
// GUESSED 1: tokens are chosen for row after row of a step whose ids, from word IDS of `step` on, are guesses. What is chosen
// behind a wrong one is none, and leaves everything as it is.
fn accept(id : u32) {
#if GUESSED
  let row = state[kRow];
  if (row == kNoRow) {
    chosen[0] = 0xffffffffu;
    return;
  }
  state[kRow] = select(kNoRow, row + 1u, step[${IDS + 1}u + row] == id);
#endif
  chosen[0] = id;
  let low = state[kDrawLow] + 1u;
  state[kDrawLow] = low;
  if (low == 0u) { state[kDrawHigh] += 1u; }
  if (parameters.penalises == 0u || id >= parameters.vocab) { return; }
  marks[id].x += 1u;
  if (parameters.window == 0u) { return; }
  let length = state[kLength];
  let at = length % parameters.window;
  if (length >= parameters.window) {
    let oldest = window[at];
    if (oldest < parameters.vocab) { marks[oldest].x -= 1u; }
  }
  window[at] = id;
  // A length beyond the window only tells the place in it.
  state[kLength] = select(length + 1u, parameters.window + (at + 1u) % parameters.window, length >= parameters.window);
}
