// A layer's cache: rows of DIM values (a head's size), f32 or (KV_HALF) two f16 in a word, at
// [block][kv_head][position % CAPACITY]. slot: the sequence's place in the cache; KV_HEADS: heads of keys and values. A block is a
// slot's, which has CAPACITY positions; or, with PAGE_TABLE, a page of so many, whose number stands in `step`: from the word
// PAGE_TABLE on a row of PAGE_ROW pages for each slot, which the host fills ahead of the positions that are written; or, where tokens come
// alone, in the row at ALONE_ROW, whoever's it is.
// block_of: where a position lies; row_in: its row in a block that is known; cache_row: both; kv_row: the row's first word.
#default PAGE_TABLE 0
#default ALONE_ROW 0
#if KV_HALF
#define KV_WORDS DIM / 2
#else
#define KV_WORDS DIM
#endif
fn block_of(slot : u32, position : u32) -> u32 {
#if ALONE_ROW
  return step[${ALONE_ROW}u + position / ${CAPACITY}u];
#elif PAGE_TABLE
  return step[${PAGE_TABLE}u + slot * ${PAGE_ROW}u + position / ${CAPACITY}u];
#else
  return slot;
#endif
}
fn row_in(block : u32, kv_head : u32, position : u32) -> u32 {
  return (block * ${KV_HEADS}u + kv_head) * ${CAPACITY}u + position % ${CAPACITY}u;
}
fn cache_row(slot : u32, kv_head : u32, position : u32) -> u32 {
  return row_in(block_of(slot, position), kv_head, position);
}
fn kv_row(slot : u32, kv_head : u32, position : u32) -> u32 {
  return cache_row(slot, kv_head, position) * ${KV_WORDS}u;
}
