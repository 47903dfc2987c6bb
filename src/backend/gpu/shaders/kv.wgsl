// A layer's cache: rows of DIM values at [slot][kv_head][position % CAPACITY], f32 or (KV_HALF) two f16 in a word.
#if KV_HALF
#define KV_WORDS DIM / 2
#else
#define KV_WORDS DIM
#endif
fn kv_row(slot : u32, kv_head : u32, position : u32) -> u32 {
  return ((slot * ${KV_HEADS}u + kv_head) * ${CAPACITY}u + position % ${CAPACITY}u) * ${KV_WORDS}u;
}
