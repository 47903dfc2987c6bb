// The first loads of a thread, issued before anything is waited for: codes and scales of its first AT_ONCE units, from the row
// `row` of SETS matrices that lie SET_ROWS rows apart (gate and up, or one), or from SETS_EACH rows of each, SET_STEP apart.
// Included where `row`, `lane` are known; unit_products.wgsl multiplies what is loaded here and loads the rest. Template values:
// those of weights.wgsl; UNITS, AT_ONCE, LANES, COVERED as in gemv.wgsl.
#default AT_ONCE UNITS
#default SETS_EACH 1
#default SET_STEP 0
#for u in 0..AT_ONCE
#if COVERED
  let unit${u} = lane * ${UNITS}u + ${u}u;
#else
  let unit${u} = min(lane * ${UNITS}u + ${u}u, ${UNITS_K - 1}u);
#endif
#for n in 0..SETS
  // Of set n and unit u: c, a places of codes and scales, w the pieces, s the scale words.
  let c${n}_${u} = code_index(row + ${n % SETS_EACH * SET_STEP + n / SETS_EACH * SET_ROWS}u, unit${u});
#for p in 0..PIECES
  let w${n}_${u}_${p} = codes[c${n}_${u} + ${p * 64}u];
#endfor
#if QUANTISED
  let a${n}_${u} = scale_index(row + ${n % SETS_EACH * SET_STEP + n / SETS_EACH * SET_ROWS}u, unit${u});
#for s in 0..SCALE_WORDS
  let s${n}_${u}_${s} = own_scale(scales[a${n}_${u} + ${s * 64}u], unit${u});
#endfor
#endif
#endfor
#endfor
