// Helpers that the kernel files share, compiled once per target: loading weights as float vectors, sums over
// lanes, exp and tanh.
#if defined(DOPPLER_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DOPPLER_CPU_SIMD_INL_H_
#undef DOPPLER_CPU_SIMD_INL_H_
#else
#define DOPPLER_CPU_SIMD_INL_H_
#endif

#include <cstring>

#include "backend/cpu/kernels.h"
#include "hwy/highway.h"

// Arrays of vectors only stay in registers if every loop over them is unrolled completely.
#if defined(__clang__)
#define DOPPLER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define DOPPLER_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t kLanes = hn::MaxLanes(D());

// AVX-512 and NEON have 32 vector registers, the others 16.
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON;

HWY_INLINE float sum_of(V v) {
  return hn::GetLane(hn::SumOfLanes(D(), v));
}

// How kLanes weights of a type become floats. `load` reads from any address.
struct F32 {
  static constexpr std::size_t kBytes = 4;
  static HWY_INLINE V load(const std::uint8_t* p) {
    return hn::LoadU(D(), reinterpret_cast<const float*>(p));
  }
};
struct Bf16 {
  static constexpr std::size_t kBytes = 2;
  static HWY_INLINE V load(const std::uint8_t* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
    return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
  }
};
struct F16 {
  static constexpr std::size_t kBytes = 2;
  static HWY_INLINE V load(const std::uint8_t* p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(D(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
    // Without an instruction: shift the fields into place and move the exponent with a multiplication, which
    // is exact for subnormals too; Inf and NaN then need their exponent set. (Highway's own emulation turns
    // Inf into a number.)
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(p)));
    const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffu));
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(d32, 0x8000u)));
    const auto moved = hn::Mul(hn::BitCast(D(), hn::ShiftLeft<13>(magnitude)), hn::Set(D(), 0x1p112f));
    const auto special = hn::MaskFromVec(hn::BitCast(
        D(), hn::VecFromMask(hn::RebindToSigned<D>(), hn::Gt(hn::BitCast(hn::RebindToSigned<D>(), magnitude),
                                                             hn::Set(hn::RebindToSigned<D>(), 0x7bff)))));
    const auto widened = hn::BitCast(d32, moved);
    const auto with_exponent = hn::Or(widened, hn::Set(d32, 0x7f800000u));
    const auto chosen = hn::IfThenElse(special, hn::BitCast(D(), with_exponent), moved);
    return hn::Or(chosen, hn::BitCast(D(), sign));
#endif
  }
};

// The first `count` < kLanes weights, then zeros.
template <class W>
HWY_INLINE V load_some(const std::uint8_t* p, std::size_t count) {
  HWY_ALIGN std::uint8_t buffer[kLanes * W::kBytes] = {};
  std::memcpy(buffer, p, count * W::kBytes);
  return W::load(buffer);
}
HWY_INLINE V load_some(const float* p, std::size_t count) {
  return load_some<F32>(reinterpret_cast<const std::uint8_t*>(p), count);
}
HWY_INLINE void store_some(V v, float* p, std::size_t count) {
  HWY_ALIGN float buffer[kLanes];
  hn::Store(v, D(), buffer);
  std::memcpy(p, buffer, count * sizeof(float));
}

// e^x within 2e-7, relative: x = n ln 2 + r, Taylor's series to r^7 (the next term is below 6e-9 for |r| <=
// ln 2 / 2), then 2^n in two halves so that subnormal results and overflow come out right.
HWY_INLINE V exp_of(V x) {
  const D d;
  const hn::RebindToSigned<D> di;
  const auto nan = hn::IsNaN(x);
  const V bounded =
      hn::Min(hn::Max(hn::IfThenElse(nan, hn::Zero(d), x), hn::Set(d, -105.0f)), hn::Set(d, 89.0f));
  const V n = hn::Round(hn::Mul(bounded, hn::Set(d, 1.44269504f)));
  V r =
      hn::NegMulAdd(n, hn::Set(d, 0.693359375f), bounded);  // the upper 9 bits of ln 2: the product is exact
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, 127);
  const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::IfThenElse(nan, x, hn::Mul(hn::Mul(p, first), second));
}

// tanh x within 4e-7, relative: Taylor's series to x^11 below 0.3 (the next term is 2e-9 of the result),
// beyond it 1 - 2 / (e^2|x| + 1).
HWY_INLINE V tanh_of(V x) {
  const D d;
  const V magnitude = hn::Abs(x);
  const V square = hn::Mul(x, x);
  V p = hn::Set(d, -1382.0f / 155925);
  p = hn::MulAdd(p, square, hn::Set(d, 62.0f / 2835));
  p = hn::MulAdd(p, square, hn::Set(d, -17.0f / 315));
  p = hn::MulAdd(p, square, hn::Set(d, 2.0f / 15));
  p = hn::MulAdd(p, square, hn::Set(d, -1.0f / 3));
  const V small = hn::MulAdd(hn::Mul(p, square), x, x);
  const V one = hn::Set(d, 1.0f);
  const V e = exp_of(hn::Add(magnitude, magnitude));
  const V large = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.3f)), small, large);
}

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
