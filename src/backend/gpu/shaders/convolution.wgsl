// A causal depthwise convolution along each sequence: a thread takes a channel, with its last KEPT inputs from and to the
// cache. Workgroups: x over channels, z over slots (sequence.wgsl).
// Template values (recurrent_kernels.cpp): CHANNELS; KEPT = taps - 1; SILU, BIAS. weight: [tap][channel], the last tap for the
// token itself. state: [slot][KEPT][channel], oldest first. A token's row of x, out begins at float token * STRIDE + OFFSET.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> x : array<f32>;
@group(0) @binding(2) var<storage, read> weight : array<f32>;
#if BIAS
@group(0) @binding(3) var<storage, read> bias : array<f32>;
#endif
@group(0) @binding(4) var<storage, read_write> state : array<f32>;
@group(0) @binding(5) var<storage, read_write> out : array<f32>;
#include "sequence.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let c = group.x * ${THREADS}u + t;
  if (c >= ${CHANNELS}u) {
    return;
  }
  let slot = first_slot(group.z);
  let kept_at = slot * ${KEPT * CHANNELS}u + c;
  // Input k of the last KEPT, and its weight.
#for k in 0..KEPT
  var before${k} = state[kept_at + ${k * CHANNELS}u];
  let w${k} = weight[${k * CHANNELS}u + c];
#endfor
  let own = weight[${KEPT * CHANNELS}u + c];
#if BIAS
  let start = bias[c];
#else
  let start = 0.0;
#endif
  let tokens = token_count();
  for (var token = 0u; token < tokens; token++) {
    if (!is_mine(token, slot)) {
      continue;
    }
    if (begins(token)) {
#for k in 0..KEPT
      before${k} = 0.0;
#endfor
    }
    let now = x[token * ${X_STRIDE}u + ${X_OFFSET}u + c];
    var sum = start;
#for k in 0..KEPT
    sum += w${k} * before${k};
#endfor
    sum += own * now;
#for k in 1..KEPT
    before${k - 1} = before${k};
#endfor
    before${KEPT - 1} = now;
#if SILU
    sum = sum / (1.0 + exp(-clamp(sum, -80.0, 80.0)));
#endif
    out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + c] = sum;
  }
#for k in 0..KEPT
  state[kept_at + ${k * CHANNELS}u] = before${k};
#endfor
}
