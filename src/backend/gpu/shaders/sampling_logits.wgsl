// Logits of the row, four at a time, because their loads take the time; values behind the last token are not used.
// FOURS 1: every row begins with a whole vector.
#if FOURS
@group(0) @binding(0) var<storage, read> logits : array<vec4u>;
fn four_logits(first : u32) -> vec4u {
  return logits[(parameters[row].logits_row * parameters[row].vocab + first) / 4u];
}
#else
@group(0) @binding(0) var<storage, read> logits : array<u32>;
fn four_logits(first : u32) -> vec4u {
  let at = parameters[row].logits_row * parameters[row].vocab + first;
  let last = arrayLength(&logits) - 1u;
  return vec4u(logits[at], logits[min(at + 1u, last)], logits[min(at + 2u, last)], logits[min(at + 3u, last)]);
}
#endif
