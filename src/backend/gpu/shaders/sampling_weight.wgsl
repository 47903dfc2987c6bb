// Weights and buckets from the distance of a score to the largest. A weight is 2^-(distance * log2(e) / temperature); the
// exponent is the number of halvings.
#include "sampling_double.wgsl"

fn distance_of(largest : Number, key : vec2u) -> Number {
  return sum(largest, unpack(negated(double_of_key(key))));
}

// The number of halvings that a distance stands for, in units of 2^-25; the rate is log2(e) / temperature.
fn halvings(distance : Number, rate : Number) -> u32 {
  if (zero64(distance.mantissa)) { return 0u; }
  // The upper halves of the mantissas count units of 2^-31, so the high word of their product counts units of 2^-30.
  let product = mul32(distance.mantissa.x, rate.mantissa.x).x;
  let shift = 5 - distance.exponent - rate.exponent;
  if (shift < 0) { return 0xffffffffu; }
  return select(product >> min(u32(shift), 31u), 0u, shift > 31);
}

// 2^-halvings in units of 2^-42, at least one: the sum of 2^22 of them fits 64 bits, and what 2^18 tokens lose
// by rounding is less than 2^-24 of what the likeliest weighs. 2^-f for 0 <= f < 1 is a polynomial that
// interpolates it at seven Chebyshev points, within 1.4e-9; its coefficients in units of 2^-32.
fn weight_of(halvings : u32) -> vec2u {
  let f = halvings << 7u;
  let n = halvings >> 25u;
  var p = 5478403u - mul_high(469564u, f);
  p = 41145185u - mul_high(p, f);
  p = 238331739u - mul_high(p, f);
  p = 1031755646u - mul_high(p, f);
  p = 2977043891u - mul_high(p, f);
  p = 4294967290u - mul_high(p, f);
  if (n <= 10u) { return left64(vec2u(0u, p), 10u - n); }
  return vec2u(0u, select(max(p >> min(n - 10u, 31u), 1u), 1u, n > 41u));
}

// Likelier tokens lie in lower buckets, which divide the distance `span` evenly: a distance in units of which
// `span` has 2^12 to 2^13, times factor / 2^16, is a bucket's number.
struct Ruler {
  exponent : i32,  // of the span
  factor : u32,
}
fn ruler_of(span : Number) -> Ruler {
  return Ruler(span.exponent, ${LAST_BUCKET << 16}u / max(span.mantissa.x >> 19u, 4096u));
}
fn bucket_of(distance : Number, ruler : Ruler) -> u32 {
  let shift = 19 + ruler.exponent - distance.exponent;
  if (zero64(distance.mantissa) || shift > 31) { return 0u; }
  if (shift < 19) { return ${LAST_BUCKET}u; }
  return min(((distance.mantissa.x >> u32(shift)) * ruler.factor) >> 16u, ${LAST_BUCKET}u);
}
