// Takes branch number `done` of branch_levels.wgsl, which `sum` holds, as a binary counter carries: behind the last of a power of
// two `sum` is the sum of all.
#for k in 0..LEVELS
    if ((done & ${1 << k}u) == 0u) {
#for i in 0..RM
#for j in 0..RN
      kept${k}_${i}_${j} = sum${i}_${j};
#endfor
#endfor
    } else {
#for i in 0..RM
#for j in 0..RN
      sum${i}_${j} = kept${k}_${i}_${j} + sum${i}_${j};
#endfor
#endfor
#endfor
#for k in 0..LEVELS
    }
#endfor
