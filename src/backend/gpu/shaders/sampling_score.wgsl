// The key of a token's score, as sampling_scan.wgsl has found it; 0 for those that are ruled out. Logits are read as bits,
// four at a time, because their loads take the time; values behind the last token are not used.
fn plain_key(bits : u32) -> vec2u {
  if (bits == 0xff800000u) { return vec2u(0u); }
  return key_of(double_of_float(bits));
}
fn score_key(id : u32, bits : u32) -> vec2u {
  if (parameters.adjusts != 0u && any(marks[id] != vec2u(0u))) { return keys[id]; }
  return plain_key(bits);
}
