// The head: final norm, logits, softcap, and (GREEDY) for each workgroup its likeliest token but the one that
// step[PAD_WORD] rules out. A workgroup takes every GROUPS-th tile of R rows; the next tile's weights are loaded while this
// one's are multiplied. candidates[workgroup]: (bits of the logit, token); a logit that is NaN or +Inf gives the token
// 0xfffffffe with the largest value.
//
// Template values (decode_products.cpp): R, LANES, UNITS, UNITS_K, FORM, SCALES, ACT as in gemv.wgsl; those of
// norm_prologue.wgsl; GROUPS workgroups; ROWS of this part of the vocabulary, from token ROW0 on; CANDIDATE0 the place of
// the first workgroup's candidate; SOFTCAP 1: logits are capped, SOFTCAP_BITS a float's bits; STORE_LOGITS 1: stored,
// EMIT_RAW 1: also before the cap.
@group(0) @binding(0) var<storage, read> codes : array<vec4u>;
#if FORM >= 3
@group(0) @binding(1) var<storage, read> scales : array<u32>;
#endif
#if GREEDY
@group(0) @binding(2) var<storage, read_write> candidates : array<vec2u>;
@group(0) @binding(5) var<storage, read> step : array<u32>;
#endif
#if STORE_LOGITS
@group(0) @binding(3) var<storage, read_write> logits : array<f32>;
#endif
#if EMIT_RAW
@group(0) @binding(4) var<storage, read_write> raw_logits : array<f32>;
#endif
// COVERED 1: every thread's units exist, so that none is masked.
#define THREADS R * LANES
#define COVERED LANES * UNITS == UNITS_K
#define TILES (ROWS + R - 1) / R
#include "weights.wgsl"
#include "norm_prologue.wgsl"
#include "dot.wgsl"
#include "row_sum.wgsl"
#if GREEDY
var<workgroup> best_values : array<f32, ${R}>;
var<workgroup> best_rows : array<u32, ${R}>;
#endif

@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group : vec3u, @builtin(local_invocation_index) t : u32) {
  let lane = t / ${R}u;
#for u in 0..UNITS
#if COVERED
  let unit${u} = lane * ${UNITS}u + ${u}u;
#else
  let unit${u} = min(lane * ${UNITS}u + ${u}u, ${UNITS_K - 1}u);
#endif
  // Of unit u of this tile: c, a places of codes and scales, w the pieces, s the scale words; of the next tile: nc, na, n, m.
  let c${u} = code_index(group.x * ${R}u + t % ${R}u, unit${u});
#for p in 0..PIECES
  var w${u}_${p} = codes[c${u} + ${p * 64}u];
#endfor
#if QUANTISED
  let a${u} = scale_index(group.x * ${R}u + t % ${R}u, unit${u});
#for s in 0..SCALE_WORDS
  var s${u}_${s} = own_scale(scales[a${u} + ${s * 64}u], unit${u});
#endfor
#endif
#endfor
#if FORM == 9
  var factor = row_factor(group.x * ${R}u + t % ${R}u);
#endif
  prologue(t, group.x == 0u);
#if GREEDY
  let pad = step[${PAD_WORD}];
  var best = -3.4e38;
  var best_row = 0xffffffffu;
#endif
  for (var tile = group.x; tile < ${TILES}u; tile += ${GROUPS}u) {
    let row = tile * ${R}u + t % ${R}u;
    let next = min(tile + ${GROUPS}u, ${TILES - 1}u) * ${R}u + t % ${R}u;
#for u in 0..UNITS
    let nc${u} = code_index(next, unit${u});
#for p in 0..PIECES
    let n${u}_${p} = codes[nc${u} + ${p * 64}u];
#endfor
#if QUANTISED
    let na${u} = scale_index(next, unit${u});
#for s in 0..SCALE_WORDS
    let m${u}_${s} = own_scale(scales[na${u} + ${s * 64}u], unit${u});
#endfor
#endif
#endfor
#if FORM == 9
    let next_factor = row_factor(next);
#endif
    // Neighbours first, as unit_products.wgsl adds them.
#for u in 0..UNITS
    let made${u} = dot_unit(
#for p in 0..PIECES
        w${u}_${p},
#endfor
#for s in 0..SCALE_WORDS
        s${u}_${s},
#endfor
        unit${u});
#if COVERED
    let d_${u} = made${u};
#else
    let d_${u} = select(0.0, made${u}, lane * ${UNITS}u + ${u}u < ${UNITS_K}u);
#endif
#sum d, u, UNITS
#for p in 0..PIECES
    w${u}_${p} = n${u}_${p};
#endfor
#for s in 0..SCALE_WORDS
    s${u}_${s} = m${u}_${s};
#endfor
#endfor
    var logit = row_sum(vec2f(d, 0.0), t).x;
#if FORM == 9
    logit *= factor;
    factor = next_factor;
#endif
    if (t < ${R}u && row < ${ROWS}u) {
#if EMIT_RAW
      raw_logits[${ROW0}u + row] = logit;
#endif
#if SOFTCAP
      // clamp() would make a number of NaN.
      let capped = bitcast<f32>(${SOFTCAP_BITS}u) * tanh(clamp(logit / bitcast<f32>(${SOFTCAP_BITS}u), -15.0, 15.0));
      logit = select(capped, logit, (bitcast<u32>(logit) & 0x7fffffffu) > 0x7f800000u);
#endif
#if STORE_LOGITS
      logits[${ROW0}u + row] = logit;
#endif
#if GREEDY
      // Of equals the lower row, which comes first, stays.
      if (logit > best && ${ROW0}u + row != pad) {
        best = logit;
        best_row = ${ROW0}u + row;
      }
      if (!(logit < 3.4e38)) {
        best = 3.4e38;
        best_row = 0xfffffffeu;
      }
#endif
    }
    workgroupBarrier();
  }
#if GREEDY
  if (t < ${R}u) {
    best_values[t] = best;
    best_rows[t] = best_row;
  }
  workgroupBarrier();
  if (t == 0u) {
    for (var i = 1u; i < ${R}u; i++) {
      let value = best_values[i];
      let row = best_rows[i];
      if (value > best || (value == best && row < best_row)) {
        best = value;
        best_row = row;
      }
    }
    candidates[${CANDIDATE0}u + group.x] = vec2u(bitcast<u32>(best), best_row);
  }
#endif
}
