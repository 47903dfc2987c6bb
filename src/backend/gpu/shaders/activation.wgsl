// activate(x): a feed-forward layer's activation. Template value ACTIVATION: 0 silu, 1 gelu (tanh form), 2 gelu (erf form),
// 3 relu, 4 relu squared, 5 xielu (ALPHA_P_BITS, ALPHA_N_BITS, LINE_BITS, LIMIT_BITS: its four numbers), 6 sigmoid, 7 x itself, 8 quick gelu, as model/spec.h lists them. tanh and exp saturate by hand: some drivers give NaN for large arguments. fma() is written out, so
// that every kernel has the same bits.
fn activate(x : f32) -> f32 {
#if ACTIVATION == 0
  return x / (1.0 + exp(-clamp(x, -80.0, 80.0)));
#elif ACTIVATION == 1
  let inner = clamp(0.7978845608028654 * fma(0.044715 * x * x, x, x), -15.0, 15.0);
  return 0.5 * x * (1.0 + tanh(inner));
#elif ACTIVATION == 3
  return max(x, 0.0);
#elif ACTIVATION == 4
  return max(x, 0.0) * max(x, 0.0);
#elif ACTIVATION == 5
  // e^t - 1 - t: near 0 the series, since the difference would lose what is left.
  let t = min(x, bitcast<f32>(${LIMIT_BITS}u));
  let series = t * t * fma(t, fma(t, fma(t, fma(t, fma(t, 1.0 / 5040.0, 1.0 / 720.0), 1.0 / 120.0), 1.0 / 24.0), 1.0 / 6.0), 0.5);
  let beyond = select(exp(max(t, -80.0)) - 1.0 - t, series, t > -0.5) + (t - x);
  let bend = select(bitcast<f32>(${ALPHA_N_BITS}u) * beyond, bitcast<f32>(${ALPHA_P_BITS}u) * x * x, x > 0.0);
  return fma(bitcast<f32>(${LINE_BITS}u), x, bend);
#elif ACTIVATION == 6
  // clamp() would make a number of NaN.
  return select(1.0 / (1.0 + exp(-clamp(x, -80.0, 80.0))), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
#elif ACTIVATION == 7
  return x;
#elif ACTIVATION == 8
  return x / (1.0 + exp(-clamp(1.702 * x, -80.0, 80.0)));
#else
  // 1 + erf(x / sqrt 2), by Abramowitz and Stegun 7.1.26: error 1.5e-7.
  let z = abs(x) * 0.7071067811865476;
  let t = 1.0 / fma(0.3275911, z, 1.0);
  let poly = t * fma(t, fma(t, fma(t, fma(t, 1.061405429, -1.453152027), 1.421413741), -0.284496736), 0.254829592);
  let fall = exp(-min(z * z, 80.0));
  return 0.5 * x * select(fma(-poly, fall, 2.0), poly * fall, x < 0.0);
#endif
}
