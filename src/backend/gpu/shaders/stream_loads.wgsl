// Weights whose units have many pieces (floats of 16 bits), STREAM pieces of each set at a time with as many under way behind them, in place of
// unit_loads.wgsl: two units of gate and up take all of a thread's registers, and then a processor has no room for the workgroups whose
// loads should be under way while others wait (H100, Llama 3.2 1B BF16, output with gates and ups: 30.9 us, 29.2 so). These are
// a thread's first two steps, issued before anything is waited for; stream_products.wgsl multiplies them and loads the others. Included
// where `row`, `lane` are known. Template values: those of weights.wgsl; UNITS, LANES as in gemv.wgsl; 2 * STREAM divides PIECES.
#for n in 0..SETS
  // Of set n: at where its next step lies, now and next the pieces of two steps.
  var at${n} = code_index(row + ${n * SET_ROWS}u, min(lane * ${UNITS}u, ${UNITS_K - 1}u));
#for p in 0..STREAM
  var now${n}_${p} = codes[at${n} + ${p * 64}u];
#endfor
#for p in 0..STREAM
  var next${n}_${p} = codes[at${n} + ${(STREAM + p) * 64}u];
#endfor
  at${n} += ${2 * STREAM * 64}u;
#endfor
