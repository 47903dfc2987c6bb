// kept<k> of each sum of a thread's tile (RM x RN): 2^k neighbouring branches that wait for the next 2^k, of BRANCHES that are
// added one after the other (docs/kernels.md: one order of sums).
#define LEVELS (BRANCHES > 1) + (BRANCHES > 2) + (BRANCHES > 4) + (BRANCHES > 8) + (BRANCHES > 16) + (BRANCHES > 32) + (BRANCHES > 64) + (BRANCHES > 128) + (BRANCHES > 256) + (BRANCHES > 512)
#for i in 0..RM
#for j in 0..RN
#for k in 0..LEVELS
  var kept${k}_${i}_${j} = 0.0;
#endfor
#endfor
#endfor
