// What a delta rule reads of one token: the convolution of its channels (as convolution.wgsl), of which q and k are normed by
// heads, and of each value head beta = activation(x) and decay = rate * time step. Workgroups: x over heads of q, then of k,
// then blocks of v's channels, then of heads' single values.
// Template values (decode_recurrent.cpp): CHANNELS: q's KEY_HEADS * KEY_DIM, then k's, then VALUES of v; KEPT, SILU, BIAS, state,
// weight see convolution.wgsl; HEADS values of beta and decay; Q_EPS_BITS, K_EPS_BITS bits of the norms' eps; ACTIVATION see
// activation.wgsl; LOW_BITS, LIMITED, HIGH_BITS see time_step_value.wgsl. The token's x, out, ... begin at float ..._OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> x : array<f32>;
@group(0) @binding(2) var<storage, read> weight : array<f32>;
#if BIAS
@group(0) @binding(3) var<storage, read> bias : array<f32>;
#endif
@group(0) @binding(4) var<storage, read_write> state : array<f32>;
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
@group(0) @binding(6) var<storage, read> q_weight : array<f32>;
@group(0) @binding(7) var<storage, read> k_weight : array<f32>;
@group(0) @binding(8) var<storage, read_write> q : array<f32>;
@group(0) @binding(9) var<storage, read_write> k : array<f32>;
@group(0) @binding(10) var<storage, read> beta_in : array<f32>;
@group(0) @binding(11) var<storage, read> step_in : array<f32>;
@group(0) @binding(12) var<storage, read> step_bias : array<f32>;
@group(0) @binding(13) var<storage, read> rates : array<f32>;
@group(0) @binding(14) var<storage, read_write> beta : array<f32>;
@group(0) @binding(15) var<storage, read_write> decay : array<f32>;
#define KEYS KEY_HEADS * KEY_DIM
#define VALUE_GROUPS (VALUES + THREADS - 1) / THREADS
#define EACH (KEY_DIM + THREADS - 1) / THREADS
#include "sequence.wgsl"
#include "reduce.wgsl"
#include "activation.wgsl"
#include "time_step_value.wgsl"

// The channel's value, which is stored, with its last inputs moved up by this one.
fn convolved(c : u32) -> f32 {
  let at = first_slot(0u) * ${KEPT * CHANNELS}u + c;
  let now = x[${X_OFFSET}u + c];
#for i in 0..KEPT
  var before${i} = state[at + ${i * CHANNELS}u];
  let w${i} = weight[${i * CHANNELS}u + c];
#endfor
  let own = weight[${KEPT * CHANNELS}u + c];
  if (begins(0u)) {
#for i in 0..KEPT
    before${i} = 0.0;
#endfor
  }
#if BIAS
  var sum = bias[c];
#else
  var sum = 0.0;
#endif
#for i in 0..KEPT
  sum += w${i} * before${i};
#endfor
  sum += own * now;
#for i in 1..KEPT
  state[at + ${(i - 1) * CHANNELS}u] = before${i};
#endfor
  state[at + ${(KEPT - 1) * CHANNELS}u] = now;
#if SILU
  sum = sum / (1.0 + exp(-clamp(sum, -80.0, 80.0)));
#endif
  out[${OUT_OFFSET}u + c] = sum;
  return sum;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  if (group.x < ${2 * KEY_HEADS}u) {
    let is_key = group.x >= ${KEY_HEADS}u;
    let head = select(group.x, group.x - ${KEY_HEADS}u, is_key);
    var square = 0.0;
#for e in 0..EACH
    // d: the value of the head; v: after the convolution; g: its norm's weight.
    let d${e} = t + ${e * THREADS}u;
    var v${e} = 0.0;
    var g${e} = 0.0;
    if (d${e} < ${KEY_DIM}u) {
      g${e} = select(q_weight[d${e}], k_weight[d${e}], is_key);
      v${e} = convolved(group.x * ${KEY_DIM}u + d${e});
    }
    square += v${e} * v${e};
#endfor
    let mean = workgroup_sum_once(vec4f(square, 0.0, 0.0, 0.0), t).x / ${KEY_DIM}.0;
    let eps = select(bitcast<f32>(${Q_EPS_BITS}u), bitcast<f32>(${K_EPS_BITS}u), is_key);
    let factor = 1.0 / sqrt(mean + eps);
#for e in 0..EACH
    if (d${e} < ${KEY_DIM}u) {
      let normed = v${e} * factor * g${e};
      if (is_key) {
        k[${K_OFFSET}u + head * ${KEY_DIM}u + d${e}] = normed;
      } else {
        q[${Q_OFFSET}u + head * ${KEY_DIM}u + d${e}] = normed;
      }
    }
#endfor
  } else if (group.x < ${2 * KEY_HEADS + VALUE_GROUPS}u) {
    let c = (group.x - ${2 * KEY_HEADS}u) * ${THREADS}u + t;
    if (c < ${VALUES}u) {
      _ = convolved(${2 * KEYS}u + c);
    }
  } else {
    let h = (group.x - ${2 * KEY_HEADS + VALUE_GROUPS}u) * ${THREADS}u + t;
    if (h < ${HEADS}u) {
      beta[${BETA_OFFSET}u + h] = activate(beta_in[${BETA_IN_OFFSET}u + h]);
      decay[${DECAY_OFFSET}u + h] = time_step_value(step_in[${STEP_IN_OFFSET}u + h] + step_bias[h]) * rates[h];
    }
  }
}
