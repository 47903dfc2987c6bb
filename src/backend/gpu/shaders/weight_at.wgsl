// Values 4q .. 4q+3 of a row of weights as weights.wgsl finds them in `codes` and `scales`. j: the vector's place in its unit.
fn weight_at(row : u32, q : u32) -> vec4f {
  let unit = q >> 4u;
  let j = q & 15u;
#if FORM == 9
  let block = j >> 3u;
  let at = code_index(row, unit) + block * 192u;
  let v = j & 7u;
  let behind = scales[scale_index(row, unit) + block * 64u];
  return block_vector(codes[at + first_piece(v) * 64u], codes[at + 64u], behind, v) * row_factor(row);
#else
#if HIGH_WORDS
  let high = scales[scale_index(row, unit) + (${OWN_WORDS}u + high_word(j)) * 64u];
  let v = unpack_high(codes[code_index(row, unit) + piece_of(j) * 64u], j, high);
#else
  let v = unpack_piece(codes[code_index(row, unit) + piece_of(j) * 64u], j);
#endif
#if QUANTISED
  let at = scale_index(row, unit);
  let scale = group_scale(
#for s in 0..SCALE_WORDS
    own_scale(scales[at + ${s * 64}u], unit),
#endfor
#if GROUPS_16
    j >> 2u);
#else
    j >> 3u);
#endif
  return v * scale.x + scale.y;
#else
  return v;
#endif
#endif
}
