// The gated delta rule along each sequence, for COLUMNS columns of a head's state [KEY_DIM, VALUE_DIM]: S = exp(decay) S;
// S = S + k (x) beta (v - S' k); o = S' q. A column's rows lie with PARTS threads, EACH rows in the registers of one.
// Workgroups: x over heads and blocks of columns, z over slots (sequence.wgsl).
// Template values (recurrent_kernels.cpp): HEADS, SHARE heads for a head of keys, KEY_DIM, VALUE_DIM, COLUMNS, PARTS, EACH. state:
// [slot][head][KEY_DIM][VALUE_DIM]. A token's row of q, k, v, beta, decay, out begins at float token * STRIDE + OFFSET.
// Source: Yang et al., "Gated Delta Networks" (2024).
@group(0) @binding(0) var<storage, read> step : array<u32>;
@group(0) @binding(1) var<storage, read> q : array<f32>;
@group(0) @binding(2) var<storage, read> k : array<f32>;
@group(0) @binding(3) var<storage, read> v : array<f32>;
@group(0) @binding(4) var<storage, read> beta : array<f32>;
@group(0) @binding(5) var<storage, read> decay : array<f32>;
@group(0) @binding(6) var<storage, read_write> state : array<f32>;
@group(0) @binding(7) var<storage, read_write> out : array<f32>;
#define BLOCKS (VALUE_DIM + COLUMNS - 1) / COLUMNS
#define THREADS COLUMNS * PARTS
#include "sequence.wgsl"
var<workgroup> sums : array<f32, ${THREADS}>;

// The sum over a column's parts, for all threads of the column.
fn column_sum(value : f32, t : u32) -> f32 {
  workgroupBarrier();
  sums[t] = value;
  workgroupBarrier();
  var total = 0.0;
#for p in 0..PARTS
  total += sums[t % ${COLUMNS}u + ${p * COLUMNS}u];
#endfor
  return total;
}

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let head = group.x / ${BLOCKS}u;
  let j = group.x % ${BLOCKS}u * ${COLUMNS}u + t % ${COLUMNS}u;
  let row0 = t / ${COLUMNS}u * ${EACH}u;
  let slot = first_slot(group.z);
  let at = ((slot * ${HEADS}u + head) * ${KEY_DIM}u + row0) * ${VALUE_DIM}u + j;
  let mine = j < ${VALUE_DIM}u;
#for n in 0..EACH
  var s${n} = 0.0;
  if (mine && row0 + ${n}u < ${KEY_DIM}u) {
    s${n} = state[at + ${n * VALUE_DIM}u];
  }
#endfor
  let tokens = token_count();
  for (var token = 0u; token < tokens; token++) {
    if (!is_mine(token, slot)) {
      continue;
    }
    var kept = exp(decay[token * ${DECAY_STRIDE}u + ${DECAY_OFFSET}u + head]);
    if (begins(token)) {
      kept = 0.0;
#for n in 0..EACH
      s${n} = 0.0;
#endfor
    }
    let keys = token * ${K_STRIDE}u + ${K_OFFSET}u + head / ${SHARE}u * ${KEY_DIM}u + row0;
    let queries = token * ${Q_STRIDE}u + ${Q_OFFSET}u + head / ${SHARE}u * ${KEY_DIM}u + row0;
    var read = 0.0;
#for n in 0..EACH
    var k${n} = 0.0;
    if (row0 + ${n}u < ${KEY_DIM}u) {
      k${n} = k[keys + ${n}u];
    }
    s${n} *= kept;
    read += k${n} * s${n};
#endfor
    var value = 0.0;
    if (mine) {
      value = v[token * ${V_STRIDE}u + ${V_OFFSET}u + head * ${VALUE_DIM}u + j];
    }
    let change = beta[token * ${BETA_STRIDE}u + ${BETA_OFFSET}u + head] * (value - column_sum(read, t));
    var answer = 0.0;
#for n in 0..EACH
    s${n} += k${n} * change;
    if (row0 + ${n}u < ${KEY_DIM}u) {
      answer += q[queries + ${n}u] * s${n};
    }
#endfor
    let result = column_sum(answer, t);
    if (mine && row0 == 0u) {
      out[token * ${OUT_STRIDE}u + ${OUT_OFFSET}u + head * ${VALUE_DIM}u + j] = result;
    }
  }
#for n in 0..EACH
  if (mine && row0 + ${n}u < ${KEY_DIM}u) {
    state[at + ${n * VALUE_DIM}u] = s${n};
  }
#endfor
}
