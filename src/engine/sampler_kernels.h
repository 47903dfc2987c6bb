// The sampler's loops over the whole vocabulary, a block at a time. Plain loops over whole blocks, which
// compilers turn into vector code; their results are the same bits on every machine with IEEE doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace doppler {

// 1 KiB of logits: small enough that few blocks hold a likely token, large enough that the blocks' maxima are
// few.
inline constexpr std::size_t kSamplerBlock = 256;
// Buckets of a histogram: its masses fill 32 KiB, which stays in the L1 or L2 cache.
inline constexpr std::int32_t kSamplerBuckets = 4096;
// A weight below exp(-64) < 2^-92 counts as nothing. That changes no choice: the likeliest token weighs 1,
// all the negligible ones of 2^32 together less than 2^-60, and a draw is a multiple of 2^-53 below 1, so
// that it never reaches the last 2^-53 of the mass, where they are; nor does leaving them out move the sum of
// the others.
inline constexpr double kNegligible = -64;

// The largest value of a block. Sets `bad` if a value is NaN or +Inf (the maximum is then meaningless).
float block_maximum(const float* block, bool& bad);

// The largest of each of kSamplerGroups groups of a block.
inline constexpr std::size_t kSamplerGroups = 16;
void group_maxima(const float* block, float* maxima);

// Sets to -Inf those of the first `size` logits of a block whose mark is not 0.
void take_out(float* block, const std::uint32_t* marks, std::size_t size);

// exp(x) for x in [kNegligible, 0], within 1 unit in the last place.
double weight_of(double x);

// How scores become weights and buckets.
struct Weighing {
  double largest, temperature;  // x = (score - largest) / temperature, at most 0
  double lowest;                // of x; below it a token is dropped; at least kNegligible
  double scale;                 // bucket = -x * scale, at most kSamplerBuckets - 1
};

// The weight and the bucket of each logit of a block: likelier tokens are in lower buckets, dropped ones in
// bucket kSamplerBuckets, with their weight or, if that is negligible, 0.
void weigh_block(const float* block, const Weighing& weighing, double* weights, std::int32_t* buckets);
std::int32_t bucket_of(double x, const Weighing& weighing);

// The sum of a block's weights, always in the same order.
double block_weight(const float* block, const Weighing& weighing);

// Whether `bucket` is among a block's buckets.
bool block_holds(const std::uint16_t* buckets, std::uint16_t bucket);

}  // namespace doppler
