// What routing_steps.wgsl needs outside of main(): memory and functions. The includer defines
//   ALONE 1: the router's ROUTER_THREADS threads are a subgroup, whose threads keep their experts (OWN of them: router, router +
//   ROUTER_THREADS, ...) in registers; else they are the workgroup
//   CHOOSES, WEIGHS: whether experts are chosen, and weighed
#define OWN (EXPERTS + ROUTER_THREADS - 1) / ROUTER_THREADS
#include "reduce.wgsl"

#if CHOOSES
#define SHUTS KEPT_GROUPS < GROUPS
#define GROUP_SIZE EXPERTS / GROUPS
#if SHUTS || !(ALONE)
var<workgroup> scores : array<f32, ${EXPERTS}>;
#endif
#if !(ALONE)
var<workgroup> taken : array<u32, ${EXPERTS}>;
var<workgroup> best_scores : array<f32, ${ROUTER_THREADS}>;
var<workgroup> best_ids : array<u32, ${ROUTER_THREADS}>;
var<workgroup> chosen : array<u32, ${CHOSEN}>;
#endif
#if SHUTS
var<workgroup> group_scores : array<f32, ${GROUPS}>;
var<workgroup> kept : array<u32, ${GROUPS}>;
#endif
#endif

// Logits that are NaN stay it and go before all others: so they reach the token's logits, where they are noticed.
fn is_nan(v : f32) -> bool {
  return (bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u;
}
fn logistic(v : f32) -> f32 {
  return select(1.0 / (1.0 + exp(-clamp(v, -80.0, 80.0))), v, is_nan(v));
}

#if CHOOSES && ALONE
// Numbers in the order of the scores, above 0, which marks an expert that is taken or none.
fn key_of(score : f32) -> u32 {
  let bits = bitcast<u32>(select(score, 0.0, score == 0.0));
  return select(select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u), 0xffffffffu, is_nan(score));
}
#elif CHOOSES
// Whether expert b with score v goes before expert a with score u; 0xffffffff is none.
fn goes_before(v : f32, b : u32, u : f32, a : u32) -> bool {
  return b != 0xffffffffu && (a == 0xffffffffu || v > u || (v == u && b < a));
}
#endif
