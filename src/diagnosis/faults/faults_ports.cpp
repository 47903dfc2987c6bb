// Data faults that porting a model makes: fused tensors split in another order, columns permuted, scales
// lost, blocks turned into floats wrongly, biases added twice.
#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/float16.h"
#include "diagnosis/faults/faults_table.h"
#include "quant/blocks.h"

namespace doppler::diagnosis::faults {
namespace {

using Bytes = std::vector<std::byte>;

// Not in the first layer, so that a right answer must name the layer.
constexpr int kPortedLayer = 1;

bool has_weights(const Subject& s, std::initializer_list<WeightRole> roles) {
  return has_layers(s, kPortedLayer + 1) && std::ranges::all_of(roles, [&](WeightRole role) {
           return s.weights.find(role, kPortedLayer) != kNoWeight;
         });
}
std::function<bool(const Subject&)> with(WeightRole role) {
  return [=](const Subject& s) { return has_weights(s, {role}); };
}
std::function<bool(const Subject&)> of_type(WeightRole role, std::vector<DType> types) {
  return [=](const Subject& s) {
    return has_weights(s, {role}) &&
           std::ranges::find(types, s.weights[s.weights.find(role, kPortedLayer)].dtype) != types.end();
  };
}
constexpr DType kFloats[] = {DType::kF32, DType::kF16, DType::kBF16};
std::function<bool(const Subject&)> of_floats(WeightRole role) {
  return of_type(role, {std::begin(kFloats), std::end(kFloats)});
}

std::function<void(Site&)> change(WeightRole role, AlteredWeights::Change how) {
  return [=](Site& site) { site.alter(role, kPortedLayer, how); };
}

// The same tensor in float32.
void store_values(TensorView& tensor, Bytes& bytes, const std::vector<float>& values) {
  bytes.resize(values.size() * 4);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  tensor.dtype = DType::kF32;
}
std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(tensor.rows() * tensor.cols());
  if (!decode_f32(tensor, 0, values)) values.clear();
  return values;
}

// Writes the parts into one tensor, `groups` pieces of each in turn, and reads them one after the other; or
// with `back` the reverse.
void split_otherwise(Site& site, const std::vector<WeightRole>& roles, std::size_t groups, bool back) {
  struct Row {
    std::size_t part, row;
  };
  std::vector<TensorView> parts;
  for (const WeightRole role : roles)
    parts.push_back(site.weights()[site.weights().find(role, kPortedLayer)]);
  std::vector<Row> turns, whole;
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const std::size_t piece = parts[p].shape[0] / groups;
      for (std::size_t r = 0; r < piece; ++r) turns.push_back({p, g * piece + r});
    }
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (std::size_t r = 0; r < parts[p].shape[0]; ++r) whole.push_back({p, r});
  }
  const std::vector<Row>&written = back ? whole : turns, &read = back ? turns : whole;
  std::vector<std::vector<std::size_t>> sources(parts.size());
  for (std::size_t p = 0; p < parts.size(); ++p) sources[p].resize(parts[p].shape[0]);
  for (std::size_t i = 0; i < read.size(); ++i) sources[read[i].part][read[i].row] = i;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    site.alter(roles[p], kPortedLayer, [&](TensorView& tensor, Bytes& bytes) {
      const std::size_t row = bytes.size() / tensor.shape[0];
      for (std::size_t r = 0; r < tensor.shape[0]; ++r) {
        const Row& from = written[sources[p][r]];
        std::copy_n(parts[from.part].data.begin() + static_cast<std::ptrdiff_t>(from.row * row), row,
                    bytes.begin() + static_cast<std::ptrdiff_t>(r * row));
      }
    });
  }
}

std::function<void(Site&)> gate_up(std::size_t groups, bool back) {
  return [=](Site& site) {
    const TensorView& gate = site.weights()[site.weights().find(WeightRole::kGate, kPortedLayer)];
    split_otherwise(site, {WeightRole::kGate, WeightRole::kUp}, groups == 0 ? gate.shape[0] : groups, back);
  };
}

