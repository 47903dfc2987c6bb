// What a recurrence makes of its time step. DECAY: x * weight, the logarithm of a state's decay; else softplus(x + weight), not
// below LOW, nor (LIMITED) above HIGH. Workgroups: x over values, y over tokens.
// Template values (recurrent_kernels.cpp): WIDTH values of a row; LOW_BITS, HIGH_BITS floats' bits. A token's row of x, out begins
// at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> x : array<f32>;
@group(0) @binding(1) var<storage, read> weight : array<f32>;
@group(0) @binding(2) var<storage, read_write> out : array<f32>;

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let i = group.x * ${THREADS}u + t;
  if (i >= ${WIDTH}u) {
    return;
  }
  let given = x[group.y * ${X_STRIDE}u + ${X_OFFSET}u + i];
#if DECAY
  let value = given * weight[i];
#else
  let v = given + weight[i];
  // log(1 + e) loses what is small beside 1: there it is its series.
  let e = exp(-min(abs(v), 80.0));
  let rest = select(log(1.0 + e), e * (1.0 - e * (0.5 - e / 3.0)), e < 0.01);
  var value = max(max(v, 0.0) + rest, bitcast<f32>(${LOW_BITS}u));
#if LIMITED
  value = min(value, bitcast<f32>(${HIGH_BITS}u));
#endif
  // max() would make a number of NaN.
  value = select(value, v, (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u);
#endif
  out[group.y * ${OUT_STRIDE}u + ${OUT_OFFSET}u + i] = value;
}
