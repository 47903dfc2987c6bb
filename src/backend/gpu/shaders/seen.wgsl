// The first position that a token sees. WINDOW newest positions, or 0: all; CHUNKED: of chunks of WINDOW positions the newest.
fn first_of(position : u32) -> u32 {
#if WINDOW && CHUNKED
  return position - position % ${WINDOW}u;
#elif WINDOW
  return select(0u, position + 1u - ${WINDOW}u, position + 1u > ${WINDOW}u);
#else
  return 0u;
#endif
}