// Column c gets the values of column source(c).
AlteredWeights::Change permuted_columns(
    std::function<std::size_t(std::size_t col, std::size_t cols)> source) {
  return [=](TensorView& tensor, Bytes& bytes) {
    const std::size_t cols = tensor.cols(), width = bytes.size() / (tensor.rows() * cols);
    for (std::size_t r = 0; r < tensor.rows(); ++r) {
      for (std::size_t c = 0; c < cols; ++c) {
        std::copy_n(tensor.data.begin() + static_cast<std::ptrdiff_t>((r * cols + source(c, cols)) * width),
                    width, bytes.begin() + static_cast<std::ptrdiff_t>((r * cols + c) * width));
      }
    }
  };
}
// An order without a pattern, the same each time.
std::size_t shuffled(std::size_t col, std::size_t cols) {
  std::vector<std::size_t> order(cols);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::uint64_t state = 12345;
  for (std::size_t i = cols; i > 1; --i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::swap(order[i - 1], order[(state >> 33) % i]);
  }
  return order[col];
}

// Between a half and two, without a pattern.
float lost_scale(std::size_t i) {
  return std::exp2(2 * static_cast<float>((i * 2654435761U >> 7) % 1000) / 1000 - 1);
}
AlteredWeights::Change without_scales(bool of_rows) {
  return [=](TensorView& tensor, Bytes& bytes) {
    std::vector<float> values = values_of(tensor);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] /= lost_scale(of_rows ? i / tensor.cols() : i % tensor.cols());
    store_values(tensor, bytes, values);
  };
}

// Floats made of blocks, each value by `value(block, code, its index)`.
template <typename Block, typename Value>
AlteredWeights::Change baked(Value value) {
  return [=](TensorView& tensor, Bytes& bytes) {
    std::vector<float> values;
    values.reserve(tensor.rows() * tensor.cols());
    for (std::size_t at = 0; at + sizeof(Block) <= tensor.data.size(); at += sizeof(Block)) {
      Block block;
      std::memcpy(&block, &tensor.data[at], sizeof(Block));
      for (std::size_t i = 0; i < 32; ++i) values.push_back(value(block, i));
    }
    store_values(tensor, bytes, values);
  };
}
template <typename Block>
int code(const Block& block, std::size_t i) {
  return i < 16 ? block.qs[i] & 15 : block.qs[i - 16] >> 4;
}

// Multiplies the scale of every block, or of those of one row.
AlteredWeights::Change scales_off(float factor, std::optional<std::size_t> only_row) {
  return [=](TensorView& tensor, Bytes& bytes) {
    const std::size_t block = dtype_info(tensor.dtype).block_bits / 8, row = bytes.size() / tensor.rows();
    for (std::size_t at = 0; at + block <= bytes.size(); at += block) {
      if (only_row && at / row != *only_row) continue;
      std::uint16_t d;
      std::memcpy(&d, &bytes[at], 2);
      d = f32_to_f16(f16_to_f32(d) * factor);
      std::memcpy(&bytes[at], &d, 2);
    }
  };
}

void as_f16(TensorView& tensor, Bytes&) {
  tensor.dtype = DType::kF16;
}

void twice(TensorView& tensor, Bytes& bytes) {
  std::vector<float> values = values_of(tensor);
  for (float& x : values) x *= 2;
  store_values(tensor, bytes, values);
}

