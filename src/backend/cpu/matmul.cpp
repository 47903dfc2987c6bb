#include "backend/cpu/matmul.h"

#include <algorithm>

namespace doppler::cpu {

Result<Matmul> Matmul::create(const MatmulKernels& kernels, const ElementKernels& elements, ThreadPool& pool,
                              std::size_t max_tokens, std::size_t max_cols) {
  Matmul out(kernels, elements, pool);
  out.kernel_scratch_ = kernels.scratch_floats(max_tokens);
  out.block_floats_ = max_tokens * kernels.block_rows;
  // Rounded up to a page, so that no two threads write the same cache line.
  out.scratch_stride_ = (out.kernel_scratch_ + 2 * out.block_floats_ + 1023) / 1024 * 1024;
  DOPPLER_ASSIGN(out.packed_, LazyFloats::allocate(kernels.packed_floats(max_tokens, max_cols)));
  DOPPLER_ASSIGN(out.scratch_, LazyFloats::allocate(out.scratch_stride_ * pool.size()));
  return out;
}

// Prefill decodes block_rows rows at a time. Decode has no such block; small last chunks keep a thread from
// waiting for another, but each chunk begins a new stream of memory, so they are not smaller than about 64
// kB, 3 us of reading.
std::size_t Matmul::grain(const WeightMatrix& weight, std::size_t tokens) const {
  if (tokens > kernels_->tile_tokens) return kernels_->block_rows;
  const std::size_t row_bytes = weight.cols * (weight.dtype == DType::kF32 ? 4 : 2);
  return std::clamp<std::size_t>(65536 / std::max<std::size_t>(row_bytes, 1) / 8 * 8, 8,
                                 kernels_->block_rows);
}

const float* Matmul::pack(const float* x, std::size_t tokens, std::size_t cols) {
  if (kernels_->is_packed(tokens, cols)) return x;
  const std::size_t tiles = (tokens + kernels_->tile_tokens - 1) / kernels_->tile_tokens;
  pool_->parallel_for(tiles, 4,
                      [&](std::size_t begin, std::size_t end) {  // 4 tiles: tens of kB, worth a hand-over
                        kernels_->pack(x, tokens, cols, begin, end, packed_.data());
                      });
  return packed_.data();
}

void Matmul::run(const float* x, std::size_t tokens, std::span<const Product> products) {
  if (tokens == 0 || products.empty()) return;
  const float* packed = pack(x, tokens, products[0].weight.cols);
  std::size_t rows = 0;
  for (const Product& product : products) rows += product.weight.rows;
  // The rows of all products as one range, so that small ones (keys, values) do not each wait for the slowest
  // thread.
  pool_->parallel_chunks(
      rows, grain(products[0].weight, tokens), [&](std::size_t thread, std::size_t begin, std::size_t end) {
        std::size_t first = 0;
        for (const Product& product : products) {
          const std::size_t from = std::max(begin, first), to = std::min(end, first + product.weight.rows);
          if (from < to) {
            kernels_->rows({.weight = product.weight,
                            .bias = product.bias,
                            .packed = packed,
                            .tokens = tokens,
                            .row_begin = from - first,
                            .row_end = to - first,
                            .out = product.out + (from - first),
                            .stride = product.weight.rows,
                            .scratch = scratch_.data() + thread * scratch_stride_});
          }
          first += product.weight.rows;
        }
      });
}

void Matmul::run_gated(const float* x, std::size_t tokens, const Product& gate, const Product& up,
                       Activation activation, float* out) {
  if (tokens == 0) return;
  const float* packed = pack(x, tokens, gate.weight.cols);
  const std::size_t width = gate.weight.rows;
  // As many rows of gate, then of up, as the scratch holds: a whole chunk when decoding, so that streams stay
  // long.
  const std::size_t block = block_floats_ / tokens / kernels_->block_rows * kernels_->block_rows;
  pool_->parallel_chunks(
      width, grain(gate.weight, tokens), [&](std::size_t thread, std::size_t begin, std::size_t end) {
        float* scratch = scratch_.data() + thread * scratch_stride_;
        for (std::size_t row = begin; row < end; row += block) {
          const std::size_t count = std::min(block, end - row);
          const bool emits = gate.out != nullptr;
          const std::size_t stride = emits ? width : block;
          float* gates = emits ? gate.out + row : scratch + kernel_scratch_;
          float* ups = emits ? up.out + row : scratch + kernel_scratch_ + tokens * block;
          MatmulCall call{.weight = gate.weight,
                          .bias = gate.bias,
                          .packed = packed,
                          .tokens = tokens,
                          .row_begin = row,
                          .row_end = row + count,
                          .out = gates,
                          .stride = stride,
                          .scratch = scratch};
          kernels_->rows(call);
          call.weight = up.weight, call.bias = up.bias, call.out = ups;
          kernels_->rows(call);
          for (std::size_t t = 0; t < tokens; ++t) {
            elements_->gated(activation, gates + t * stride, ups + t * stride, count, out + t * width + row);
          }
        }
      });
}

}  // namespace doppler::cpu
