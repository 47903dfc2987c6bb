#include "backend/cpu/matmul.h"

#include <algorithm>

namespace doppler::cpu {
namespace {

// Rows that are decoded together for a product with float kernels: as many as those take side by side.
constexpr std::size_t kDecodedRows = 8;
// Rows of gate and up that prefill holds before it joins them: 128 rows of 256 tokens are 128 kB each, in L2,
// and the activations pass by once for them.
constexpr std::size_t kGatedRows = 128;

constexpr std::size_t kLineFloats = 16;  // of a cache line

constexpr std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

Result<Matmul> Matmul::create(const Kernels& kernels, ThreadPool& pool, const MatmulRoom& room) {
  const std::size_t max_tokens = room.tokens, max_cols = room.cols;
  Matmul out(kernels, pool);
  out.kernel_scratch_ = kernels.matmul->scratch_floats(max_tokens);
  out.decoded_floats_ = kDecodedRows * max_cols;
  out.block_floats_ = max_tokens * kGatedRows;
  // Rounded up to a page, so that no two threads write the same cache line.
  out.scratch_stride_ = round_up(out.kernel_scratch_ + out.decoded_floats_ + 2 * out.block_floats_, 1024);
  // Each expert's rows begin a tile of their own.
  const std::size_t tiled = room.expert_rows + room.experts * kernels.matmul->tile_tokens;
  const std::size_t most_rows = std::max(max_tokens, room.expert_rows);
  DOPPLER_ASSIGN(out.packed_,
                 LazyFloats::allocate(kernels.matmul->packed_floats(std::max(max_tokens, tiled), max_cols) +
                                      room.experts * kLineFloats));
  DOPPLER_ASSIGN(out.gathered_, LazyFloats::allocate(room.expert_rows * max_cols));
  const std::size_t blocks = most_rows * (max_cols / kSubBlock);
  DOPPLER_ASSIGN(out.quantised_, LazyFloats::allocate(blocks * sizeof(ActivationBlock) / sizeof(float)));
  DOPPLER_ASSIGN(out.scratch_, LazyFloats::allocate(out.scratch_stride_ * pool.size()));
  return out;
}

// Prefill works on blocks of rows. Decode has no such block; small last chunks keep a thread from waiting for
// another, but each chunk begins a new stream of memory, so they are not smaller than about 64 kB, 3 us of
// reading.
std::size_t Matmul::grain(const Product& product, std::size_t tokens) const {
  constexpr std::size_t kLeastBytes = 65536;
  if (product.form == WeightForm::kPanels) {
    // Prefill: four panels share the activations that a tile brings into the cache.
    if (tokens > kernels_->panel->tile_tokens) return 4 * kPanelRows;
    return std::max<std::size_t>(kLeastBytes / product.panels.panel_bytes(), 1) * kPanelRows;
  }
  if (tokens > kernels_->matmul->tile_tokens) return kernels_->matmul->block_rows;
  const std::size_t row_bytes =
      product.cols * (product.form == WeightForm::kFloats && product.floats.dtype == DType::kF32 ? 4 : 2);
  return std::clamp<std::size_t>(kLeastBytes / std::max<std::size_t>(row_bytes, 1) / 8 * 8, 8,
                                 kernels_->matmul->block_rows);
}

const float* Matmul::pack(const float* x, std::size_t tokens, std::size_t cols) {
  const MatmulKernels& kernels = *kernels_->matmul;
  if (kernels.is_packed(tokens, cols)) return x;
  const std::size_t tiles = (tokens + kernels.tile_tokens - 1) / kernels.tile_tokens;
  // 4 tiles: tens of kB, worth a hand-over.
  pool_->parallel_for(tiles, 4, [&](std::size_t begin, std::size_t end) {
    kernels.pack(x, tokens, cols, begin, end, packed_.data());
  });
  return packed_.data();
}

const ActivationBlock* Matmul::quantise(const float* x, std::size_t tokens, std::size_t cols) {
  auto* blocks = reinterpret_cast<ActivationBlock*>(quantised_.data());
  // 8 tokens: at least some microseconds, worth a hand-over.
  pool_->parallel_for(tokens, 8, [&](std::size_t begin, std::size_t end) {
    kernels_->panel->quantise(x, tokens, cols, begin, end, blocks);
  });
  return blocks;
}

Matmul::Inputs Matmul::prepare(const float* x, std::size_t tokens, std::span<const Product> products) {
  Inputs inputs{.tokens = tokens};
  const std::size_t cols = products[0].cols;
  const bool panels = std::ranges::any_of(
      products, [](const Product& product) { return product.form == WeightForm::kPanels; });
  const bool floats = std::ranges::any_of(
      products, [](const Product& product) { return product.form != WeightForm::kPanels; });
  if (panels) inputs.blocks = quantise(x, tokens, cols);
  if (floats) inputs.floats = pack(x, tokens, cols);
  return inputs;
}

void Matmul::decoded_rows(const Product& product, const Inputs& inputs, std::size_t begin, std::size_t end,
                          float* out, std::size_t stride, float* scratch) const {
  float* decoded = scratch + kernel_scratch_;
  for (std::size_t row = begin; row < end; row += kDecodedRows) {
    const std::size_t count = std::min(kDecodedRows, end - row);
    // The backend has checked type and shape, the only errors there are.
    (void)decode_f32(*product.blocks, row * product.cols, std::span(decoded, count * product.cols));
    kernels_->matmul->rows({.weight = {.data = reinterpret_cast<const std::uint8_t*>(decoded),
                                       .dtype = DType::kF32,
                                       .rows = count,
                                       .cols = product.cols},
                            .bias = product.bias == nullptr ? nullptr : product.bias + row,
                            .packed = inputs.floats,
                            .tokens = inputs.tokens,
                            .row_begin = 0,
                            .row_end = count,
                            .out = out + (row - begin),
                            .stride = stride,
                            .scratch = scratch});
  }
}

void Matmul::rows(const Product& product, const Inputs& inputs, std::size_t begin, std::size_t end,
                  float* out, std::size_t stride, float* scratch) const {
  switch (product.form) {
    case WeightForm::kFloats:
      return kernels_->matmul->rows({.weight = product.floats,
                                     .bias = product.bias,
                                     .packed = inputs.floats,
                                     .tokens = inputs.tokens,
                                     .row_begin = begin,
                                     .row_end = end,
                                     .out = out,
                                     .stride = stride,
                                     .scratch = scratch});
    case WeightForm::kPanels:
      return kernels_->panel->rows({.weight = product.panels,
                                    .bias = product.bias,
                                    .x = inputs.blocks,
                                    .tokens = inputs.tokens,
                                    .panel_begin = begin / kPanelRows,
                                    .panel_end = (end + kPanelRows - 1) / kPanelRows,
                                    .out = out,
                                    .stride = stride});
    case WeightForm::kDecoded:
      return decoded_rows(product, inputs, begin, end, out, stride, scratch);
  }
}

void Matmul::run(const float* x, std::size_t tokens, std::span<const Product> products) {
  if (tokens == 0 || products.empty()) return;
  const Inputs inputs = prepare(x, tokens, products);
  // The rows of all products as one range, so that small ones (keys, values) do not each wait for the slowest
  // thread. Each product begins at a multiple of a panel, so that chunks never cut one.
  std::size_t total = 0, step = 1;
  for (const Product& product : products) {
    total += round_up(product.rows, kPanelRows);
    step = std::max(step, grain(product, tokens));
  }
  pool_->parallel_chunks(
      total, round_up(step, kPanelRows), [&](std::size_t thread, std::size_t begin, std::size_t end) {
        std::size_t first = 0;
        for (const Product& product : products) {
          const std::size_t from = std::max(begin, first), to = std::min(end, first + product.rows);
          if (from < to) {
            rows(product, inputs, from - first, to - first, product.out + (from - first), product.rows,
                 scratch_.data() + thread * scratch_stride_);
          }
          first += round_up(product.rows, kPanelRows);
        }
      });
}

Matmul::Inputs Matmul::prepare_expert(const float* x, bool own_rows, std::size_t chosen,
                                      const ExpertWork& work, std::size_t first, float* packed) {
  const std::size_t cols = work.products[0].cols, tokens = work.places.size();
  const auto source = [&](std::size_t i) {
    return x + (own_rows ? work.places[i] : work.places[i] / chosen) * cols;
  };
  const float* rows = source(0);
  if (tokens > 1) {
    float* to = gathered_.data() + first * cols;
    for (std::size_t i = 0; i < tokens; ++i) std::copy_n(source(i), cols, to + i * cols);
    rows = to;
  }
  Inputs inputs{.tokens = tokens};
  const bool panels = std::ranges::any_of(
      work.products, [](const Product& product) { return product.form == WeightForm::kPanels; });
  const bool floats = std::ranges::any_of(
      work.products, [](const Product& product) { return product.form != WeightForm::kPanels; });
  if (panels) {
    auto* blocks = reinterpret_cast<ActivationBlock*>(quantised_.data()) + first * (cols / kSubBlock);
    kernels_->panel->quantise(rows, tokens, cols, 0, tokens, blocks);
    inputs.blocks = blocks;
  }
  if (!floats) return inputs;
  const MatmulKernels& kernels = *kernels_->matmul;
  inputs.floats = rows;
  if (!kernels.is_packed(tokens, cols)) {
    kernels.pack(rows, tokens, cols, 0, (tokens + kernels.tile_tokens - 1) / kernels.tile_tokens, packed);
    inputs.floats = packed;
  }
  return inputs;
}

// Results of several rows leave through the scratch, from where each goes to its place.
void Matmul::expert_rows(const ExpertWork& work, const Product& product, const Inputs& inputs,
                         std::size_t begin, std::size_t end, float* scratch) const {
  if (inputs.tokens == 1)
    return rows(product, inputs, begin, end, product.out + work.places[0] * product.rows + begin,
                product.rows, scratch);
  float* own = scratch + kernel_scratch_ + decoded_floats_;
  const std::size_t block = 2 * block_floats_ / inputs.tokens / kPanelRows * kPanelRows;
  for (std::size_t row = begin; row < end; row += block) {
    const std::size_t count = std::min(block, end - row);
    rows(product, inputs, row, row + count, own, block, scratch);
    for (std::size_t t = 0; t < inputs.tokens; ++t)
      std::copy_n(own + t * block, count, product.out + work.places[t] * product.rows + row);
  }
}

void Matmul::run_experts(const float* x, bool own_rows, std::size_t chosen,
                         std::span<const ExpertWork> experts) {
  if (experts.empty()) return;
  std::vector<Inputs> inputs(experts.size());
  std::vector<std::size_t> firsts, packed;
  std::size_t count = 0, floats = 0, total = 0, step = 1;
  for (const ExpertWork& work : experts) {
    const std::size_t tokens = work.places.size();
    firsts.push_back(count);
    packed.push_back(floats);
    count += tokens;
    floats += round_up(kernels_->matmul->packed_floats(tokens, work.products[0].cols), kLineFloats);
    for (const Product& product : work.products) {
      total += round_up(product.rows, kPanelRows);
      step = std::max(step, grain(product, tokens));
    }
  }
  // 8 rows: at least some microseconds, worth a hand-over.
  pool_->parallel_for(experts.size(), std::max<std::size_t>(8 * experts.size() / count, 1),
                      [&](std::size_t begin, std::size_t end) {
                        for (std::size_t i = begin; i < end; ++i)
                          inputs[i] = prepare_expert(x, own_rows, chosen, experts[i], firsts[i],
                                                     packed_.data() + packed[i]);
                      });
  pool_->parallel_chunks(
      total, round_up(step, kPanelRows), [&](std::size_t thread, std::size_t begin, std::size_t end) {
        float* scratch = scratch_.data() + thread * scratch_stride_;
        std::size_t first = 0;
        for (std::size_t i = 0; i < experts.size() && first < end; ++i) {
          for (const Product& product : experts[i].products) {
            const std::size_t from = std::max(begin, first), to = std::min(end, first + product.rows);
            if (from < to) expert_rows(experts[i], product, inputs[i], from - first, to - first, scratch);
            first += round_up(product.rows, kPanelRows);
          }
        }
      });
}

void Matmul::run_gated(const float* x, std::size_t tokens, const Product& gate, const Product& up,
                       Activation activation, float* out) {
  if (tokens == 0) return;
  const Product both[] = {gate, up};
  const Inputs inputs = prepare(x, tokens, both);
  const std::size_t width = gate.rows;
  // As many rows of gate, then of up, as the scratch holds: a whole chunk when decoding, so that streams stay
  // long.
  const std::size_t block = block_floats_ / tokens / kPanelRows * kPanelRows;
  const std::size_t step = round_up(std::max(grain(gate, tokens), grain(up, tokens)), kPanelRows);
  pool_->parallel_chunks(width, step, [&](std::size_t thread, std::size_t begin, std::size_t end) {
    float* scratch = scratch_.data() + thread * scratch_stride_;
    float* own = scratch + kernel_scratch_ + decoded_floats_;
    for (std::size_t row = begin; row < end; row += block) {
      const std::size_t count = std::min(block, end - row);
      const bool emits = gate.out != nullptr;
      const std::size_t stride = emits ? width : block;
      float* gates = emits ? gate.out + row : own;
      float* ups = emits ? up.out + row : own + tokens * block;
      rows(gate, inputs, row, row + count, gates, stride, scratch);
      rows(up, inputs, row, row + count, ups, stride, scratch);
      for (std::size_t t = 0; t < tokens; ++t) {
        kernels_->element->gated(activation, gates + t * stride, ups + t * stride, count,
                                 out + t * width + row);
      }
    }
  });
}

}  // namespace doppler::cpu
