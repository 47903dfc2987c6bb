// Doubles, which WGSL lacks, in whole numbers: bits as vec2u(high, low), rounded to nearest even, so that
// scores and their order are the CPU's to the last bit. There are no infinities and NaNs in here, and magnitudes
// below the smallest normal double count as 0.
#include "sampling_u64.wgsl"

// mantissa / 2^63 * 2^exponent; the mantissa's highest bit is set, but for 0.
struct Number {
  negative : bool,
  exponent : i32,
  mantissa : vec2u,
}
const kZeroExponent = -100000;  // below any other, so that magnitudes compare by exponent first

fn unpack(bits : vec2u) -> Number {
  let biased = (bits.x >> 20u) & 0x7ffu;
  if (biased == 0u) { return Number(false, kZeroExponent, vec2u(0u)); }
  let mantissa = left64(vec2u((bits.x & 0xfffffu) | 0x100000u, bits.y), 11u);
  return Number((bits.x >> 31u) != 0u, i32(biased) - 1023, mantissa);
}

// The lowest bit of the mantissa also stands for all beyond it.
fn pack(n : Number) -> vec2u {
  if (zero64(n.mantissa)) { return vec2u(0u); }
  let rest = n.mantissa.y & 0x7ffu;
  var kept = right64(n.mantissa, 11u);
  var exponent = n.exponent;
  if (rest > 0x400u || (rest == 0x400u && (kept.y & 1u) != 0u)) {
    kept = increment64(kept);
    if (kept.x == 0x200000u) {
      kept.x = 0x100000u;
      exponent += 1;
    }
  }
  let sign = select(0u, 0x80000000u, n.negative);
  if (exponent < -1022) { return vec2u(0u); }
  return vec2u(sign | (u32(exponent + 1023) << 20u) | (kept.x & 0xfffffu), kept.y);
}

fn negated(bits : vec2u) -> vec2u {
  return vec2u(bits.x ^ 0x80000000u, bits.y);
}

// a >> n, with the lowest bit set if anything was lost: what rounding needs to know.
fn sticky_right(a : vec2u, n : u32) -> vec2u {
  let shifted = right64(a, n);
  let lost = n >= 64u || !equal64(left64(shifted, n), a);
  return vec2u(shifted.x, shifted.y | u32(lost));
}

// a + b to 63 bits or more.
fn sum(a : Number, b : Number) -> Number {
  if (zero64(a.mantissa)) { return b; }
  if (zero64(b.mantissa)) { return a; }
  let a_larger = a.exponent > b.exponent || (a.exponent == b.exponent && !less64(a.mantissa, b.mantissa));
  var large = a;
  var small = b;
  if (!a_larger) {
    large = b;
    small = a;
  }
  let aligned = sticky_right(right64(small.mantissa, 1u), u32(large.exponent - small.exponent));
  var mantissa = right64(large.mantissa, 1u);
  if (large.negative == small.negative) {
    mantissa = add64(mantissa, aligned);
  } else {
    mantissa = sub64(mantissa, aligned);
  }
  if (zero64(mantissa)) { return Number(false, kZeroExponent, vec2u(0u)); }
  let shift = leading_zeros64(mantissa);
  return Number(large.negative, large.exponent + 1 - i32(shift), left64(mantissa, shift));
}
fn add_double(a : vec2u, b : vec2u) -> vec2u {
  return pack(sum(unpack(a), unpack(b)));
}

fn mul_double(a : vec2u, b : vec2u) -> vec2u {
  let x = unpack(a);
  let y = unpack(b);
  if (zero64(x.mantissa) || zero64(y.mantissa)) { return vec2u(0u); }
  var p = mul64(x.mantissa, y.mantissa);
  var exponent = x.exponent + y.exponent + 1;
  if ((p.high.x >> 31u) == 0u) {
    p.high = vec2u((p.high.x << 1u) | (p.high.y >> 31u), (p.high.y << 1u) | (p.low.x >> 31u));
    p.low = left64(p.low, 1u);
    exponent -= 1;
  }
  p.high.y |= u32(!zero64(p.low));
  return pack(Number(x.negative != y.negative, exponent, p.high));
}

// b is not 0.
fn div_double(a : vec2u, b : vec2u) -> vec2u {
  let x = unpack(a);
  let y = unpack(b);
  if (zero64(x.mantissa)) { return vec2u(0u); }
  var rest = right64(x.mantissa, 11u);
  let divisor = right64(y.mantissa, 11u);
  var exponent = x.exponent - y.exponent;
  if (less64(rest, divisor)) {
    rest = left64(rest, 1u);
    exponent -= 1;
  }
  // 56 bits: 53 to keep, one to round, and more that the remainder joins.
  var quotient = vec2u(0u);
  for (var i = 0u; i < 56u; i += 1u) {
    quotient = left64(quotient, 1u);
    if (!less64(rest, divisor)) {
      rest = sub64(rest, divisor);
      quotient.y |= 1u;
    }
    rest = left64(rest, 1u);
  }
  quotient = left64(quotient, 8u);
  quotient.y |= u32(!zero64(rest));
  return pack(Number(x.negative != y.negative, exponent, quotient));
}

fn double_of_count(count : u32) -> vec2u {
  if (count == 0u) { return vec2u(0u); }
  let shift = countLeadingZeros(count);
  return pack(Number(false, 31 - i32(shift), vec2u(count << shift, 0u)));
}

// Of a finite float's bits.
fn double_of_float(bits : u32) -> vec2u {
  let magnitude = bits & 0x7fffffffu;
  if (magnitude == 0u) { return vec2u(0u); }
  var mantissa = 0x80000000u | (bits << 8u);
  var exponent = i32(magnitude >> 23u) - 127;
  if (exponent == -127) {
    let shift = countLeadingZeros(magnitude);
    mantissa = magnitude << shift;
    exponent = -118 - i32(shift);  // the lowest bit of a float is worth 2^-149
  }
  return vec2u((bits & 0x80000000u) | (u32(exponent + 1023) << 20u) | ((mantissa << 1u) >> 12u), mantissa << 21u);
}

// Whole numbers that are ordered as the doubles are, and back. No number has the key 0.
fn key_of(bits : vec2u) -> vec2u {
  if (zero64(bits)) { return vec2u(0x80000000u, 0u); }
  return select(vec2u(bits.x | 0x80000000u, bits.y), ~bits, (bits.x >> 31u) != 0u);
}
fn double_of_key(key : vec2u) -> vec2u {
  return select(~key, vec2u(key.x & 0x7fffffffu, key.y), (key.x >> 31u) != 0u);
}

fn not_above(a : Number, limit : Number) -> bool {
  return a.exponent < limit.exponent || (a.exponent == limit.exponent && !less64(limit.mantissa, a.mantissa));
}
