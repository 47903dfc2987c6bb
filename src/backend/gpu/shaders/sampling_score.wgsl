// The key of a token's score, as sampling_scan.wgsl has found it; 0 for those that are ruled out.
fn plain_key(bits : u32) -> vec2u {
  if (bits == 0xff800000u) { return vec2u(0u); }
  return key_of(double_of_float(bits));
}
fn score_key(id : u32, bits : u32) -> vec2u {
  if (parameters[row].adjusts != 0u && any(marks[base + id] != vec2u(0u))) { return keys[base + id]; }
  return plain_key(bits);
}
