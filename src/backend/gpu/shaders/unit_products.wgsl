// sum0, sum1: the products of the units that unit_loads.wgsl loaded, a sum for each set.
#for n in 0..SETS
  var sum${n} = 0.0;
#for u in 0..UNITS
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
