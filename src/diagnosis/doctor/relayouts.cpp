#include "diagnosis/doctor/relayouts.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "diagnosis/doctor/head_rows.h"

namespace doppler::diagnosis {
namespace {

using Place = std::function<std::uint64_t(std::uint64_t row, std::uint64_t col)>;

struct BlockLayout {
  DType type;
  std::size_t bytes, d, m;  // m: where the minimum lies; 0: none
  std::size_t nibbles, nibble_bytes;
  std::size_t sub_scales = 0;  // 12 bytes of 6-bit scales and minima
};
constexpr BlockLayout kBlocks[] = {
    {DType::kQ4_0, 18, 0, 0, 2, 16},       {DType::kQ4_1, 20, 0, 2, 4, 16},
    {DType::kQ5_0, 22, 0, 0, 6, 16},       {DType::kQ5_1, 24, 0, 2, 8, 16},
    {DType::kQ8_0, 34, 0, 0, 0, 0},        {DType::kQ2_K, 84, 80, 82, 0, 16},
    {DType::kQ3_K, 110, 108, 0, 0, 0},     {DType::kQ4_K, 144, 0, 2, 16, 128, 4},
    {DType::kQ5_K, 176, 0, 2, 48, 128, 4}, {DType::kQ6_K, 210, 208, 0, 0, 128},
    {DType::kIQ4_NL, 18, 0, 0, 2, 16},     {DType::kIQ4_XS, 136, 0, 0, 8, 128},
    {DType::kMXFP4, 17, 0, 0, 1, 16},
};

using ChangeBlock = void (*)(const BlockLayout& layout, std::byte* block);

void swap_nibbles(const BlockLayout& layout, std::byte* block) {
  for (std::size_t i = 0; i < layout.nibble_bytes; ++i) {
    std::byte& b = block[layout.nibbles + i];
    b = (b << 4) | (b >> 4);
  }
}
void swap_scale_and_min(const BlockLayout& layout, std::byte* block) {
  for (std::size_t i = 0; i < 2; ++i) std::swap(block[layout.d + i], block[layout.m + i]);
}
// Bytes 0 to 3 begin with the scales, 4 to 7 with the minima; 8 to 11 hold low bits of both.
void swap_sub_scales(const BlockLayout& layout, std::byte* block) {
  std::byte* s = block + layout.sub_scales;
  for (std::size_t i = 0; i < 4; ++i) {
    std::swap(s[i], s[4 + i]);
    s[8 + i] = (s[8 + i] << 4) | (s[8 + i] >> 4);
  }
}
void swap_scale_bytes(const BlockLayout& layout, std::byte* block) {
  std::swap(block[layout.d], block[layout.d + 1]);
  if (layout.m != 0) std::swap(block[layout.m], block[layout.m + 1]);
}
// Nibbles of neighbours in one byte, (2i, 2i + 1), read as (i, i + 16): the codes of a block in another
// order.
void spread_nibbles(const BlockLayout& layout, std::byte* block, bool apart) {
  const std::size_t half = 16;
  for (std::size_t group = 0; group + half <= layout.nibble_bytes; group += half) {
    std::byte codes[2 * half], *q = block + layout.nibbles + group;
    for (std::size_t i = 0; i < half; ++i) {
      const std::byte low = q[i] & std::byte{15}, high = q[i] >> 4;
      codes[apart ? 2 * i : i] = low;
      codes[apart ? 2 * i + 1 : i + half] = high;
    }
    for (std::size_t i = 0; i < half; ++i) {
      q[i] = apart ? codes[i] | codes[i + half] << 4 : codes[2 * i] | codes[2 * i + 1] << 4;
    }
  }
}
// Hugging Face's blocks hold neighbours in one byte: where their nibbles are exchanged, pairs of codes are.
void swap_neighbours(const BlockLayout& layout, std::byte* block) {
  for (std::size_t i = 0; i + 1 < layout.nibble_bytes; i += 2)
    std::swap(block[layout.nibbles + i], block[layout.nibbles + i + 1]);
}
void spread_apart(const BlockLayout& layout, std::byte* block) {
  spread_nibbles(layout, block, true);
}
void spread_together(const BlockLayout& layout, std::byte* block) {
  spread_nibbles(layout, block, false);
}

// A known mistake in the blocks of one type.
struct BlockChange {
  const char *cause, *says;
  bool (*applies)(const BlockLayout& layout);
  ChangeBlock change;
};
constexpr BlockChange kBlockChanges[] = {
    {"nibble_order", "low and high nibbles change places",
     [](const BlockLayout& l) { return l.nibbles != 0 || l.type == DType::kQ6_K; }, swap_nibbles},
    {"nibble_order", "neighbours share a byte",
     [](const BlockLayout& l) { return l.nibbles != 0 && l.nibble_bytes == 16; }, spread_apart},
    {"nibble_order", "values 16 apart share a byte",
     [](const BlockLayout& l) { return l.nibbles != 0 && l.nibble_bytes == 16; }, spread_together},
    {"nibble_order", "neighbouring codes change places",
     [](const BlockLayout& l) { return l.nibbles != 0 && l.nibble_bytes == 16; }, swap_neighbours},
    {"scale_min_swapped", "scale and minimum change places", [](const BlockLayout& l) { return l.m != 0; },
     swap_scale_and_min},
    {"scale_min_swapped", "the scales and minima of 32 values each change places",
     [](const BlockLayout& l) { return l.sub_scales != 0; }, swap_sub_scales},
    {"scale_min_swapped", "the scales and minima of 16 values each change places",
     [](const BlockLayout& l) { return l.type == DType::kQ2_K; }, swap_nibbles},
    {"wrong_dtype", "the two bytes of each scale change places",
     [](const BlockLayout& l) { return l.type != DType::kMXFP4; }, swap_scale_bytes},
};
constexpr const char* kOtherEndian = "Convert the tensor again: its numbers have their bytes in reverse.";

// A row that is read as `type` from `offset` bytes on; lost where that is beyond the tensor's ends.
ReadRow bytes_from(const TensorView& weight, DType type, std::int64_t offset,
                   std::function<void(std::span<std::byte> row)> change = {}) {
  return [weight, type, offset, change](std::uint64_t row, std::span<float> values) -> Status {
    const DTypeInfo& info = dtype_info(type);
    const std::uint64_t row_bytes = values.size() / info.block_values * info.block_bits / 8;
    const std::int64_t from = static_cast<std::int64_t>(row * row_bytes) + offset;
    if (from < 0 || static_cast<std::uint64_t>(from) + row_bytes > weight.data.size())
      return fail(ErrorCode::kNotFound, "The values are lost.");
    std::vector<std::byte> bytes(weight.data.begin() + from,
                                 weight.data.begin() + from + static_cast<std::int64_t>(row_bytes));
    if (change) change(bytes);
    return decode_f32({weight.name, type, {1, values.size()}, bytes}, 0, values);
  };
}

ReadRow changed_blocks(const TensorView& weight, const BlockLayout& layout, ChangeBlock change) {
  return bytes_from(weight, weight.dtype, 0, [&layout, change](std::span<std::byte> row) {
    for (std::size_t at = 0; at + layout.bytes <= row.size(); at += layout.bytes) change(layout, &row[at]);
  });
}

// Elements one by one from another place of the flat tensor.
ReadRow from_places(const TensorView& weight, Place place) {
  return [weight, place = std::move(place)](std::uint64_t row, std::span<float> values) -> Status {
    const std::uint64_t size = weight.rows() * weight.cols();
    for (std::size_t i = 0; i < values.size(); ++i)
      DOPPLER_TRY(decode_f32(weight, place(row, i) % size, values.subspan(i, 1)));
    return {};
  };
}

// Rows of a stream that is cut every `stride` values, of which `cols` were kept: the values between are lost,
// and rows that need them are left out.
ReadRow cut_every(const TensorView& weight, std::uint64_t stride) {
  return [weight, stride](std::uint64_t row, std::span<float> values) -> Status {
    const std::uint64_t cols = weight.cols();
    for (std::uint64_t i = 0; i < cols; ++i) {
      const std::uint64_t flat = row * cols + i, r = flat / stride, offset = flat % stride;
      if (offset >= cols || r >= weight.rows()) return fail(ErrorCode::kNotFound, "The values are lost.");
      DOPPLER_TRY(decode_f32(weight, r * cols + offset, values.subspan(i, 1)));
    }
    return {};
  };
}

void add_transposes(const TensorView& w, std::vector<Relayout>& to) {
  const std::uint64_t rows = w.rows(), cols = w.cols();
  to.push_back({"weight_transposed", fmt::format("{} is read with rows and columns exchanged", w.name),
                from_places(w, [rows](std::uint64_t r, std::uint64_t i) { return i * rows + r; })});
  to.push_back({"weight_transposed", fmt::format("{} is not transposed", w.name),
                from_places(w, [rows, cols](std::uint64_t r, std::uint64_t i) {
                  const std::uint64_t flat = r * cols + i;
                  return (flat % rows) * cols + flat / rows;
                })});
}

void add_types(const TensorView& w, std::vector<Relayout>& to) {
  const std::size_t size = dtype_info(w.dtype).block_bits / 8;
  for (int i = 0; i <= static_cast<int>(DType::kMXFP4); ++i) {
    const auto type = static_cast<DType>(i);
    const DTypeInfo& info = dtype_info(type);
    if (type == w.dtype || !info.computable || w.cols() % info.block_values != 0) continue;
    to.push_back({"wrong_dtype", fmt::format("the bytes of {} are read as {}", w.name, info.name),
                  bytes_from(w, type, 0),
                  fmt::format("Correct the tensor's type to {} (it is {}), or convert it again.", info.name,
                              dtype_name(w.dtype)),
                  1, byte_size(type, w.shape) == w.data.size(), false, type});
  }
  if (is_quantised(w.dtype) || size < 2) return;
  to.push_back({"wrong_dtype", fmt::format("the bytes of each value of {} are in reverse", w.name),
                bytes_from(w, w.dtype, 0,
                           [size](std::span<std::byte> row) {
                             for (std::size_t at = 0; at + size <= row.size(); at += size)
                               std::reverse(row.begin() + static_cast<std::ptrdiff_t>(at),
                                            row.begin() + static_cast<std::ptrdiff_t>(at + size));
                           }),
                kOtherEndian});
}

void add_block_changes(const TensorView& w, std::vector<Relayout>& to) {
  const auto layout = std::ranges::find(kBlocks, w.dtype, &BlockLayout::type);
  if (layout == std::end(kBlocks)) return;
  for (const BlockChange& row : kBlockChanges) {
    if (!row.applies(*layout)) continue;
    to.push_back(
        {row.cause, fmt::format("{} in the blocks of {} ({})", row.says, w.name, dtype_name(w.dtype)),
         changed_blocks(w, *layout, row.change), row.change == swap_scale_bytes ? kOtherEndian : ""});
  }
}

// A tensor that begins elsewhere in its file. Converters pad to 32 bytes, so that such numbers of bytes are
// the likeliest, besides some values or blocks.
void add_offsets(const TensorView& w, std::vector<Relayout>& to) {
  const DTypeInfo& info = dtype_info(w.dtype);
  const std::int64_t unit = info.block_bits / 8;
  const auto row_bytes = static_cast<std::int64_t>(w.cols() / info.block_values) * unit;
  std::set<std::int64_t> bytes;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256}) {
    if (!is_quantised(w.dtype) || n <= 8) bytes.insert(n * unit);
  }
  for (const std::int64_t n : {1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}) bytes.insert(n);
  for (const std::int64_t n : bytes) {
    const bool blocks = is_quantised(w.dtype) && n % unit == 0, whole = n % unit == 0;
    const std::string much =
        whole ? fmt::format("{} {}", n / unit, blocks ? "blocks" : "values") : fmt::format("{} bytes", n);
    for (const std::int64_t sign : {1, -1}) {
      to.push_back({blocks && n % row_bytes != 0 ? "row_blocks_misaligned" : "weight_shifted",
                    fmt::format("{} begins {} {}", w.name, much, sign > 0 ? "later" : "earlier"),
                    bytes_from(w, w.dtype, sign * n),
                    {},
                    1,
                    true,
                    true});
    }
  }
  if (is_quantised(w.dtype)) return;
  const std::uint64_t cols = w.cols();
  for (const std::uint64_t by : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256}) {
    for (const bool further : {true, false}) {
      if (by >= cols) continue;
      to.push_back({"weight_shifted",
                    fmt::format("the columns of {} lie {} {}", w.name, by, further ? "further" : "earlier"),
                    from_places(w,
                                [cols, by, further](std::uint64_t r, std::uint64_t i) {
                                  return r * cols + (i + (further ? by : cols - by)) % cols;
                                }),
                    {},
                    1,
                    true,
                    true});
    }
  }
}

