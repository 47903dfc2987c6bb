// Blocks of 32 values as eight neighbouring threads hold them, four values each: the codes of a thread's four and, in each
// of the eight, the block's scale and the sum of its codes. The bits are those of quantise.wgsl. All THREADS threads call it.
// WIDE 1: eight blocks, the 256 values of 64 neighbouring threads, share the scale of the largest, for products that have one scale for
// them (gemm.wgsl). It is 2^-63 at least, since those divide a scale by another. THREADS is a multiple of 64 then.
#default WIDE 0
#include "quantise_block.wgsl"
struct Quantised {
  word : u32,   // the thread's four codes, a signed byte each
  scale : f32,  // of the block
  sum : i32,    // of the block's codes
}
#if WIDE
const kLeastOfWide = 127.0 * 0x1p-63;
var<workgroup> block_most : array<f32, ${THREADS / 8}>;
// The largest of eight blocks, where `most` is that of the thread's own.
fn most_of_wide(most : f32, t : u32) -> f32 {
  workgroupBarrier();  // the values of the call before have been read
  if ((t & 7u) == 0u) {
    block_most[t >> 3u] = most;
  }
  workgroupBarrier();
  let first = (t >> 6u) * 8u;
  var all = kLeastOfWide;
#for i in 0..8
  all = max(all, block_most[first + ${i}u]);
#endfor
  return all;
}
#endif
#if SUBGROUPS && SUBGROUP_SIZE >= 8 && THREADS % SUBGROUP_SIZE == 0
fn quantise_vec(v : vec4f, t : u32) -> Quantised {
  var most = largest(v);
  most = max(most, subgroupShuffleXor(most, 1u));
  most = max(most, subgroupShuffleXor(most, 2u));
  most = max(most, subgroupShuffleXor(most, 4u));
#if WIDE
  most = most_of_wide(most, t);
#endif
  let codes = codes_of(v, select(0.0, 127.0 / most, most > 0.0));
  var sum = codes.x + codes.y + codes.z + codes.w;
  sum += subgroupShuffleXor(sum, 1u);
  sum += subgroupShuffleXor(sum, 2u);
  sum += subgroupShuffleXor(sum, 4u);
  return Quantised(pack4xI8(codes), most / 127.0, sum);
}
#else
var<workgroup> quantise_most : array<f32, ${THREADS}>;
var<workgroup> quantise_sum : array<i32, ${THREADS}>;
fn quantise_vec(v : vec4f, t : u32) -> Quantised {
  let first = t & ~7u;
  workgroupBarrier();
  quantise_most[t] = largest(v);
  workgroupBarrier();
  var most = quantise_most[first];
#for i in 1..8
  most = max(most, quantise_most[first + ${i}u]);
#endfor
#if WIDE
  most = most_of_wide(most, t);
#endif
  let codes = codes_of(v, select(0.0, 127.0 / most, most > 0.0));
  quantise_sum[t] = codes.x + codes.y + codes.z + codes.w;
  workgroupBarrier();
  var sum = quantise_sum[first];
#for i in 1..8
  sum += quantise_sum[first + ${i}u];
#endfor
  return Quantised(pack4xI8(codes), most / 127.0, sum);
}
#endif
