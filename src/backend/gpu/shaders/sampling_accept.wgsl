// Writes the chosen token `id` (0xffffffff: none could be chosen), raises the draw's number and counts the token into the
// history. For one thread. state, window, marks, chosen: see sampling_parameters.wgsl.
// GUESSED 1: tokens are chosen for row after row of a step whose ids, from word IDS of `step` on, are guesses. What is chosen
// behind a wrong one is none, and leaves everything as it is.
fn accept(id : u32) {
#if GUESSED
  let at_row = state[own_state + kRow];
  if (at_row == kNoRow) {
    chosen[0] = 0xffffffffu;
    return;
  }
  state[own_state + kRow] = select(kNoRow, at_row + 1u, step[${IDS + 1}u + at_row] == id);
#endif
  chosen[parameters[row].logits_row] = id;
  let low = state[own_state + kDrawLow] + 1u;
  state[own_state + kDrawLow] = low;
  if (low == 0u) { state[own_state + kDrawHigh] += 1u; }
  if (parameters[row].penalises == 0u || id >= parameters[row].vocab) { return; }
  marks[base + id].x += 1u;
  if (parameters[row].window == 0u) { return; }
  let length = state[own_state + kLength];
  let at = length % parameters[row].window;
  let place = parameters[row].window_at + at;
  if (length >= parameters[row].window) {
    let oldest = window[place];
    if (oldest < parameters[row].vocab) { marks[base + oldest].x -= 1u; }
  }
  window[place] = id;
  // A length beyond the window only tells the place in it.
  state[own_state + kLength] = select(length + 1u, parameters[row].window + (at + 1u) % parameters[row].window, length >= parameters[row].window);
}
