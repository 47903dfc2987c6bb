// The tokens that a workgroup goes along: of a step of many tokens (BATCH) those of the slot with the workgroup's number z; of a
// program for one token that token. Template values: COUNT, POSITIONS, SLOTS the words of `step` where the number of tokens
// stands, and where their positions and slots begin.
#if BATCH
fn first_slot(z : u32) -> u32 {
  return z;
}
fn token_count() -> u32 {
  return step[${COUNT}u];
}
fn is_mine(token : u32, slot : u32) -> bool {
  return step[${SLOTS}u + token] == slot;
}
#else
fn first_slot(z : u32) -> u32 {
  return step[${SLOTS}u];
}
fn token_count() -> u32 {
  return 1u;
}
fn is_mine(token : u32, slot : u32) -> bool {
  return true;
}
#endif
fn begins(token : u32) -> bool {
  return step[${POSITIONS}u + token] == 0u;
}
