// sum0, sum1: the products of a thread's units, a sum for each set: of those that unit_loads.wgsl loaded, then of the others, AT_ONCE
// at a time in a loop, so that a thread needs few registers and a processor has room for many workgroups, which wait for
// memory in each other's place.
#for n in 0..SETS
  var sum${n} = 0.0;
#for u in 0..AT_ONCE
  {
    let d = dot_unit(
#for p in 0..PIECES
      w${n}_${u}_${p},
#endfor
#for s in 0..SCALE_WORDS
      s${n}_${u}_${s},
#endfor
      unit${u});
#if COVERED
    sum${n} += d;
#else
    sum${n} += select(0.0, d, lane * ${UNITS}u + ${u}u < ${UNITS_K}u);
#endif
  }
#endfor
#endfor
#if AT_ONCE < UNITS
  for (var first = lane * ${UNITS}u + ${AT_ONCE}u; first < min(lane * ${UNITS}u + ${UNITS}u, ${UNITS_K}u); first += ${AT_ONCE}u) {
#for u in 0..AT_ONCE
#if UNITS % AT_ONCE == 0 && (COVERED)
    let next${u} = first + ${u}u;
#else
    let next${u} = min(first + ${u}u, ${UNITS_K - 1}u);
#endif
#for n in 0..SETS
    let d${n}_${u} = code_index(row + ${n * SET_ROWS}u, next${u});
#for p in 0..PIECES
    let v${n}_${u}_${p} = codes[d${n}_${u} + ${p * 64}u];
#endfor
#if QUANTISED
    let b${n}_${u} = scale_index(row + ${n * SET_ROWS}u, next${u});
#for s in 0..SCALE_WORDS
    let t${n}_${u}_${s} = own_scale(scales[b${n}_${u} + ${s * 64}u], next${u});
#endfor
#endif
#endfor
#endfor
#for n in 0..SETS
#for u in 0..AT_ONCE
    {
      let d = dot_unit(
#for p in 0..PIECES
        v${n}_${u}_${p},
#endfor
#for s in 0..SCALE_WORDS
        t${n}_${u}_${s},
#endfor
        next${u});
#if UNITS % AT_ONCE == 0 && (COVERED)
      sum${n} += d;
#else
      sum${n} += select(0.0, d, first + ${u}u < min(lane * ${UNITS}u + ${UNITS}u, ${UNITS_K}u));
#endif
    }
#endfor
#endfor
  }
#endif
