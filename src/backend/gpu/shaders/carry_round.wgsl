// A round of a loop over a thread's units, whose sums sum<set> holds: rounds are added like units, neighbours first, as a binary counter
// carries. kept<set>_<k> is the sum of 2^k rounds that waits for the next 2^k; `rounds` counts them. ROUNDS there are at most, 64 or less.
#for k in 0..6
#if (1 << k) < ROUNDS
    if ((rounds & ${(2 << k) - 1}u) == ${(1 << k) - 1}u) {
#for n in 0..SETS
      kept${n}_${k} = sum${n};
#endfor
    }
    if ((rounds & ${(2 << k) - 1}u) == ${(2 << k) - 1}u) {
#for n in 0..SETS
      sum${n} = kept${n}_${k} + sum${n};
#endfor
    }
#endif
#endfor
    rounds += 1u;
