// Whole numbers of 64 bits as vec2u(high, low): all sums of the sampler, so that they do not depend on the
// order in which threads add to them, nor on how an adapter rounds.
fn less64(a : vec2u, b : vec2u) -> bool {
  return a.x < b.x || (a.x == b.x && a.y < b.y);
}
fn equal64(a : vec2u, b : vec2u) -> bool {
  return a.x == b.x && a.y == b.y;
}
fn zero64(a : vec2u) -> bool {
  return (a.x | a.y) == 0u;
}
fn min64(a : vec2u, b : vec2u) -> vec2u {
  return select(a, b, less64(b, a));
}
fn max64(a : vec2u, b : vec2u) -> vec2u {
  return select(a, b, less64(a, b));
}
fn add64(a : vec2u, b : vec2u) -> vec2u {
  let low = a.y + b.y;
  return vec2u(a.x + b.x + u32(low < a.y), low);
}
fn sub64(a : vec2u, b : vec2u) -> vec2u {
  return vec2u(a.x - b.x - u32(a.y < b.y), a.y - b.y);
}
fn increment64(a : vec2u) -> vec2u {
  return add64(a, vec2u(0u, 1u));
}
fn leading_zeros64(a : vec2u) -> u32 {
  return select(countLeadingZeros(a.x), 32u + countLeadingZeros(a.y), a.x == 0u);
}
// Shifts by 0 to 63, and to the right by any number.
fn left64(a : vec2u, n : u32) -> vec2u {
  if (n == 0u) { return a; }
  if (n >= 32u) { return vec2u(a.y << (n - 32u), 0u); }
  return vec2u((a.x << n) | (a.y >> (32u - n)), a.y << n);
}
fn right64(a : vec2u, n : u32) -> vec2u {
  if (n == 0u) { return a; }
  if (n >= 64u) { return vec2u(0u); }
  if (n >= 32u) { return vec2u(0u, a.x >> (n - 32u)); }
  return vec2u(a.x >> n, (a.x << (32u - n)) | (a.y >> n));
}

// The 64 bits of a product; there is no instruction for its high word.
fn mul32(a : u32, b : u32) -> vec2u {
  let low = (a & 0xffffu) * (b & 0xffffu);
  let cross1 = (a & 0xffffu) * (b >> 16u);
  let cross2 = (a >> 16u) * (b & 0xffffu);
  let middle = (low >> 16u) + (cross1 & 0xffffu) + (cross2 & 0xffffu);
  return vec2u((a >> 16u) * (b >> 16u) + (cross1 >> 16u) + (cross2 >> 16u) + (middle >> 16u), a * b);
}
// The high word without its last carries: at most 2 too small.
fn mul_high(a : u32, b : u32) -> u32 {
  return (a >> 16u) * (b >> 16u) + (((a & 0xffffu) * (b >> 16u)) >> 16u) + (((a >> 16u) * (b & 0xffffu)) >> 16u);
}

struct Product {
  high : vec2u,
  low : vec2u,
}
fn mul64(a : vec2u, b : vec2u) -> Product {
  let low = mul32(a.y, b.y);
  let cross1 = mul32(a.y, b.x);
  let cross2 = mul32(a.x, b.y);
  let middle = add64(add64(vec2u(0u, low.x), vec2u(0u, cross1.y)), vec2u(0u, cross2.y));
  var high = add64(mul32(a.x, b.x), vec2u(0u, middle.x));
  high = add64(add64(high, vec2u(0u, cross1.x)), vec2u(0u, cross2.x));
  return Product(high, vec2u(middle.y, low.y));
}
