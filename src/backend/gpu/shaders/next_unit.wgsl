// A thread's units one ahead (gemv.wgsl: AHEAD; gemv_columns.wgsl): load_next() begins to load unit next_unit of row next_row, and counts on; what is
// loaded lies in ahead<set>_<piece> and ahead_scales<set>_<word>. Template values as in unit_loads.wgsl.
#default SETS_EACH 1
#default SET_STEP 0
var<private> next_row : u32;
var<private> next_unit : u32;
#for n in 0..SETS
#for p in 0..PIECES
var<private> ahead${n}_${p} : vec4u;
#endfor
#for s in 0..SCALE_WORDS
var<private> ahead_scales${n}_${s} : u32;
#endfor
#endfor
fn load_next() {
  let unit = min(next_unit, ${UNITS_K - 1}u);
#for n in 0..SETS
  let at${n} = code_index(next_row + ${n % SETS_EACH * SET_STEP + n / SETS_EACH * SET_ROWS}u, unit);
#for p in 0..PIECES
  ahead${n}_${p} = codes[at${n} + ${p * 64}u];
#endfor
#if QUANTISED
  let scales_at${n} = scale_index(next_row + ${n % SETS_EACH * SET_STEP + n / SETS_EACH * SET_ROWS}u, unit);
#for s in 0..SCALE_WORDS
  ahead_scales${n}_${s} = own_scale(scales[scales_at${n} + ${s * 64}u], unit);
#endfor
#endif
#endfor
  next_unit += 1u;
}
