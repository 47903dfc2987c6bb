// BF16 in 13 bits: a sign, 5 bits of exponent and all 7 of the fraction, for matrices of which every step
// reads each value once, so that a fifth less of memory is read. A row has a power of two, by which its
// largest value gets a half's highest exponent. Its values are halves then, of which the last three bits are
// zero and not stored. Values below 2^-29 of the row's largest lose bits, as small halves do: what is lost is
// less than 2^-36 of the largest, where a sum in floats loses 2^-24 of itself at each step. Of rows whose
// largest is below 2^-96, what is below 2^-133 is lost.
//
// A block of 32 values is 13 words: 12 make three pieces of 16 bytes, one lies behind the scales.
//   piece p, upper 13 bits of the halves of its words   values 8p .. 8p + 7, as they follow each other
//   the word behind, likewise                           values 30 and 31
//   piece p, lower 3 bits of low and of high halves     values 24 + 2p and 25 + 2p: bits 15 .. 4 of each,
//                                                       three in a word from the first word on
//   the word behind, bit p of low and of high halves    their bits 3
#pragma once

#include <cstdint>
#include <span>

namespace doppler::gpu {

inline constexpr std::uint32_t kBlockValues = 32, kBlockPieceWords = 12;

// What is taken from the exponents of a row's values, in BF16. Rows have whole units.
int base_of_row(std::span<const std::uint16_t> row);
// The factor that values are multiplied by when they are read: a power of two, and a normal float.
float factor_of_base(int base);
// A block of a row with that base. `behind`: the word behind the scales.
void pack_in_13_bits(std::span<const std::uint16_t, kBlockValues> values, int base,
                     std::span<std::uint32_t, kBlockPieceWords> pieces, std::uint32_t& behind);

}  // namespace doppler::gpu
