// Tiles of 16 x 16 values that the threads of a subgroup hold together, behind a few operations, so that other dialects can
// follow: coop_zero, coop_mma and coop_store (in `staged`, row after row), and loads, which are the kernels', as each loads from buffers of its own.
// A has halves [row][k], B halves [k][column], C floats [row][column].
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
fn coop_mma(a : CoopA, b : CoopB, c : CoopC) -> CoopC {
  return coopMultiplyAdd(a, b, c);
}
fn coop_store(c : CoopC, at : u32) {
  coopStoreT(c, &staged[at], 16u);
}
#else
// Of C a thread has every second row's value in its column. A and B stay where they are: an index stands for a tile, and the
// kernel's own coop_mma adds products of what lies there, by these two.
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
// The i-th of a thread's rows, and its column.
fn coop_row(i : u32) -> u32 {
  return 2u * i + coop_lane / 16u;
}
fn coop_column() -> u32 {
  return coop_lane & 15u;
}
fn coop_store(c : CoopC, at : u32) {
  var sums = c;
  for (var i = 0u; i < 8u; i++) {
    staged[at + 32u * i + coop_lane] = sums[i];
  }
}
#endif
