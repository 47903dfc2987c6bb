// Tiles of 16 x 16 values that the threads of a subgroup hold together, by five operations, so that other dialects can
// follow: coop_zero, coop_load_a (of tile_x), coop_load_b (of tile_w), coop_mma and coop_store (in `staged`, or in `out`).
// A has halves [token][k], B halves [row][k] of W, C floats [token][row]; the loads' places count vec4s, PITCH of them between rows.
//   COOP 1: wgpu's cooperative matrices; 0: plain loops, slow, which show on any adapter that the rest of a kernel is right.
// A module with them has no subgroup operations: NVIDIA's driver 595 crashes on both together.
#if COOP == 1
alias CoopA = coop_mat16x16<f16, A>;
alias CoopB = coop_mat16x16<f16, B>;
alias CoopC = coop_mat16x16<f32, C>;
fn coop_begin(t : u32) {}
fn coop_zero() -> CoopC {
  return CoopC();
}
fn coop_load_a(at : u32) -> CoopA {
  return coopLoadT<CoopA>(&tile_x[at], ${PITCH}u);
}
fn coop_load_b(at : u32) -> CoopB {
  return coopLoad<CoopB>(&tile_w[at], ${PITCH}u);
}
fn coop_mma(a : CoopA, b : CoopB, c : CoopC) -> CoopC {
  return coopMultiplyAdd(a, b, c);
}
fn coop_store(c : CoopC, at : u32) {
  coopStoreT(c, &staged[at], 16u);
}
fn coop_store_out(c : CoopC, at : u32) {
  coopStoreT(c, &out[at], ${OUT_STRIDE}u);
}
#else
// Of C a thread has every second row's value in its column; A and B stay where they are.
alias CoopA = u32;
alias CoopB = u32;
alias CoopC = array<f32, 8>;
var<private> coop_lane : u32;
fn coop_begin(t : u32) {
  coop_lane = t & 31u;
}
fn coop_zero() -> CoopC {
  return CoopC();
}
fn coop_load_a(at : u32) -> CoopA {
  return at;
}
fn coop_load_b(at : u32) -> CoopB {
  return at;
}
fn coop_mma(a : CoopA, b : CoopB, c : CoopC) -> CoopC {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    let from_a = a + (2u * i + coop_lane / 16u) * ${PITCH}u;
    let from_b = b + (coop_lane & 15u) * ${PITCH}u;
    for (var v = 0u; v < 4u; v++) {
      sums[i] += dot(vec4f(tile_x[from_a + v]), vec4f(tile_w[from_b + v]));
    }
  }
  return sums;
}
fn coop_store(c : CoopC, at : u32) {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    staged[at + 32u * i + coop_lane] = sums[i];
  }
}
fn coop_store_out(c : CoopC, at : u32) {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    out[at + (2u * i + coop_lane / 16u) * ${OUT_STRIDE}u + (coop_lane & 15u)] = sums[i];
  }
}
#endif
