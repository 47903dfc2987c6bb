// Takes what the step before, a check of guesses, has chosen, and guesses what comes next: appends the newest tokens to `text`, finds
// the latest earlier place that ends like it, and lists the newest token and those behind that place as the next step's in `step`.
// Of places that end alike in 2 to LONGEST tokens those that agree for longest are taken, as engine/drafter.h does on the host; where
// there is none the newest token is guessed again. What a step was fed and chose is left in `result`, where the host counts for itself.
// One workgroup.
//
// Template values (guess_runner.cpp): ROWS tokens of a step; DRAWN 1: the sampler has chosen them, else CANDIDATES of a row decide,
// each as in head.wgsl; AT_ONCE 1: for all rows at once, as if all guesses were right, and `draws` ([row] STATE_WORDS words, the low
// and the high one of a number first) counts on from those that were; VOCAB tokens; IDS, POSITIONS
// words of `step` where the rows' ids and positions begin; LONGEST.
// result: the position of the first row, the ROWS ids that were fed, the ROWS tokens that were chosen behind them.
// Token 0xffffffff: none could be chosen.
@group(0) @binding(0) var<storage, read_write> step : array<u32>;
@group(0) @binding(1) var<storage, read_write> text : array<u32>;
#if AT_ONCE
@group(0) @binding(4) var<storage, read_write> draws : array<u32>;
#endif
#if DRAWN
@group(0) @binding(2) var<storage, read> drawn : array<u32>;
#else
@group(0) @binding(2) var<storage, read> candidates : array<vec2u>;
#endif
@group(0) @binding(3) var<storage, read_write> result : array<u32>;

const kNoToken = 0xffffffffu;

var<workgroup> chosen : array<u32, ${ROWS}>;
var<workgroup> newest : u32;        // where the newest token stands
var<workgroup> place : atomic<u32>; // tokens that agree, above kPlaceBits; where the last of them stands
const kPlaceBits = 28u;

#if DRAWN
fn choose(row : u32) -> u32 {
  return drawn[row];
}
#else
fn choose(row : u32) -> u32 {
  var best = -3.4e38;
  var token = kNoToken;
  for (var i = 0u; i < ${CANDIDATES}u; i++) {
    let candidate = candidates[row * ${CANDIDATES}u + i];
    let value = bitcast<f32>(candidate.x);
    if (value > best || (value == best && candidate.y < token)) {
      best = value;
      token = candidate.y;
    }
  }
  return token;
}
#endif

// Appends the tokens up to the first that was not guessed, or up to one that could not be chosen.
fn append_chosen() {
  var last = step[${POSITIONS}];
  var row = 0u;
  while (chosen[row] != kNoToken) {
    last += 1u;
    text[last] = chosen[row];
    row += 1u;
    if (row == ${ROWS}u || text[last] != step[${IDS}u + row]) {
      break;
    }
  }
  newest = last;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(local_invocation_index) t : u32) {
  if (t < ${ROWS}u) {
    let found = choose(t);
    let token = select(found, kNoToken, found >= ${VOCAB}u);
    chosen[t] = token;
    result[1u + t] = step[${IDS}u + t];
    result[1u + ${ROWS}u + t] = token;
  }
  workgroupBarrier();
  if (t == 0u) {
    result[0] = step[${POSITIONS}];
    append_chosen();
    atomicStore(&place, 0u);
  }
  storageBarrier();
  workgroupBarrier();
  let last = newest;
#if AT_ONCE
  if (t < ${ROWS}u) {
    // Each has drawn one; as many were taken as there are new tokens.
    let more = max(last - result[0], 1u) - 1u;
    let low = draws[t * ${STATE_WORDS}u] + more;
    draws[t * ${STATE_WORDS}u] = low;
    draws[t * ${STATE_WORDS}u + 1u] += u32(low < more);
  }
#endif
  for (var at = t; at < last; at += ${THREADS}u) {
    var agreed = 0u;
    while (agreed < ${LONGEST}u && agreed <= at && text[at - agreed] == text[last - agreed]) {
      agreed++;
    }
    if (agreed >= 2u) {
      atomicMax(&place, (agreed << kPlaceBits) | at);
    }
  }
  workgroupBarrier();
  if (t < ${ROWS}u) {
    let found = atomicLoad(&place);
    let behind = select((found & ((1u << kPlaceBits) - 1u)) + 1u, last, found == 0u);
    // Where the earlier place is so near that its tokens end, they are gone through again: such text turns in a circle.
    let period = last + 1u - behind;
    step[${IDS}u + t] = select(text[behind + (t - 1u) % period], text[last], t == 0u);
    step[${POSITIONS}u + t] = last + t;
  }
}
