#include "model/expert_files.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <span>
#include <string>

#include "base/text.h"
#include "quant/encode.h"

namespace doppler {
namespace {

// Rows of a stored tensor that become a tensor of their own: gate's or up's of both, or all.
struct RowPick {
  WeightRole role, bias;
  std::uint64_t first, step;
};

constexpr std::uint64_t kBlockValues = 32, kPacked = kBlockValues / 2;

std::array<RowPick, 2> picks_of_both(const FfnSpec& ffn, const WeightNames& names) {
  const std::uint64_t step = names.expert_columns.interleaved ? 2 : 1;
  return {RowPick{WeightRole::kGateExperts, WeightRole::kGateExpertsBias, 0, step},
          RowPick{WeightRole::kUpExperts, WeightRole::kUpExpertsBias, step == 2 ? 1 : ffn.width, step}};
}
constexpr std::array<RowPick, 1> kPickOfDown = {RowPick{WeightRole::kDownExperts, WeightRole::kCount, 0, 1}};

class Restorer {
 public:
  Restorer(const ModelSpec& spec, const WeightNames& names, TensorStore& store)
      : spec_(spec), names_(names), store_(store) {}

  Status restore() {
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
      const FfnSpec& ffn = spec_.layers[static_cast<std::size_t>(layer_)].ffn;
      if (ffn.experts == 0) continue;
      experts_ = ffn.experts;
      const std::uint64_t width = ffn.width;
      DOPPLER_TRY(
          restore(names_.expert_columns.gate_up, 2 * width, spec_.hidden, width, picks_of_both(ffn, names_)));
      DOPPLER_TRY(restore(names_.expert_columns.down, spec_.hidden, width, spec_.hidden, kPickOfDown));
    }
    return {};
  }

 private:
  // `rows` and `cols` of an expert's matrix as it is stored, of which each pick takes `count` rows.
  Status restore(std::string_view pattern, std::uint64_t rows, std::uint64_t cols, std::uint64_t count,
                 std::span<const RowPick> picks) {
    for (const Nesting& nesting : kNestings) {
      nesting_ = &nesting;
      std::string name = numbered_name(pattern, static_cast<std::uint64_t>(layer_));
      name = nested_name(nesting, name);
      DOPPLER_TRY(restore_floats(name, rows, cols, count, picks));
      DOPPLER_TRY(restore_blocks(name, rows, cols, count, picks));
      DOPPLER_TRY(restore_bias(name + "_bias", rows, count, picks));
    }
    return {};
  }

  Status check(const TensorView& tensor, const Shape& shape) const {
    if (tensor.shape == shape) return {};
    return fail(
        ErrorCode::kMismatch,
        "The tensor {} has the shape {}, but {} experts, hidden_size and intermediate_size ask for {}. "
        "Check that {} belongs to these weights.",
        printable(tensor.name), describe_shape(tensor.shape), experts_, describe_shape(shape),
        spec_.described_by);
  }

  Result<std::span<std::byte>> create(WeightRole role, DType dtype, Shape shape) {
    return store_.create(nested_name(*nesting_, weight_name(names_, role, layer_)) + kNew, dtype,
                         std::move(shape));
  }
  // New tensors may have the names of the old ones.
  Status settle(std::string_view old, std::span<const RowPick> picks, WeightRole RowPick::* role) {
    store_.drop(old);
    for (const RowPick& pick : picks) {
      const std::string name = nested_name(*nesting_, weight_name(names_, pick.*role, layer_));
      DOPPLER_TRY(store_.rename(name + kNew, name));
    }
    return {};
  }

  // [experts, cols, rows] of floats.
  Status restore_floats(const std::string& name, std::uint64_t rows, std::uint64_t cols, std::uint64_t count,
                        std::span<const RowPick> picks) {
    const TensorView* found = store_.find(name);
    if (found == nullptr) return {};
    DOPPLER_TRY(check(*found, {experts_, cols, rows}));
    DOPPLER_ASSIGN(const HeldTensor held, hold(*found));
    const TensorView& from = held.view;
    const std::size_t bytes = dtype_info(from.dtype).block_bits / 8;
    if (is_quantised(from.dtype) || bytes == 0) {
      return fail(ErrorCode::kUnsupported,
                  "The tensor {} is stored as {}, of which Doppler takes no columns. "
                  "Convert it.",
                  printable(name), dtype_name(from.dtype));
    }
    for (const RowPick& pick : picks) {
      DOPPLER_ASSIGN(const std::span<std::byte> to, create(pick.role, from.dtype, {experts_, count, cols}));
      std::size_t at = 0;
      for (std::uint64_t e = 0; e < experts_; ++e) {
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t row = pick.first + i * pick.step;
          for (std::uint64_t c = 0; c < cols; ++c, at += bytes)
            std::memcpy(&to[at], &from.data[((e * cols + c) * rows + row) * bytes], bytes);
        }
      }
    }
    return settle(name, picks, &RowPick::role);
  }

