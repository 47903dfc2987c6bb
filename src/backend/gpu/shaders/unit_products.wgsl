// sum0, sum1: the products of a thread's units, a sum for each set: of those that unit_loads.wgsl loaded, then of the others, AT_ONCE
// at a time in a loop, so that a thread needs few registers and a processor has room for many workgroups, which wait for
// memory in each other's place; or (AHEAD, AT_ONCE 1) each while the one before is multiplied (next_unit.wgsl). Neighbours are
// added first, then neighbouring pairs (docs/kernels.md: one order of sums): where AT_ONCE and UNITS are powers of two, the sums
// are those of any other such shape.
#for n in 0..SETS
#for u in 0..AT_ONCE
  let made${n}_${u} = dot_unit(
#for p in 0..PIECES
      w${n}_${u}_${p},
#endfor
#for s in 0..SCALE_WORDS
      s${n}_${u}_${s},
#endfor
      unit${u});
#if COVERED
  let d${n}_${u} = made${n}_${u};
#else
  let d${n}_${u} = select(0.0, made${n}_${u}, lane * ${UNITS}u + ${u}u < ${UNITS_K}u);
#endif
#sum d${n}, u, AT_ONCE
#endfor
  var sum${n} = d${n};
#endfor
#if AT_ONCE < UNITS
#default AHEAD 0
#define ROUNDS (UNITS + AT_ONCE - 1) / AT_ONCE
#for n in 0..SETS
#for k in 0..6
#if (1 << k) < ROUNDS
  var kept${n}_${k} = sum${n};
#endif
#endfor
#endfor
  var rounds = 1u;
#if AHEAD && (COVERED)
  // Without the row's end, so that a compiler sees how many rounds there are and keeps two units in registers.
  let end = lane * ${UNITS}u + ${UNITS}u;
#else
  let end = min(lane * ${UNITS}u + ${UNITS}u, ${UNITS_K}u);
#endif
  for (var first = lane * ${UNITS}u + ${AT_ONCE}u; first < end; first += ${AT_ONCE}u) {
#for u in 0..AT_ONCE
#if UNITS % AT_ONCE == 0 && (COVERED)
    let next${u} = first + ${u}u;
#else
    let next${u} = min(first + ${u}u, ${UNITS_K - 1}u);
#endif
#if !(AHEAD)
#for n in 0..SETS
    let c${n}_${u} = code_index(row + ${n * SET_ROWS}u, next${u});
#for p in 0..PIECES
    let v${n}_${u}_${p} = codes[c${n}_${u} + ${p * 64}u];
#endfor
#if QUANTISED
    let b${n}_${u} = scale_index(row + ${n * SET_ROWS}u, next${u});
#for s in 0..SCALE_WORDS
    let t${n}_${u}_${s} = own_scale(scales[b${n}_${u} + ${s * 64}u], next${u});
#endfor
#endif
#endfor
#endif
#endfor
#if AHEAD
    // What has been loaded, while the one behind it is under way.
#for n in 0..SETS
#for p in 0..PIECES
    let v${n}_0_${p} = ahead${n}_${p};
#endfor
#for s in 0..SCALE_WORDS
    let t${n}_0_${s} = ahead_scales${n}_${s};
#endfor
#endfor
#if UNITS > 2
    if (first + 1u < end) {
      load_next();
    }
#endif
#endif
#for n in 0..SETS
#for u in 0..AT_ONCE
    let made${n}_${u} = dot_unit(
#for p in 0..PIECES
        v${n}_${u}_${p},
#endfor
#for s in 0..SCALE_WORDS
        t${n}_${u}_${s},
#endfor
        next${u});
#if UNITS % AT_ONCE == 0 && (COVERED)
    let d${n}_${u} = made${n}_${u};
#else
    let d${n}_${u} = select(0.0, made${n}_${u}, first + ${u}u < end);
#endif
#sum d${n}, u, AT_ONCE
#endfor
    sum${n} = d${n};
#endfor
#include "carry_round.wgsl"
  }
#include "left_rounds.wgsl"
#endif
