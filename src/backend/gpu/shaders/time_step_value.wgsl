// softplus(v), not below LOW, nor (LIMITED) above HIGH: a recurrence's time step. LOW_BITS, HIGH_BITS: floats' bits.
fn time_step_value(v : f32) -> f32 {
  // log(1 + e) loses what is small beside 1: there it is its series.
  let e = exp(-min(abs(v), 80.0));
  let rest = select(log(1.0 + e), e * (1.0 - e * (0.5 - e / 3.0)), e < 0.01);
  var value = max(max(v, 0.0) + rest, bitcast<f32>(${LOW_BITS}u));
#if LIMITED
  value = min(value, bitcast<f32>(${HIGH_BITS}u));
#endif
  // max() would make a number of NaN.
  return select(value, v, (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u);
}
