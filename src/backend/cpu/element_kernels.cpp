// Everything that touches each value once: decoding embeddings, norms, rotation, sums, activations, softcaps.
// Tails go through the same vector code on a padded copy, so that a value's place in a row changes no bit of
// its result.
#include "backend/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/element_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <cmath>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd-inl.h"
#include "model/activation.h"

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {
namespace {

template <class W>
void decode_row_of(const std::uint8_t* from, std::size_t cols, float scale, float* out) {
  const D d;
  const V factor = hn::Set(d, scale);
  std::size_t i = 0;
  for (; i + kLanes <= cols; i += kLanes)
    hn::StoreU(hn::Mul(W::load(from + i * W::kBytes), factor), d, out + i);
  if (i < cols) store_some(hn::Mul(load_some<W>(from + i * W::kBytes, cols - i), factor), out + i, cols - i);
}

void decode_row(const WeightMatrix& weight, std::size_t row, float scale, float* out) {
  const std::uint8_t* data = weight.data;
  switch (weight.dtype) {
    case DType::kF32:
      return decode_row_of<F32>(data + row * weight.cols * F32::kBytes, weight.cols, scale, out);
    case DType::kF16:
      return decode_row_of<F16>(data + row * weight.cols * F16::kBytes, weight.cols, scale, out);
    case DType::kBF16:
      return decode_row_of<Bf16>(data + row * weight.cols * Bf16::kBytes, weight.cols, scale, out);
    default:
      return;  // the backend refuses other types before it runs
  }
}

void rms_norm(const float* in, const float* weight, std::size_t dim, double eps, float* out) {
  const D d;
  const std::size_t whole = dim / kLanes * kLanes, tail = dim - whole;
  V squares = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += kLanes) {
    const V x = hn::LoadU(d, in + i);
    squares = hn::MulAdd(x, x, squares);
  }
  if (tail != 0) {
    const V x = load_some(in + whole, tail);
    squares = hn::MulAdd(x, x, squares);
  }
  const double mean = static_cast<double>(sum_of(squares)) / static_cast<double>(dim);
  const V inverse = hn::Set(d, static_cast<float>(1 / std::sqrt(mean + eps)));
  for (std::size_t i = 0; i < whole; i += kLanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, in + i), inverse), hn::LoadU(d, weight + i)), d, out + i);
  }
  if (tail != 0) {
    store_some(hn::Mul(hn::Mul(load_some(in + whole, tail), inverse), load_some(weight + whole, tail)),
               out + whole, tail);
  }
}

void center(const float* in, std::size_t dim, float* out) {
  const D d;
  const std::size_t whole = dim / kLanes * kLanes, tail = dim - whole;
  V sum = hn::Zero(d);
  for (std::size_t i = 0; i < whole; i += kLanes) sum = hn::Add(sum, hn::LoadU(d, in + i));
  if (tail != 0) sum = hn::Add(sum, load_some(in + whole, tail));
  const double mean = static_cast<double>(sum_of(sum)) / static_cast<double>(dim);
  const V taken = hn::Set(d, static_cast<float>(mean));
  for (std::size_t i = 0; i < whole; i += kLanes)
    hn::StoreU(hn::Sub(hn::LoadU(d, in + i), taken), d, out + i);
  if (tail != 0) store_some(hn::Sub(load_some(in + whole, tail), taken), out + whole, tail);
}

void rope(const float* in, const float* cos, const float* sin, std::size_t pairs, std::size_t dim,
          RopeLayout layout, float* out) {
  const D d;
  std::size_t i = 0;
  const bool half = layout == RopeLayout::kHalf;
  for (; half && i + kLanes <= pairs; i += kLanes) {
    const V x = hn::LoadU(d, in + i), y = hn::LoadU(d, in + pairs + i);
    const V c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(x, c), hn::Mul(y, s)), d, out + i);
    hn::StoreU(hn::Add(hn::Mul(y, c), hn::Mul(x, s)), d, out + pairs + i);
  }
  for (; i < pairs; ++i) {
    const std::size_t first = half ? i : 2 * i, second = half ? i + pairs : 2 * i + 1;
    const float x = in[first], y = in[second];
    const bool stays = layout != RopeLayout::kInterleavedToHalf;
    out[stays ? first : i] = x * cos[i] - y * sin[i];
    out[stays ? second : i + pairs] = y * cos[i] + x * sin[i];
  }
  for (i = 2 * pairs; i < dim; ++i) out[i] = in[i];
}