std::vector<FaultRow> split_faults() {
  return {
      {{"qkv_split_grouped", FaultKind::kData, "fused_split", "models with several key heads",
        "a fused tensor with q, k and v of each key head side by side is cut into all q, all k, all v"},
       [](const Subject& s) {
         return has_weights(s, {WeightRole::kQ, WeightRole::kK, WeightRole::kV}) &&
                s.spec.layers[kPortedLayer].attention.kv_heads > 1;
       },
       at(Stage::kQProj, kPortedLayer),
       [](Site& site) {
         split_otherwise(site, {WeightRole::kQ, WeightRole::kK, WeightRole::kV},
                         site.spec().layers[kPortedLayer].attention.kv_heads, false);
       }},
      {{"qkv_split_order", FaultKind::kData, "fused_split", "",
        "a fused tensor of v, k and q is cut into q, k and v"},
       [](const Subject& s) { return has_weights(s, {WeightRole::kQ, WeightRole::kK, WeightRole::kV}); },
       at(Stage::kQProj, kPortedLayer),
       [](Site& site) {
         const auto id = [&](WeightRole role) { return site.weights().find(role, kPortedLayer); };
         Bytes whole;
         for (const WeightRole role : {WeightRole::kV, WeightRole::kK, WeightRole::kQ}) {
           const auto data = site.weights()[id(role)].data;
           whole.insert(whole.end(), data.begin(), data.end());
         }
         std::size_t from = 0;
         for (const WeightRole role : {WeightRole::kQ, WeightRole::kK, WeightRole::kV}) {
           site.alter(role, kPortedLayer, [&](TensorView&, Bytes& bytes) {
             std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(from), bytes.size(), bytes.begin());
             from += bytes.size();
           });
         }
       }},
      {{"gate_up_interleaved", FaultKind::kData, "fused_split", "",
        "a fused tensor with the rows of gate and up in turn is cut into halves"},
       [](const Subject& s) { return has_weights(s, {WeightRole::kGate, WeightRole::kUp}); },
       at(Stage::kFfnGate, kPortedLayer),
       gate_up(0, false)},
      {{"gate_up_halves", FaultKind::kData, "fused_split", "",
        "a fused tensor of gate and up, one after the other, is taken for one with their rows in turn"},
       [](const Subject& s) { return has_weights(s, {WeightRole::kGate, WeightRole::kUp}); },
       at(Stage::kFfnGate, kPortedLayer),
       gate_up(0, true)},
      {{"gate_up_sharded", FaultKind::kData, "fused_split", "",
        "gate and up of four tensor-parallel shards are joined without taking them apart"},
       [](const Subject& s) { return has_weights(s, {WeightRole::kGate, WeightRole::kUp}); },
       at(Stage::kFfnGate, kPortedLayer),
       gate_up(4, false)},
  };
}

std::vector<FaultRow> column_faults() {
  return {
      {{"columns_shuffled", FaultKind::kData, "weight_permuted", "float weights",
        "the columns of an up projection keep the order of GPTQ's act-order"},
       of_floats(WeightRole::kUp),
       at(Stage::kFfnUp, kPortedLayer),
       change(WeightRole::kUp, permuted_columns(shuffled))},
      {{"columns_sharded", FaultKind::kData, "weight_permuted", "float weights",
        "the columns of an output projection lie as if heads had been dealt out to two shards"},
       of_floats(WeightRole::kO),
       at(Stage::kOProj, kPortedLayer),
       [](Site& site) {
         const std::size_t dim = site.spec().layers[kPortedLayer].attention.head_dim;
         site.alter(WeightRole::kO, kPortedLayer, permuted_columns([dim](std::size_t c, std::size_t cols) {
                      const std::size_t heads = cols / dim, head = c / dim, half = heads / 2;
                      return (head < half ? 2 * head : 2 * (head - half) + 1) * dim + c % dim;
                    }));
       }},
      {{"row_scales_lost", FaultKind::kData, "scales_lost", "",
        "a k projection of int8 rows became floats without the rows' scales"},
       with(WeightRole::kK),
       at(Stage::kKProj, kPortedLayer),
       change(WeightRole::kK, without_scales(true))},
      {{"column_scales_lost", FaultKind::kData, "scales_lost", "",
        "a down projection has been divided by scales of its inputs, which nobody multiplies"},
       with(WeightRole::kDown),
       at(Stage::kFfnOut, kPortedLayer),
       change(WeightRole::kDown, without_scales(false))},
  };
}

