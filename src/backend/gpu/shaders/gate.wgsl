// gated(gate, up): activation(gate) * up (activation.wgsl), or SHAPED 1: gate and up are cut at GATE_LIMIT, silu takes
// ALPHA * gate, UP_OFFSET is added to up.
#if SHAPED
fn gated(gate : f32, up : f32) -> f32 {
  let limit = bitcast<f32>(${GATE_LIMIT_BITS}u);
  let g = min(gate, limit);
  let u = clamp(up, -limit, limit) + bitcast<f32>(${UP_OFFSET_BITS}u);
  return g / (1.0 + exp(-clamp(bitcast<f32>(${ALPHA_BITS}u) * g, -80.0, 80.0))) * u;
}
#else
#include "activation.wgsl"
fn gated(gate : f32, up : f32) -> f32 {
  return activate(gate) * up;
}
#endif
