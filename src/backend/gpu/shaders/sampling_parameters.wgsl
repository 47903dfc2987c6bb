// The buffers that the sampling kernels share (sampling.cpp), for a vocabulary of `vocab` tokens. Tokens are chosen for several rows
// of logits at a time, each with a place of its own in every buffer; workgroups: y over the rows that are listed. 64-bit numbers are
// vec2u(high, low), doubles their bits.
//   logits      f32 bits, see sampling_logits.wgsl
//   marks       [token]: (how often it counts as seen, 1 + the number of its bias or 0)
//   window      the last `window` tokens of the history as a ring, or all of it, from word `window_at` on
//   bias_ids    [bias]: its token, while a row begins
//   biases      [bias], from number `biases_at` on: the double that is added to the score
//   keys        [token]: key of its score (key_of() in sampling_double.wgsl), 0: ruled out; only where marks are not 0
//   partials    [workgroup of the scan], see sampling_partial.wgsl
//   histogram   see BUCKETS below
//   candidates  (key of the likeliest - own key: 2 words, id | bucket << 22, halvings): see sampling_weight.wgsl
//   chosen      [row of logits]: the token
//   step        ids of a step of guesses
// Template values: THREADS, 256; see sampling_accept.wgsl and sampling_logits.wgsl for others. Parameters: what stays the same for a
// continuation (as in sampling.h), and in which order rows are listed.
struct Parameters {
  repeat : vec2u,      // penalties
  presence : vec2u,
  frequency : vec2u,
  top_p : vec2u,       // in units of 2^-64
  cut : vec2u,         // tokens further than this below the likeliest weigh nothing
  keep : vec2u,        // those further than this are never drawn, but top-p counts them
  rate : vec2u,        // log2(e) / temperature
  seed : vec2u,
  has_top_p : u32,
  has_keep : u32,
  top_k : u32,         // 0: all
  adjusts : u32,       // some scores differ from their logits
  penalises : u32,     // some because they were seen before
  has_repeat : u32,
  window : u32,        // of the penalties; 0: the whole sequence
  history : u32,       // tokens to count at the beginning
  biases : u32,
  vocab : u32,
  groups : u32,        // workgroups of the kernels that read the vocabulary
  chunk : u32,         // tokens of each
  window_at : u32,
  biases_at : u32,
  logits_row : u32,    // the row of logits
  listed : u32,        // not of this row: the one that comes in this place, those that are drawn first
  drawn : u32,         // of row 0: how many are drawn
  begun : u32,         // of row 0: the first that begins
}
// Words of the buffer `state`, which the kernels carry from token to token and to each other.
const kDrawLow = 0u;      // number of the draw
const kDrawHigh = 1u;
const kLength = 2u;       // of the history, for the place in the window
const kCandidates = 3u;   // entries of `candidates`
const kDraws = 4u;        // 1: there is something to draw
const kLargestHigh = 5u;  // key of the likeliest token
const kLargestLow = 6u;
const kExponent = 7u;     // the ruler of the buckets (sampling_weight.wgsl), with kFactor
const kShareHigh = 8u;    // the draw, in units of 2^-64
const kShareLow = 9u;
const kFactor = 10u;
const kRow = 11u;         // of a step of guesses, for which a token is chosen next; kNoRow: a guess before was wrong
const kNoRow = 0xffffffffu;
const kStateWords = 16u;
// The buffer `histogram`: of each bucket the low and high word of its tokens' mass and their number; then the
// mass of those within `keep`.
#define BUCKETS 1024
// Bucket 1023 stays empty: its number stands for no bucket.
#define LAST_BUCKET BUCKETS - 2
#define HISTOGRAM_WORDS 3 * BUCKETS + 2

// The row whose token is chosen, and where its places begin.
var<private> row : u32;
var<private> base : u32;  // in arrays of the vocabulary
var<private> own_state : u32;
var<private> own_partials : u32;
var<private> own_histogram : u32;
fn begin_row(r : u32) {
  row = r;
  base = r * parameters[r].vocab;
  own_state = r * kStateWords;
  own_partials = r * parameters[r].groups;
  own_histogram = r * ${HISTOGRAM_WORDS}u;
}