void add(const float* a, const float* b, float scale, std::size_t count, float* out) {
  const D d;
  const V factor = hn::Set(d, scale);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(hn::MulAdd(hn::LoadU(d, b + i), factor, hn::LoadU(d, a + i)), d, out + i);
  if (i < count)
    store_some(hn::MulAdd(load_some(b + i, count - i), factor, load_some(a + i, count - i)), out + i,
               count - i);
}

void scale(const float* in, float factor, std::size_t count, float* out) {
  const D d;
  const V f = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(hn::Mul(hn::LoadU(d, in + i), f), d, out + i);
  for (; i < count; ++i) out[i] = in[i] * factor;
}

// Both are x / (1 + e^-z): silu with z = x, and gelu because (1 + tanh u) / 2 = 1 / (1 + e^-2u).
struct Silu {
  static HWY_INLINE V of(V x) { return hn::Div(x, hn::Add(hn::Set(D(), 1.0f), exp_of(hn::Neg(x)))); }
};
struct QuickGelu {
  static HWY_INLINE V of(V x) {
    const V slowed = hn::Mul(x, hn::Set(D(), static_cast<float>(-kQuickGeluAlpha)));
    return hn::Div(x, hn::Add(hn::Set(D(), 1.0f), exp_of(slowed)));
  }
};
struct GeluTanh {
  static HWY_INLINE V of(V x) {
    const D d;
    const V cube = hn::Mul(hn::Mul(x, x), x);
    const V u = hn::Mul(hn::Set(d, -2 * 0.7978845608028654f),
                        hn::MulAdd(cube, hn::Set(d, 0.044715f), x));  // sqrt(2 / pi)
    return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp_of(u)));
  }
};

struct Relu {
  static HWY_INLINE V of(V x) { return hn::Max(x, hn::Zero(D())); }
};
struct ReluSquared {
  static HWY_INLINE V of(V x) {
    const V positive = Relu::of(x);
    return hn::Mul(positive, positive);
  }
};

struct Sigmoid {
  static HWY_INLINE V of(V x) {
    const V one = hn::Set(D(), 1.0f);
    return hn::Div(one, hn::Add(one, exp_of(hn::Neg(x))));
  }
};
struct Identity {
  static HWY_INLINE V of(V x) { return x; }
};

template <class Activate>
void gated_of(const float* gate, const float* up, std::size_t count, float* out) {
  const D d;
  std::size_t i = 0;
  if (up == nullptr) {
    for (; i + kLanes <= count; i += kLanes) hn::StoreU(Activate::of(hn::LoadU(d, gate + i)), d, out + i);
    if (i < count) store_some(Activate::of(load_some(gate + i, count - i)), out + i, count - i);
    return;
  }
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(Activate::of(hn::LoadU(d, gate + i)), hn::LoadU(d, up + i)), d, out + i);
  }
  if (i < count) {
    store_some(hn::Mul(Activate::of(load_some(gate + i, count - i)), load_some(up + i, count - i)), out + i,
               count - i);
  }
}

void gated(Activation activation, const float* gate, const float* up, std::size_t count, float* out) {
  switch (activation) {
    case Activation::kSilu:
      return gated_of<Silu>(gate, up, count, out);
    case Activation::kGeluTanh:
      return gated_of<GeluTanh>(gate, up, count, out);
    case Activation::kGeluErf:  // no published decoder of size uses it: the C library will do
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = static_cast<float>(0.5 * gate[i] * (1 + std::erf(gate[i] * 0.7071067811865476)) *
                                    (up != nullptr ? up[i] : 1));  // 1 / sqrt(2)
      }
      return;
    case Activation::kRelu:
      return gated_of<Relu>(gate, up, count, out);
    case Activation::kReluSquared:
      return gated_of<ReluSquared>(gate, up, count, out);
    case Activation::kQuickGelu:
      return gated_of<QuickGelu>(gate, up, count, out);
    case Activation::kSigmoid:
      return gated_of<Sigmoid>(gate, up, count, out);
    case Activation::kIdentity:
      return gated_of<Identity>(gate, up, count, out);
    case Activation::kXielu:  // has a function of its own
      return;
  }
}