std::vector<FaultRow> baked_faults() {
  const auto q4 = of_type(WeightRole::kGate, {DType::kQ4_0});
  const auto place = at(Stage::kFfnGate, kPortedLayer);
  return {
      {{"baked_without_offset", FaultKind::kData, "wrong_dequantisation", "weights in Q4_0",
        "a gate projection of 4 bits became floats without the codes' offset of 8"},
       q4,
       place,
       change(WeightRole::kGate, baked<BlockQ4_0>([](const BlockQ4_0& b, std::size_t i) {
                return f16_to_f32(b.d) * static_cast<float>(code(b, i));
              }))},
      {{"baked_signed", FaultKind::kData, "wrong_dequantisation", "weights in Q4_0",
        "a gate projection of 4 bits became floats with its codes taken for signed numbers"},
       q4,
       place,
       change(WeightRole::kGate, baked<BlockQ4_0>([](const BlockQ4_0& b, std::size_t i) {
                const int q = code(b, i);
                return f16_to_f32(b.d) * static_cast<float>(q < 8 ? q : q - 16);
              }))},
      {{"baked_nibbles", FaultKind::kData, "nibble_order", "weights in Q4_0",
        "a gate projection of 4 bits became floats with its nibbles exchanged"},
       q4,
       place,
       change(WeightRole::kGate, baked<BlockQ4_0>([](const BlockQ4_0& b, std::size_t i) {
                return f16_to_f32(b.d) * static_cast<float>(code(b, (i + 16) % 32) - 8);
              }))},
      {{"baked_without_minimum", FaultKind::kData, "wrong_dequantisation", "weights in Q4_1",
        "a gate projection of 4 bits became floats without the blocks' minima"},
       of_type(WeightRole::kGate, {DType::kQ4_1}),
       place,
       change(WeightRole::kGate, baked<BlockQ4_1>([](const BlockQ4_1& b, std::size_t i) {
                return f16_to_f32(b.d) * static_cast<float>(code(b, i));
              }))},
      {{"baked_unsigned", FaultKind::kData, "wrong_dequantisation", "weights in Q8_0",
        "a gate projection of 8 bits became floats with its codes taken for numbers without a sign"},
       of_type(WeightRole::kGate, {DType::kQ8_0}),
       place,
       change(WeightRole::kGate, baked<BlockQ8_0>([](const BlockQ8_0& b, std::size_t i) {
                return f16_to_f32(b.d) * static_cast<float>(static_cast<std::uint8_t>(b.qs[i]));
              }))},
      {{"block_scales_off", FaultKind::kData, "weight_scaled", "weights in Q4_1 or Q8_0",
        "the scales of a gate projection's blocks are 3 % too large"},
       of_type(WeightRole::kGate, {DType::kQ4_1, DType::kQ8_0}),
       place,
       change(WeightRole::kGate, scales_off(1.03F, {}))},
      {{"row_scale_off", FaultKind::kData, "weight_scaled", "weights in Q4_1 or Q8_0",
        "the scales of the blocks of one row of a gate projection are 5 % too large"},
       of_type(WeightRole::kGate, {DType::kQ4_1, DType::kQ8_0}),
       place,
       change(WeightRole::kGate, scales_off(1.05F, 7))},
  };
}

std::vector<FaultRow> vector_faults() {
  return {
      {{"norm_read_as_f16", FaultKind::kData, "wrong_dtype", "BF16 weights",
        "a norm's weights of BF16 are read as F16"},
       of_type(WeightRole::kFfnNorm, {DType::kBF16}),
       at(Stage::kFfnNormed, kPortedLayer),
       change(WeightRole::kFfnNorm, as_f16)},
      {{"bias_read_as_f16", FaultKind::kData, "wrong_dtype", "models with biases in BF16",
        "the bias of queries, of BF16, is read as F16"},
       of_type(WeightRole::kQBias, {DType::kBF16}),
       at(Stage::kQProj, kPortedLayer),
       change(WeightRole::kQBias, as_f16)},
      {{"bias_twice", FaultKind::kData, "bias_twice", "models with biases",
        "the bias of keys is added twice"},
       with(WeightRole::kKBias),
       at(Stage::kKProj, kPortedLayer),
       change(WeightRole::kKBias, twice)},
      {{"bias_not_permuted", FaultKind::kData, "weight_permuted", "models with biases",
        "the bias of queries keeps GGUF's order of rotary pairs, whose rows were put in the other one"},
       with(WeightRole::kQBias),
       at(Stage::kQProj, kPortedLayer),
       [](Site& site) {
         const std::size_t dim = site.spec().layers[kPortedLayer].attention.head_dim;
         site.alter(WeightRole::kQBias, kPortedLayer, permuted_columns([dim](std::size_t c, std::size_t) {
                      const std::size_t i = c % dim;
                      return c - i + (i % 2) * dim / 2 + i / 2;
                    }));
       }},
  };
}

}  // namespace

std::vector<FaultRow> port_faults() {
  std::vector<FaultRow> rows;
  for (const auto& part : {split_faults(), column_faults(), baked_faults(), vector_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
