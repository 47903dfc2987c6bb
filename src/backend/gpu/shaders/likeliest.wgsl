// For each workgroup the likeliest of its share of the VOCAB logits of a row, but for the token that step[PAD_WORD] rules out, as
// head.wgsl does it on its way; for a head that is several kernels. candidates[row][workgroup]: (bits of the logit, token); a
// logit that is NaN or +Inf gives the token 0xfffffffe with the largest value. Workgroups: x, GROUPS of them, y over rows.
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> logits : array<f32>;
@group(0) @binding(2) var<storage, read_write> candidates : array<vec2u>;
#include "best_of_workgroup.wgsl"

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let pad = step[${PAD_WORD}];
  var best = -3.4e38;
  var best_row = 0xffffffffu;
  for (var row = group.x * ${THREADS}u + t; row < ${VOCAB}u; row += ${GROUPS * THREADS}u) {
    let logit = logits[group.y * ${VOCAB}u + row];
    // Of equals the lower row, which comes first, stays.
    if (logit > best && row != pad) {
      best = logit;
      best_row = row;
    }
    if (!(logit < 3.4e38)) {
      best = 3.4e38;
      best_row = 0xfffffffeu;
    }
  }
  best_values[t] = best;
  best_rows[t] = best_row;
  find_best_of_workgroup(t);
  if (t == 0u) {
    candidates[group.y * ${GROUPS}u + group.x] = vec2u(bitcast<u32>(best_values[0]), best_rows[0]);
  }
}
