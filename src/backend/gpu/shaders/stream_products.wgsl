// sum0, sum1 of what stream_loads.wgsl begins to load: the bits of unit_products.wgsl, since each unit's products are added in the same order,
// and units as there.
#define STEPS PIECES / STREAM
#define ROUNDS UNITS
#for n in 0..SETS
  var sum${n} = 0.0;
#for k in 0..6
#if (1 << k) < UNITS
  var kept${n}_${k} = 0.0;
#endif
#endfor
#endfor
  let end = min(lane * ${UNITS}u + ${UNITS}u, ${UNITS_K}u);
  var rounds = 0u;
  for (var unit = lane * ${UNITS}u; unit < end; unit += 1u) {
#for n in 0..SETS
    var d${n} = 1.2e-38;
#endfor
#for q in 0..STEPS
#for p in 0..STREAM
#for h in 0..2
    {
      let x = x_at(unit, ${(q * STREAM + p) * 2 + h}u);
#for n in 0..SETS
      d${n} = plus_products(d${n}, unpack_piece(now${n}_${p}, ${h}u), x);
#endfor
    }
#endfor
#endfor
#for n in 0..SETS
#for p in 0..STREAM
    now${n}_${p} = next${n}_${p};
#endfor
#endfor
#if q + 2 < STEPS
    {
#else
    if (unit + 1u < end) {
#endif
#for n in 0..SETS
#for p in 0..STREAM
      next${n}_${p} = codes[at${n} + ${p * 64}u];
#endfor
      at${n} += ${STREAM * 64}u;
#endfor
    }
#endfor
#for n in 0..SETS
    sum${n} = d${n};
#endfor
#include "carry_round.wgsl"
  }
#include "left_rounds.wgsl"
