// A layer's cache: rows of DIM values (a head's size) at [slot][kv_head][position % CAPACITY], f32 or (KV_HALF) two f16 in
// a word. slot: the sequence's place in the cache; CAPACITY: its positions there; KV_HEADS: heads of keys and values.
// kv_row: the first word of a position's row.
#if KV_HALF
#define KV_WORDS DIM / 2
#else
#define KV_WORDS DIM
#endif
fn kv_row(slot : u32, kv_head : u32, position : u32) -> u32 {
  return ((slot * ${KV_HEADS}u + kv_head) * ${CAPACITY}u + position % ${CAPACITY}u) * ${KV_WORDS}u;
}
