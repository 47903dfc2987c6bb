// Data faults: damaged or misread weights.
#include <algorithm>
#include <bit>
#include <cstring>

#include "diagnosis/faults/faults_table.h"
#include "quant/blocks.h"

namespace doppler::diagnosis::faults {
namespace {

using When = FaultPlace::When;
using Bytes = std::vector<std::byte>;

// Where faults of one tensor are: not in the first layer, so that a right answer must name the layer.
constexpr int kFaultyLayer = 1;

DType type_of(const Subject& s, WeightRole role, int layer) {
  const WeightId id = s.weights.find(role, layer);
  return id == kNoWeight ? DType::kBool : s.weights[id].dtype;
}
bool is_float(DType type) {
  return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
}
// The model has this weight, in a float type.
std::function<bool(const Subject&)> floats(WeightRole role, int layer = kFaultyLayer) {
  return [=](const Subject& s) { return has_layers(s, layer + 1) && is_float(type_of(s, role, layer)); };
}
std::function<bool(const Subject&)> has(WeightRole role, int layer = kFaultyLayer) {
  return
      [=](const Subject& s) { return has_layers(s, layer + 1) && s.weights.find(role, layer) != kNoWeight; };
}
std::function<bool(const Subject&)> blocks(WeightRole role, std::vector<DType> types) {
  return [=](const Subject& s) {
    return has_layers(s, kFaultyLayer + 1) &&
           std::ranges::find(types, type_of(s, role, kFaultyLayer)) != types.end();
  };
}

std::size_t width_of(const TensorView& tensor) {
  return tensor.data.size() / (tensor.rows() * tensor.cols());
}

// The high byte of an element: its sign and most of its exponent.
std::byte& high_byte(const TensorView& tensor, Bytes& bytes, std::size_t row, std::size_t col) {
  const std::size_t width = width_of(tensor);
  return bytes[(row * tensor.cols() + col) * width + width - 1];
}

void scale_by_two(TensorView& tensor, Bytes& bytes) {
  std::vector<float> values(tensor.rows() * tensor.cols());
  if (!decode_f32(tensor, 0, values)) return;
  bytes.resize(values.size() * 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float doubled = values[i] * 2;
    std::memcpy(&bytes[i * 4], &doubled, 4);
  }
  tensor.dtype = DType::kF32;
}

// Calls change(block) for each of them.
template <typename Block>
void each_block(Bytes& bytes, const std::function<void(Block&)>& change) {
  for (std::size_t at = 0; at + sizeof(Block) <= bytes.size(); at += sizeof(Block)) {
    Block block;
    std::memcpy(&block, &bytes[at], sizeof(Block));
    change(block);
    std::memcpy(&bytes[at], &block, sizeof(Block));
  }
}

template <typename Block>
void exchange_nibbles(Block& block) {
  for (std::uint8_t& q : block.qs) q = std::rotl(q, 4);
}

void exchange_all_nibbles(TensorView& tensor, Bytes& bytes) {
  switch (tensor.dtype) {
    case DType::kQ4_0:
      return each_block<BlockQ4_0>(bytes, exchange_nibbles<BlockQ4_0>);
    case DType::kQ4_1:
      return each_block<BlockQ4_1>(bytes, exchange_nibbles<BlockQ4_1>);
    case DType::kQ5_0:
      return each_block<BlockQ5_0>(bytes, exchange_nibbles<BlockQ5_0>);
    case DType::kQ4_K:
      return each_block<BlockQ4_K>(bytes, exchange_nibbles<BlockQ4_K>);
    default:
      return;
  }
}

void exchange_scale_and_min(TensorView& tensor, Bytes& bytes) {
  switch (tensor.dtype) {
    case DType::kQ4_1:
      return each_block<BlockQ4_1>(bytes, [](BlockQ4_1& b) { std::swap(b.d, b.m); });
    case DType::kQ5_1:
      return each_block<BlockQ5_1>(bytes, [](BlockQ5_1& b) { std::swap(b.d, b.m); });
    case DType::kQ2_K:
      return each_block<BlockQ2_K>(bytes, [](BlockQ2_K& b) { std::swap(b.d, b.dmin); });
    case DType::kQ4_K:
      return each_block<BlockQ4_K>(bytes, [](BlockQ4_K& b) { std::swap(b.d, b.dmin); });
    case DType::kQ5_K:
      return each_block<BlockQ5_K>(bytes, [](BlockQ5_K& b) { std::swap(b.d, b.dmin); });
    default:
      return;
  }
}

// A stream of blocks cut as if each row took one block more: row r begins r blocks late.
void misalign_rows(TensorView& tensor, Bytes& bytes) {
  const std::size_t row = bytes.size() / tensor.rows();
  const std::size_t block = dtype_info(tensor.dtype).block_bits / 8;
  for (std::size_t r = 0; r < tensor.rows(); ++r) {
    for (std::size_t i = 0; i < row; ++i)
      bytes[r * row + i] = tensor.data[(r * (row + block) + i) % tensor.data.size()];
  }
}

std::function<void(Site&)> alter(WeightRole role, int layer, AlteredWeights::Change change) {
  return [=](Site& site) { site.alter(role, layer, change); };
}

std::vector<FaultRow> order_faults() {
  return {
      {{"embedding_transposed", FaultKind::kData, "weight_transposed", "float embeddings",
        "the embedding [vocabulary][hidden] is read as [hidden][vocabulary]"},
       floats(WeightRole::kTokenEmbedding, -1),
       at(Stage::kEmbedOut, -1),
       alter(WeightRole::kTokenEmbedding, -1, transpose)},
      {{"projection_transposed", FaultKind::kData, "weight_transposed", "float weights",
        "an output projection [out][in] is read as [in][out]"},
       floats(WeightRole::kO),
       at(Stage::kOProj, kFaultyLayer),
       alter(WeightRole::kO, kFaultyLayer, transpose)},
      {{"rotary_rows_permuted", FaultKind::kData, "weight_permuted", "",
        "rows of q and k keep GGUF's order of rotary pairs"},
       {},
       at(Stage::kQProj, 0),
       [](Site& site) {
         for (int layer = 0; layer < site.layers(); ++layer) {
           const std::size_t dim = site.spec().layers[static_cast<std::size_t>(layer)].attention.head_dim;
           for (const WeightRole role : {WeightRole::kQ, WeightRole::kK}) {
             site.permute_rows(role, layer, [dim](std::size_t row) {
               const std::size_t head = row / dim, i = row % dim;
               return head * dim + (i % 2) * dim / 2 + i / 2;
             });
           }
         }
       }},
      {{"rows_shifted", FaultKind::kData, "weight_shifted", "",
        "every row of a v projection is its neighbour's"},
       has(WeightRole::kV),
       at(Stage::kVProj, kFaultyLayer),
       [](Site& site) {
         const std::size_t rows = site.weights()[site.weights().find(WeightRole::kV, kFaultyLayer)].rows();
         site.permute_rows(WeightRole::kV, kFaultyLayer,
                           [rows](std::size_t row) { return (row + 1) % rows; });
       }},
      {{"gate_up_swapped", FaultKind::kData, "gate_up_swapped", "",
        "gate and up have each other's name on every layer"},
       has(WeightRole::kGate, 0),
       at(Stage::kFfnGate, 0),
       [](Site& site) {
         for (int layer = 0; layer < site.layers(); ++layer)
           site.swap(WeightRole::kGate, WeightRole::kUp, layer);
       }},
      {{"k_v_swapped", FaultKind::kData, "tensor_swapped", "", "k and v of one layer have each other's name"},
       has(WeightRole::kK),
       at(Stage::kKProj, kFaultyLayer),
       [](Site& site) { site.swap(WeightRole::kK, WeightRole::kV, kFaultyLayer); }},
      {{"q_k_norms_swapped", FaultKind::kData, "tensor_swapped", "models with q/k norm",
        "the norms of queries and keys of one layer have each other's name"},
       has(WeightRole::kQNorm),
       at(Stage::kQNorm, kFaultyLayer),
       [](Site& site) { site.swap(WeightRole::kQNorm, WeightRole::kKNorm, kFaultyLayer); }},
      {{"stale_layer", FaultKind::kData, "stale_weight", "",
        "an output projection is that of the layer before"},
       has(WeightRole::kO),
       at(Stage::kOProj, kFaultyLayer),
       [](Site& site) {
         site.weights().alias(WeightRole::kO, kFaultyLayer,
                              site.weights().find(WeightRole::kO, kFaultyLayer - 1));
       }},
      {{"final_norm_stale", FaultKind::kData, "stale_weight", "", "the last norm is that of a layer"},
       {},
       at(Stage::kFinalNorm, -1),
       [](Site& site) {
         site.weights().alias(WeightRole::kFinalNorm, -1, site.weights().find(WeightRole::kFfnNorm, 0));
       }},
  };
}

std::vector<FaultRow> weight_faults() {
  const auto zero_rows_from_half = [](TensorView& tensor, Bytes& bytes) {
    const std::size_t row = bytes.size() / tensor.rows();
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(tensor.rows() / 2 * row), bytes.end(),
              std::byte{0});
  };
  return {
      {{"truncated_tensor", FaultKind::kData, "truncated_weight", "",
        "the second half of a down projection was never written"},
       has(WeightRole::kDown),
       at(Stage::kFfnOut, kFaultyLayer),
       alter(WeightRole::kDown, kFaultyLayer, zero_rows_from_half)},
      {{"embedding_rows_zero", FaultKind::kData, "truncated_weight", "",
        "embeddings of the second half of the vocabulary are zero"},
       {},
       at(Stage::kEmbedOut, -1),
       alter(WeightRole::kTokenEmbedding, -1, zero_rows_from_half)},
      {{"bf16_read_as_f16", FaultKind::kData, "wrong_dtype", "BF16 weights",
        "a k projection of BF16 is read as F16"},
       [](const Subject& s) {
         return has_layers(s, 2) && type_of(s, WeightRole::kK, kFaultyLayer) == DType::kBF16;
       },
       at(Stage::kKProj, kFaultyLayer),
       alter(WeightRole::kK, kFaultyLayer, [](TensorView& tensor, Bytes&) { tensor.dtype = DType::kF16; })},
      {{"weight_nan", FaultKind::kData, "weight_nan", "float weights",
        "one value of an up projection is NaN"},
       floats(WeightRole::kUp),
       at(Stage::kFfnUp, kFaultyLayer),
       alter(WeightRole::kUp, kFaultyLayer,
             [](TensorView& tensor, Bytes& bytes) {
               const std::uint32_t nan = tensor.dtype == DType::kF32    ? 0x7fc00000
                                         : tensor.dtype == DType::kBF16 ? 0x7fc0
                                                                        : 0x7e00;
               const std::size_t width = width_of(tensor);
               std::memcpy(&bytes[(3 * tensor.cols() + 7) * width], &nan, width);
             })},
      {{"signs_lost", FaultKind::kData, "weight_wrong", "float weights",
        "every value of a down projection is positive"},
       floats(WeightRole::kDown),
       at(Stage::kFfnOut, kFaultyLayer),
       alter(WeightRole::kDown, kFaultyLayer,
             [](TensorView& tensor, Bytes& bytes) {
               for (std::size_t r = 0; r < tensor.rows(); ++r) {
                 for (std::size_t c = 0; c < tensor.cols(); ++c)
                   high_byte(tensor, bytes, r, c) &= std::byte{0x7f};
               }
             })},
      {{"sign_flip", FaultKind::kData, "weight_wrong", "float weights",
        "one sign of an up projection flipped"},
       floats(WeightRole::kUp),
       at(Stage::kFfnUp, kFaultyLayer),
       alter(WeightRole::kUp, kFaultyLayer,
             [](TensorView& tensor, Bytes& bytes) { high_byte(tensor, bytes, 17, 5) ^= std::byte{0x80}; })},
      {{"weight_doubled", FaultKind::kData, "weight_scaled", "", "a v projection is twice what it should be"},
       has(WeightRole::kV),
       at(Stage::kVProj, kFaultyLayer),
       alter(WeightRole::kV, kFaultyLayer, scale_by_two)},
      {{"nibble_order", FaultKind::kData, "nibble_order", "weights in Q4_0, Q4_1, Q5_0 or Q4_K",
        "low and high nibbles of a gate projection are exchanged"},
       blocks(WeightRole::kGate, {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ4_K}),
       at(Stage::kFfnGate, kFaultyLayer),
       alter(WeightRole::kGate, kFaultyLayer, exchange_all_nibbles)},
      {{"scale_min_swapped", FaultKind::kData, "scale_min_swapped",
        "weights in Q4_1, Q5_1, Q2_K, Q4_K or Q5_K",
        "scale and minimum of a gate projection's blocks are exchanged"},
       blocks(WeightRole::kGate, {DType::kQ4_1, DType::kQ5_1, DType::kQ2_K, DType::kQ4_K, DType::kQ5_K}),
       at(Stage::kFfnGate, kFaultyLayer),
       alter(WeightRole::kGate, kFaultyLayer, exchange_scale_and_min)},
      {{"row_blocks_misaligned", FaultKind::kData, "row_blocks_misaligned", "quantised weights",
        "each row of a gate projection begins one block later than the row before"},
       [](const Subject& s) {
         return has_layers(s, 2) && is_quantised(type_of(s, WeightRole::kGate, kFaultyLayer));
       },
       at(Stage::kFfnGate, kFaultyLayer),
       alter(WeightRole::kGate, kFaultyLayer, misalign_rows)},
  };
}

}  // namespace

void transpose(TensorView& tensor, Bytes& bytes) {
  const std::size_t rows = tensor.rows(), cols = tensor.cols(), width = width_of(tensor);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c)
      std::copy_n(&tensor.data[(c * rows + r) * width], width, &bytes[(r * cols + c) * width]);
  }
}

std::vector<FaultRow> data_faults() {
  std::vector<FaultRow> rows;
  for (const auto& part : {order_faults(), weight_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
