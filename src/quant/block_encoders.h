// Encoders of the block types, registered in encode.cpp: one block (32 or 256 finite values within the type's
// range) to its bytes.
#pragma once

#include <cstddef>

#include "quant/encode.h"

namespace doppler {

using BlockEncoder = void (*)(const float* x, std::byte* out, EncodeSearch search);

void encode_q4_0(const float* x, std::byte* out, EncodeSearch search);
void encode_q4_1(const float* x, std::byte* out, EncodeSearch search);
void encode_q5_0(const float* x, std::byte* out, EncodeSearch search);
void encode_q5_1(const float* x, std::byte* out, EncodeSearch search);
void encode_q8_0(const float* x, std::byte* out, EncodeSearch search);
void encode_iq4_nl(const float* x, std::byte* out, EncodeSearch search);
void encode_mxfp4(const float* x, std::byte* out, EncodeSearch search);

void encode_q3_k(const float* x, std::byte* out, EncodeSearch search);
void encode_q6_k(const float* x, std::byte* out, EncodeSearch search);
void encode_iq4_xs(const float* x, std::byte* out, EncodeSearch search);

void encode_q2_k(const float* x, std::byte* out, EncodeSearch search);
void encode_q4_k(const float* x, std::byte* out, EncodeSearch search);
void encode_q5_k(const float* x, std::byte* out, EncodeSearch search);

}  // namespace doppler