  // NAME_blocks [experts, rows, blocks, 16], a byte of which holds two neighbouring values, and NAME_scales
  // [experts, rows, blocks]. In GGUF's blocks the scale comes first, and a byte holds values i and i + 16.
  Status restore_blocks(const std::string& name, std::uint64_t rows, std::uint64_t cols, std::uint64_t count,
                        std::span<const RowPick> picks) {
    const TensorView *found = store_.find(name + "_blocks"), *scale = store_.find(name + "_scales");
    if (found == nullptr && scale == nullptr) return {};
    if (found == nullptr || scale == nullptr || found->dtype != DType::kU8 || scale->dtype != DType::kU8) {
      return fail(ErrorCode::kMismatch,
                  "The tensors {}_blocks and {}_scales must both be there, as U8. "
                  "Download the files again.",
                  printable(name), printable(name));
    }
    const std::uint64_t blocks = cols / kBlockValues;
    DOPPLER_TRY(check(*found, {experts_, rows, blocks, kPacked}));
    DOPPLER_TRY(check(*scale, {experts_, rows, blocks}));
    DOPPLER_ASSIGN(const HeldTensor held_codes, hold(*found));
    DOPPLER_ASSIGN(const HeldTensor held_scales, hold(*scale));
    const std::span<const std::byte> codes = held_codes.view.data, scales = held_scales.view.data;
    for (const RowPick& pick : picks) {
      DOPPLER_ASSIGN(const std::span<std::byte> to,
                     create(pick.role, DType::kMXFP4, {experts_, count, cols}));
      std::size_t at = 0;
      for (std::uint64_t e = 0; e < experts_; ++e) {
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t first = (e * rows + pick.first + i * pick.step) * blocks;
          for (std::uint64_t b = first; b < first + blocks; ++b, at += 1 + kPacked)
            put_block(scales[b], codes.subspan(b * kPacked, kPacked), to.subspan(at, 1 + kPacked));
        }
      }
    }
    DOPPLER_TRY(settle(name + "_blocks", picks, &RowPick::role));
    store_.drop(name + "_scales");
    return {};
  }

  static void put_block(std::byte scale, std::span<const std::byte> pairs, std::span<std::byte> out) {
    const auto value = [&](std::size_t i) { return (pairs[i / 2] >> (i % 2 * 4)) & std::byte{15}; };
    out[0] = scale;
    for (std::size_t i = 0; i < kPacked; ++i) out[1 + i] = value(i) | value(i + kPacked) << 4;
  }

  // [experts, rows]; where there is one pick, its names are the file's.
  Status restore_bias(const std::string& name, std::uint64_t rows, std::uint64_t count,
                      std::span<const RowPick> picks) {
    const TensorView* found = store_.find(name);
    if (found == nullptr || picks.size() == 1) return {};
    DOPPLER_TRY(check(*found, {experts_, rows}));
    DOPPLER_ASSIGN(const HeldTensor held, hold(*found));
    const TensorView& from = held.view;
    const std::size_t bytes = dtype_info(from.dtype).block_bits / 8;
    for (const RowPick& pick : picks) {
      DOPPLER_ASSIGN(const std::span<std::byte> to, create(pick.bias, from.dtype, {experts_, count}));
      std::size_t at = 0;
      for (std::uint64_t e = 0; e < experts_; ++e) {
        for (std::uint64_t i = 0; i < count; ++i, at += bytes)
          std::memcpy(&to[at], &from.data[(e * rows + pick.first + i * pick.step) * bytes], bytes);
      }
    }
    return settle(name, picks, &RowPick::bias);
  }

  inline static const std::string kNew = " (restored)";

  const ModelSpec& spec_;
  const WeightNames& names_;
  TensorStore& store_;
  const Nesting* nesting_ = nullptr;
  std::uint64_t experts_ = 0;
  int layer_ = 0;
};

}  // namespace

