// Behind the loop of carry_round.wgsl: a row that ends earlier leaves sums that wait.
#define ROUND_PLACES 1 << ((ROUNDS > 1) + (ROUNDS > 2) + (ROUNDS > 4) + (ROUNDS > 8) + (ROUNDS > 16) + (ROUNDS > 32))
#if ROUNDS < ROUND_PLACES || !(COVERED)
  if (rounds < ${ROUND_PLACES}u) {
#for n in 0..SETS
    sum${n} = 0.0;
#endfor
#for k in 0..6
#if (1 << k) < ROUNDS
    if ((rounds & ${1 << k}u) != 0u) {
#for n in 0..SETS
      sum${n} = kept${n}_${k} + sum${n};
#endfor
    }
#endif
#endfor
  }
#endif
