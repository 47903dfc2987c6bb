// Mamba's state along each sequence, for ROWS rows of states: S = exp(decay) S + step x B; y = S C + D x. A row's states lie with
// LANES threads, EACH states in the registers of one. Workgroups: x over rows, z over slots (sequence.wgsl).
// Template values (recurrent_kernels.cpp): INNER rows; HEAD_DIM rows of a head; SHARE heads for a group of B and C; STATES. CHANNELS: a row
// is a head, and each of its states has its own rate, decay = step * rate; else a head's decay is given. state:
// [slot][row][STATES]. A token's row of x, b, c, dt, decay, out begins at float token * STRIDE + OFFSET.
// Sources: Gu and Dao, "Mamba" (2023); Dao and Gu, "Transformers are SSMs" (2024).
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> x : array<f32>;
@group(0) @binding(2) var<storage, read> b : array<f32>;
@group(0) @binding(3) var<storage, read> c : array<f32>;
@group(0) @binding(4) var<storage, read> dt : array<f32>;
#if CHANNELS
@group(0) @binding(5) var<storage, read> rates : array<f32>;
#else
@group(0) @binding(5) var<storage, read> decay : array<f32>;
#endif
@group(0) @binding(6) var<storage, read> skip : array<f32>;
@group(0) @binding(7) var<storage, read_write> state : array<f32>;
@group(0) @binding(8) var<storage, read_write> out : array<f32>;
#define THREADS ROWS * LANES
#include "sequence.wgsl"
var<workgroup> sums : array<f32, ${THREADS}>;

// The sum over a row's threads, for the first of them.
fn row_sum(value : f32, t : u32) -> f32 {
  workgroupBarrier();
  sums[t] = value;
  for (var reach = ${LANES / 2}u; reach > 0u; reach /= 2u) {
    workgroupBarrier();
    if (t % ${LANES}u < reach) {
      sums[t] += sums[t + reach];
    }
  }
  return sums[t];
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let row = group.x * ${ROWS}u + t / ${LANES}u;
  let lane = t % ${LANES}u;
  let head = row / ${HEAD_DIM}u;
  let slot = first_slot(group.z);
  let at = (slot * ${INNER}u + row) * ${STATES}u + lane;
  let mine = row < ${INNER}u;
#for n in 0..EACH
  var s${n} = 0.0;
  if (mine && lane + ${n * LANES}u < ${STATES}u) {
    s${n} = state[at + ${n * LANES}u];
  }
#if CHANNELS
  var rate${n} = 0.0;
  if (mine && lane + ${n * LANES}u < ${STATES}u) {
    rate${n} = rates[row * ${STATES}u + lane + ${n * LANES}u];
  }
#endif
#endfor
  let tokens = token_count();
  for (var token = 0u; token < tokens; token++) {
    if (!is_mine(token, slot)) {
      continue;
    }
    if (begins(token)) {
#for n in 0..EACH
      s${n} = 0.0;
#endfor
    }
    var given = 0.0;
    var size = 0.0;
    var sum = 0.0;
    if (mine) {
      given = x[token * ${X_STRIDE}u + ${X_OFFSET}u + row];
      size = dt[token * ${DT_STRIDE}u + ${DT_OFFSET}u + head];
      let states = head / ${SHARE}u * ${STATES}u + lane;
#if !CHANNELS
      let kept = exp(decay[token * ${DECAY_STRIDE}u + ${DECAY_OFFSET}u + head]);
#endif
#for n in 0..EACH
      if (lane + ${n * LANES}u < ${STATES}u) {
#if CHANNELS
        let kept = exp(size * rate${n});
#endif
        s${n} = kept * s${n} + size * given * b[token * ${B_STRIDE}u + ${B_OFFSET}u + states + ${n * LANES}u];
        sum += s${n} * c[token * ${C_STRIDE}u + ${C_OFFSET}u + states + ${n * LANES}u];
      }
#endfor
    }
    let read = row_sum(sum, t);
    if (mine && lane == 0u) {
      out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + row] = read + skip[head] * given;
    }
  }
#for n in 0..EACH
  if (mine && lane + ${n * LANES}u < ${STATES}u) {
    state[at + ${n * LANES}u] = s${n};
  }
#endfor
}
