// The sums of branch_levels.wgsl behind `steps` branches, which may be fewer than a power of two: those that wait.
  if (steps < ${1 << (LEVELS)}u) {
#for i in 0..RM
#for j in 0..RN
    sum${i}_${j} = 0.0;
#endfor
#endfor
#for k in 0..LEVELS
    if ((steps & ${1 << k}u) != 0u) {
#for i in 0..RM
#for j in 0..RN
      sum${i}_${j} = kept${k}_${i}_${j} + sum${i}_${j};
#endfor
#endfor
    }
#endfor
  }