// Rows that were padded, or cut from a stream that was.
void add_cuts(const TensorView& w, std::vector<Relayout>& to) {
  const std::uint64_t cols = w.cols(), block = dtype_info(w.dtype).block_values;
  std::set<std::uint64_t> strides = {cols + block, cols + 2 * block}, padded;
  if (cols > block) strides.insert(cols - block);
  for (const std::uint64_t unit : {32, 64, 128, 256, 512}) {
    padded.insert((cols + unit - 1) / unit * unit);
    if (unit >= 64) strides.insert((cols + unit - 1) / unit * unit);
  }
  strides.erase(cols), padded.erase(cols);
  for (const std::uint64_t stride : strides) {
    to.push_back({"row_blocks_misaligned",
                  fmt::format("{} is cut into rows every {} values, not every {}", w.name, stride, cols),
                  cut_every(w, stride),
                  {},
                  0.95,
                  true,
                  true});
  }
  for (const std::uint64_t stride : padded) {
    to.push_back({"row_blocks_misaligned",
                  fmt::format("rows of {} are read {} values apart", w.name, stride),
                  from_places(w, [stride](std::uint64_t r, std::uint64_t i) { return r * stride + i; }),
                  {},
                  1,
                  true,
                  true});
  }
}

void drop_minimum(const BlockLayout& layout, std::byte* block) {
  block[layout.m] = block[layout.m + 1] = std::byte{0};
}

}  // namespace

ReadRow scales_only(const TensorView& weight) {
  const auto layout = std::ranges::find(kBlocks, weight.dtype, &BlockLayout::type);
  if (layout == std::end(kBlocks) || layout->m == 0) return {};
  return changed_blocks(weight, *layout, drop_minimum);
}

std::vector<Relayout> relayouts(const TensorView& weight, std::uint64_t head_dim) {
  std::vector<Relayout> all;
  if (!is_quantised(weight.dtype)) add_transposes(weight, all);
  add_types(weight, all);
  add_block_changes(weight, all);
  add_column_orders(weight, head_dim, all);
  if (!is_quantised(weight.dtype)) add_wrongly_decoded(weight, all);
  add_offsets(weight, all);
  add_cuts(weight, all);
  return all;
}

}  // namespace doppler::diagnosis