// e^t - 1 - t for t <= 0: near 0 the series, whose first seven terms are enough above -1/2, since the
// difference would lose what is left.
HWY_INLINE V exp_beyond_line(V t) {
  const D d;
  V series = hn::Set(d, 1.0f / 40320);
  for (const float term : {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2})
    series = hn::MulAdd(series, t, hn::Set(d, term));
  const V plain = hn::Sub(hn::Sub(exp_of(t), hn::Set(d, 1.0f)), t);
  return hn::IfThenElse(hn::Gt(t, hn::Set(d, -0.5f)), hn::Mul(hn::Mul(t, t), series), plain);
}

HWY_INLINE V xielu_of(const Xielu& n, V x) {
  const D d;
  const V t = hn::Min(x, hn::Set(d, static_cast<float>(n.eps)));
  const V line = hn::Mul(x, hn::Set(d, static_cast<float>(n.beta)));
  const V above = hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<float>(n.alpha_p)), line);
  const V beyond = hn::Add(exp_beyond_line(t), hn::Sub(t, x));
  const V below = hn::MulAdd(beyond, hn::Set(d, static_cast<float>(n.alpha_n)), line);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
}

void xielu(const Xielu& numbers, const float* in, std::size_t count, float* out) {
  const D d;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(xielu_of(numbers, hn::LoadU(d, in + i)), d, out + i);
  if (i < count) store_some(xielu_of(numbers, load_some(in + i, count - i)), out + i, count - i);
}

HWY_INLINE V clamped_of(V gate, V up, V limit, V alpha, V offset) {
  // Min and Max of some machines drop a NaN of one side, so NaN goes around them.
  const V g = hn::IfThenElse(hn::Gt(gate, limit), limit, gate);
  V u = hn::IfThenElse(hn::Gt(up, limit), limit, up);
  u = hn::IfThenElse(hn::Lt(u, hn::Neg(limit)), hn::Neg(limit), u);
  const V one = hn::Set(D(), 1.0f);
  const V glu = hn::Div(g, hn::Add(one, exp_of(hn::Neg(hn::Mul(alpha, g)))));
  return hn::Mul(glu, hn::Add(u, offset));
}

void clamped(const float* gate, const float* up, float limit, float alpha, float offset, std::size_t count,
             float* out) {
  const D d;
  const V l = hn::Set(d, limit), a = hn::Set(d, alpha), o = hn::Set(d, offset);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    hn::StoreU(clamped_of(hn::LoadU(d, gate + i), hn::LoadU(d, up + i), l, a, o), d, out + i);
  if (i < count)
    store_some(clamped_of(load_some(gate + i, count - i), load_some(up + i, count - i), l, a, o), out + i,
               count - i);
}

void softcap(const float* in, float cap, std::size_t count, float* out) {
  const D d;
  const V limit = hn::Set(d, cap);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::Mul(limit, tanh_of(hn::Div(hn::LoadU(d, in + i), limit))), d, out + i);
  }
  if (i < count)
    store_some(hn::Mul(limit, tanh_of(hn::Div(load_some(in + i, count - i), limit))), out + i, count - i);
}

}  // namespace

const ElementKernels kElement = {decode_row, rms_norm, center, rope,    add,
                                 scale,      gated,    xielu,  clamped, softcap};

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace doppler::cpu {
#define DOPPLER_TABLE_OF_FILE kElement
DOPPLER_KERNEL_TABLE(ElementKernels, element_kernels)
}  // namespace doppler::cpu
#endif