Status restore_experts(const ModelSpec& spec, const WeightNames& names, TensorStore& store) {
  if (names.expert_columns.gate_up.empty()) return {};
  return Restorer(spec, names, store).restore();
}

namespace {

// The inverse of Restorer::put_block(): a block of 32 values, as neighbours in one byte.
void take_block(std::span<const std::byte> block, std::byte& scale, std::span<std::byte> pairs) {
  const auto value = [&](std::size_t i) {
    return i < kPacked ? block[1 + i] & std::byte{15} : block[1 + i - kPacked] >> 4;
  };
  scale = block[0];
  for (std::size_t i = 0; i < kPacked; ++i) pairs[i] = value(2 * i) | value(2 * i + 1) << 4;
}

}  // namespace

std::optional<ExpertPlace> find_expert(const ModelSpec& spec, const WeightNames& names,
                                       const TensorStore& store, std::string_view matrix) {
  const ExpertColumns& columns = names.expert_columns;
  const std::size_t open = matrix.find('[');
  if (columns.gate_up.empty() || open == std::string_view::npos) return std::nullopt;
  const std::string_view tensor = matrix.substr(0, open);
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const FfnSpec& ffn = spec.layers[static_cast<std::size_t>(layer)].ffn;
    const std::array both = picks_of_both(ffn, names);
    const auto look = [&](std::span<const RowPick> picks, std::string_view pattern, std::uint64_t rows,
                          std::uint64_t cols) -> std::optional<ExpertPlace> {
      for (const RowPick& pick : picks) {
        for (const Nesting& nesting : kNestings) {
          if (nested_name(nesting, weight_name(names, pick.role, layer)) != tensor) continue;
          const std::string name =
              nested_name(nesting, numbered_name(pattern, static_cast<std::uint64_t>(layer)));
          const bool blocks = store.find(name + "_blocks") != nullptr;
          const TensorView* found = store.find(blocks ? name + "_blocks" : name);
          const std::uint64_t expert = std::strtoull(&matrix[open + 1], nullptr, 10);
          if (found == nullptr || expert >= ffn.experts) return std::nullopt;
          const Shape expected = blocks ? Shape{ffn.experts, rows, cols / kBlockValues, kPacked}
                                        : Shape{ffn.experts, cols, rows};
          if (found->shape != expected) return std::nullopt;
          return ExpertPlace{.stored = found->name,
                             .scales = blocks ? name + "_scales" : std::string(),
                             .rows = rows,
                             .cols = cols,
                             .count = rows / picks.size(),
                             .expert = expert,
                             .first = pick.first,
                             .step = pick.step};
        }
      }
      return std::nullopt;
    };
    if (ffn.experts == 0) continue;
    if (auto place = look(both, columns.gate_up, 2 * std::uint64_t{ffn.width}, spec.hidden)) return place;
    if (auto place = look(kPickOfDown, columns.down, spec.hidden, ffn.width)) return place;
  }
  return std::nullopt;
}

Status put_expert_row(const ExpertPlace& place, std::uint64_t row, std::span<const float> values, DType type,
                      std::span<std::byte> stored, std::span<std::byte> scales) {
  const bool blocks = !place.scales.empty();
  const DType own = blocks ? DType::kMXFP4 : type;
  const std::uint64_t at = place.first + row * place.step;
  std::vector<std::byte> bytes(*byte_size(own, {1, values.size()}));
  DOPPLER_TRY(encode(own, values, bytes));
  if (!blocks) {
    const std::size_t size = bytes.size() / values.size();
    for (std::uint64_t c = 0; c < place.cols; ++c)
      std::memcpy(&stored[((place.expert * place.cols + c) * place.rows + at) * size], &bytes[c * size],
                  size);
    return {};
  }
  const std::uint64_t count = place.cols / kBlockValues;
  const std::uint64_t first = (place.expert * place.rows + at) * count;
  for (std::uint64_t b = 0; b < count; ++b)
    take_block(std::span(bytes).subspan(b * (1 + kPacked), 1 + kPacked), scales[first + b],
               stored.subspan((first + b) * kPacked, kPacked));
  return {};
}

}  // namespace doppler
