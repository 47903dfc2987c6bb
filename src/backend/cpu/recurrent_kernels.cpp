// The ops that go along a sequence: a token's part of a convolution, and one head's or channel's step of a
// recurrence. Everything is float32, and a value's sums have one order, whatever else is in the call.
#include "backend/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/recurrent_kernels.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <algorithm>

#include "backend/cpu/kernel_tables.h"
#include "backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace doppler::cpu::HWY_NAMESPACE {
namespace {

// Whole vectors at each place of [begin, end), then what is left through the same code on a padded copy.
// body(place, load, store): loads and stores are of as many values as are there.
struct WholeVectors {
  V load(const float* p) const { return hn::LoadU(D(), p); }
  void store(V v, float* p) const { hn::StoreU(v, D(), p); }
};
struct SomeValues {
  std::size_t count;
  V load(const float* p) const { return load_some(p, count); }
  void store(V v, float* p) const { store_some(v, p, count); }
};
template <class Body>
HWY_INLINE void for_vectors(std::size_t begin, std::size_t end, const Body& body) {
  std::size_t i = begin;
  for (; i + kLanes <= end; i += kLanes) body(i, WholeVectors());
  if (i < end) body(i, SomeValues{end - i});
}

void convolve(const ConvolutionCall& call) {
  const std::size_t kept = call.taps - 1;
  for_vectors(call.begin, call.end, [&](std::size_t c, const auto& memory) {
    const D d;
    const V now = memory.load(call.in + c);
    V sum = call.bias != nullptr ? memory.load(call.bias + c) : hn::Zero(d);
    for (std::size_t k = 0; k < kept; ++k) {
      const V before = memory.load(call.state + k * call.channels + c);
      sum = hn::MulAdd(memory.load(call.weight + k * call.channels + c), before, sum);
      if (k > 0) memory.store(before, call.state + (k - 1) * call.channels + c);
    }
    sum = hn::MulAdd(memory.load(call.weight + kept * call.channels + c), now, sum);
    if (kept > 0) memory.store(now, call.state + (kept - 1) * call.channels + c);
    if (call.silu) sum = hn::Div(sum, hn::Add(hn::Set(d, 1.0f), exp_of(hn::Neg(sum))));
    memory.store(sum, call.out + c);
  });
}

// Columns of the state side by side: four vectors of them keep their sums in registers, so that the state is
// read twice and written once.
template <std::size_t kVectors, class Memory>
HWY_INLINE void delta_columns(const DeltaCall& call, std::size_t j, const Memory& memory) {
  const D d;
  const V decay = hn::Set(d, call.decay);
  V read[kVectors], out[kVectors];
  DOPPLER_UNROLL
  for (std::size_t n = 0; n < kVectors; ++n) read[n] = out[n] = hn::Zero(d);
  for (std::size_t i = 0; i < call.key_dim; ++i) {
    const float* row = call.state + i * call.value_dim + j;
    const V key = hn::Set(d, call.k[i]);
    DOPPLER_UNROLL
    for (std::size_t n = 0; n < kVectors; ++n)
      read[n] = hn::MulAdd(key, hn::Mul(decay, memory.load(row + n * kLanes)), read[n]);
  }
  const V beta = hn::Set(d, call.beta);
  DOPPLER_UNROLL
  for (std::size_t n = 0; n < kVectors; ++n)
    read[n] = hn::Mul(beta, hn::Sub(memory.load(call.v + j + n * kLanes), read[n]));
  for (std::size_t i = 0; i < call.key_dim; ++i) {
    float* row = call.state + i * call.value_dim + j;
    const V key = hn::Set(d, call.k[i]), query = hn::Set(d, call.q[i]);
    DOPPLER_UNROLL
    for (std::size_t n = 0; n < kVectors; ++n) {
      const V updated = hn::MulAdd(key, read[n], hn::Mul(decay, memory.load(row + n * kLanes)));
      memory.store(updated, row + n * kLanes);
      out[n] = hn::MulAdd(query, updated, out[n]);
    }
  }
  DOPPLER_UNROLL
  for (std::size_t n = 0; n < kVectors; ++n) memory.store(out[n], call.out + j + n * kLanes);
}

void delta(const DeltaCall& call) {
  constexpr std::size_t kTogether = 4;
  std::size_t j = 0;
  for (; j + kTogether * kLanes <= call.value_dim; j += kTogether * kLanes)
    delta_columns<kTogether>(call, j, WholeVectors());
  for_vectors(j, call.value_dim,
              [&](std::size_t at, const auto& memory) { delta_columns<1>(call, at, memory); });
}

void scan(const ScanCall& call) {
  const D d;
  const V decay = hn::Set(d, call.decay);
  for (std::size_t i = 0; i < call.rows; ++i) {
    float* row = call.state + i * call.states;
    const V added = hn::Set(d, call.step * call.x[i]);
    V sum = hn::Zero(d);
    for_vectors(0, call.states, [&](std::size_t n, const auto& memory) {
      const V updated = hn::MulAdd(decay, memory.load(row + n), hn::Mul(added, memory.load(call.b + n)));
      memory.store(updated, row + n);
      sum = hn::MulAdd(updated, memory.load(call.c + n), sum);
    });
    call.out[i] = sum_of(sum) + call.skip * call.x[i];
  }
}

void channel_scan(const ChannelScanCall& call) {
  const D d;
  for (std::size_t i = call.begin; i < call.end; ++i) {
    float* row = call.state + i * call.states;
    const V step = hn::Set(d, call.step[i]), added = hn::Set(d, call.step[i] * call.x[i]);
    V sum = hn::Zero(d);
    for_vectors(0, call.states, [&](std::size_t n, const auto& memory) {
      const V decay = exp_of(hn::Mul(step, memory.load(call.rates + i * call.states + n)));
      const V updated = hn::MulAdd(decay, memory.load(row + n), hn::Mul(added, memory.load(call.b + n)));
      memory.store(updated, row + n);
      sum = hn::MulAdd(updated, memory.load(call.c + n), sum);
    });
    call.out[i] = sum_of(sum) + call.skip[i] * call.x[i];
  }
}

}  // namespace

const RecurrentKernels kRecurrent = {convolve, delta, scan, channel_scan};

}  // namespace doppler::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace doppler::cpu {
#define DOPPLER_TABLE_OF_FILE kRecurrent
DOPPLER_KERNEL_TABLE(RecurrentKernels, recurrent_kernels)
}  // namespace doppler::cpu
#endif
