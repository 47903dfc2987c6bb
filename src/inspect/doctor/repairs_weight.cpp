// Repairs of products: what may have happened to a weight between training and here. Rows that changed places
// are found by their outputs; other layouts are read anew, for a sample of the rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "inspect/doctor/repairs.h"
#include "inspect/doctor/weight_probe.h"

namespace doppler::repairs {
namespace {

// A head's rows when the two of each rotary pair lie side by side, as GGUF has them, and back.
std::size_t paired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % 2) * dim / 2 + i / 2;
}
std::size_t unpaired(std::size_t row, std::size_t dim) {
  const std::size_t i = row % dim;
  return row / dim * dim + (i % (dim / 2)) * 2 + i / (dim / 2);
}

std::size_t head_dim(const OpCase& c) {
  const auto& layers = c.context().spec.layers;
  return c.layer() < 0 || layers.empty() ? 0 : layers[static_cast<std::size_t>(c.layer())].attention.head_dim;
}

// For each wrong output the row of the weight whose output it should be; rows() where there is none.
std::vector<std::size_t> find_sources(const OpCase& c, const WeightProbe& probe) {
  std::vector<std::size_t> order(c.width());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t r) { return probe.output(0, r); });
  std::vector<std::size_t> sources;
  for (const std::size_t bad : probe.bad()) {
    const double wanted = probe.target(0, bad), allowed = c.allowed_at(0, bad);
    auto at = std::ranges::lower_bound(order, wanted - allowed, {},
                                       [&](std::size_t r) { return probe.output(0, r); });
    std::size_t found = c.width();
    for (; at != order.end() && probe.output(0, *at) <= wanted + allowed && found == c.width(); ++at) {
      bool same = true;
      for (std::size_t t = 1; t < c.tokens() && same; ++t)
        same = std::abs(probe.output(t, *at) - probe.target(t, bad)) <= c.allowed_at(t, bad);
      if (same) found = *at;
    }
    sources.push_back(found);
  }
  return sources;
}

struct BlockLayout {
  DType type;
  std::size_t bytes, d, m;  // m: where the minimum lies; 0: none
  std::size_t nibbles, nibble_bytes;
};
constexpr BlockLayout kBlocks[] = {
    {DType::kQ4_0, 18, 0, 0, 2, 16},    {DType::kQ4_1, 20, 0, 2, 4, 16},
    {DType::kQ5_0, 22, 0, 0, 6, 16},    {DType::kQ5_1, 24, 0, 2, 8, 16},
    {DType::kQ2_K, 84, 80, 82, 0, 16},  {DType::kQ4_K, 144, 0, 2, 16, 128},
    {DType::kQ5_K, 176, 0, 2, 48, 128}, {DType::kQ6_K, 210, 208, 0, 0, 128},
    {DType::kIQ4_NL, 18, 0, 0, 2, 16},  {DType::kIQ4_XS, 136, 0, 0, 8, 128},
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
void spread_apart(const BlockLayout& layout, std::byte* block) {
  spread_nibbles(layout, block, true);
}
void spread_together(const BlockLayout& layout, std::byte* block) {
  spread_nibbles(layout, block, false);
}

// A row of a quantised weight, its blocks changed first.
WeightProbe::ReadRow changed_blocks(const TensorView& weight, const BlockLayout& layout, ChangeBlock change) {
  return [&weight, layout, change](std::uint64_t row, std::span<float> values) -> Status {
    const std::size_t row_bytes = weight.data.size() / weight.rows();
    std::vector<std::byte> bytes(weight.data.begin() + static_cast<std::ptrdiff_t>(row * row_bytes),
                                 weight.data.begin() + static_cast<std::ptrdiff_t>((row + 1) * row_bytes));
    for (std::size_t at = 0; at + layout.bytes <= bytes.size(); at += layout.bytes)
      change(layout, &bytes[at]);
    return decode_f32({weight.name, weight.dtype, {1, weight.cols()}, bytes}, 0, values);
  };
}

// Elements one by one from another place of the flat tensor; beyond its ends nothing is known, so such rows
// are left out by failing only where every element is.
WeightProbe::ReadRow from_places(
    const TensorView& weight,
    const std::function<std::int64_t(std::uint64_t row, std::uint64_t col)>& place) {
  return [&weight, place](std::uint64_t row, std::span<float> values) -> Status {
    const auto size = static_cast<std::int64_t>(weight.rows() * weight.cols());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t at = ((place(row, i) % size) + size) % size;
      DOPPLER_TRY(decode_f32(weight, static_cast<std::uint64_t>(at), values.subspan(i, 1)));
    }
    return {};
  };
}

// As from_places, whole rows at once where places follow each other.
WeightProbe::ReadRow shifted_by(const TensorView& weight, std::int64_t by) {
  return [&weight, by](std::uint64_t row, std::span<float> values) -> Status {
    const std::int64_t from = static_cast<std::int64_t>(row * weight.cols()) + by;
    const auto size = static_cast<std::int64_t>(weight.rows() * weight.cols()),
               n = static_cast<std::int64_t>(values.size());
    if (from >= 0 && from + n <= size) return decode_f32(weight, static_cast<std::uint64_t>(from), values);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = ((from + i) % size + size) % size;
      DOPPLER_TRY(
          decode_f32(weight, static_cast<std::uint64_t>(at), values.subspan(static_cast<std::size_t>(i), 1)));
    }
    return {};
  };
}

std::string list_rows(const std::vector<std::size_t>& rows) {
  if (rows.empty()) return "none";
  if (rows.size() == 1) return fmt::format("row {}", rows[0]);
  const bool together = rows.back() - rows.front() + 1 == rows.size();
  return together ? fmt::format("rows {} to {}", rows.front(), rows.back())
                  : fmt::format("{} rows between {} and {}", rows.size(), rows.front(), rows.back());
}

// Ops that multiply by a weight of this shape, this one left out.
std::vector<std::size_t> alike(const OpCase& c) {
  std::vector<std::size_t> ops;
  const Plan& plan = c.plan();
  const Shape& shape = c.setup().weights[0].shape;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    if (op.kind == OpKind::kMatmul && i != c.index() && c.context().weights[op.weights[0]].shape == shape)
      ops.push_back(i);
  }
  // Nearest layers first: neighbours are confused more often than ends.
  std::ranges::sort(ops, {},
                    [&](std::size_t i) { return std::pair(std::abs(plan.ops[i].layer - c.layer()), i); });
  return ops;
}

// Does the other op's recorded output follow from our weight?
bool fits_there(const OpCase& c, std::size_t other) {
  const auto recorded = c.context().experiment.recorded(other);
  if (!recorded) return false;
  auto there = OpCase::open(c.context(), other, *recorded);
  if (!there || there->misfit().agrees()) return false;
  return WeightProbe(*there).ratio(c.setup().weights[0]) <= 1;
}

// A few outputs that differ by a multiple of one input: one value of each row.
bool one_value_each(OpCase& c, const WeightProbe& probe) {
  const OpSetup::Rows& in = c.setup().inputs[0];
  if (probe.bad().empty() || probe.bad().size() > 8) return false;
  std::vector<std::string> places;
  for (const std::size_t r : probe.bad()) {
    std::size_t best = in.width;
    double change = 0;
    for (std::size_t i = 0; i < in.width && best == in.width; ++i) {
      double products = 0, squares = 0;
      for (std::size_t t = 0; t < c.tokens(); ++t) {
        const double x = in.data[t * in.width + i];
        products += x * (probe.target(t, r) - probe.output(t, r)), squares += x * x;
      }
      if (squares == 0) continue;
      bool same = true;
      for (std::size_t t = 0; t < c.tokens() && same; ++t) {
        const double rest =
            probe.target(t, r) - probe.output(t, r) - products / squares * in.data[t * in.width + i];
        same = std::abs(rest) <= c.allowed_at(t, r);
      }
      if (same) best = i, change = products / squares;
    }
    if (best == in.width) return false;
    float stored = 0;
    if (!decode_f32(probe.weight(), r * in.width + best, std::span(&stored, 1))) return false;
    places.push_back(fmt::format("[{}][{}] is {:.4g} (it is {:.4g})", r, best, stored + change, stored));
  }
  c.keep({"weight_wrong",
          fmt::format("{}{}{}", probe.weight().name, places[0],
                      places.size() > 1 ? fmt::format(", and {} more", places.size() - 1) : ""),
          {},
          0.5,
          0.9});
  return true;
}

// Rows of a stream that is cut every `stride` values, of which `cols` were kept: what lies between is lost,
// and rows with it are left out.
WeightProbe::ReadRow cut_every(const TensorView& weight, std::uint64_t stride) {
  return [&weight, stride](std::uint64_t row, std::span<float> values) -> Status {
    const std::uint64_t cols = weight.cols();
    for (std::uint64_t i = 0; i < cols; ++i) {
      const std::uint64_t flat = row * cols + i, r = flat / stride, offset = flat % stride;
      if (offset >= cols || r >= weight.rows()) return fail(ErrorCode::kNotFound, "The values are lost.");
      DOPPLER_TRY(decode_f32(weight, r * cols + offset, values.subspan(i, 1)));
    }
    return {};
  };
}

void attempt_cuts(OpCase& c, const WeightProbe& probe) {
  const TensorView& w = probe.weight();
  const std::uint64_t block = dtype_info(w.dtype).block_values;
  std::set<std::uint64_t> strides = {w.cols() + block, w.cols() + 2 * block};
  if (w.cols() > block) strides.insert(w.cols() - block);
  for (const std::uint64_t unit : {64, 128, 256, 512}) strides.insert((w.cols() + unit - 1) / unit * unit);
  strides.erase(w.cols());
  for (const std::uint64_t stride : strides) {
    c.keep({"row_blocks_misaligned",
            fmt::format("{} is cut into rows every {} values, not every {}", w.name, w.cols(), stride),
            {},
            probe.ratio(cut_every(w, stride)),
            0.95});
  }
}

}  // namespace

void weight_values(OpCase& c) {
  const WeightProbe probe(c);
  const TensorView& w = probe.weight();
  std::vector<float> row(w.cols());
  std::size_t zero_rows = 0, positive = 0, least_tail = SIZE_MAX;
  for (const std::size_t r : probe.bad()) {
    if (!decode_f32(w, r * w.cols(), row)) return;
    if (const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
        bad != row.end()) {
      c.keep(
          {"weight_nan",
           fmt::format("{} holds a number, not {}, in row {}, column {}", w.name, *bad, r, bad - row.begin()),
           {},
           0,
           1});
      return;
    }
    positive += static_cast<std::size_t>(std::ranges::count_if(row, [](float x) { return x > 0; }));
    std::size_t tail = 0;
    while (tail < row.size() && row[row.size() - 1 - tail] == 0) ++tail;
    zero_rows += tail == row.size();
    if (tail < row.size()) least_tail = std::min(least_tail, tail);
  }
  if (probe.bad().empty()) return;
  if (positive * 100 >= probe.bad().size() * w.cols() * 99 && !is_quantised(w.dtype)) {
    c.keep({"weight_wrong", fmt::format("{} has negative values, too", w.name),
            "Convert the tensor again: its signs are lost.", 0.6, 0.9});
  }
  if (const std::string other = same_bytes_as(c); !other.empty())
    c.keep({c.stage() == Stage::kLogits ? "tied_head" : "stale_weight",
            fmt::format("{} is another than {}", w.name, other),
            {},
            0.5,
            0.95});
  const bool only_zero = zero_rows == probe.bad().size(), ends = probe.bad().back() + 1 == w.rows();
  if (only_zero || (zero_rows > 0 && ends && zero_rows + 1 >= probe.bad().size())) {
    c.keep({"truncated_weight",
            fmt::format("{} of {} are not zero", list_rows(probe.bad()), w.name),
            {},
            0.4,
            1});
  } else if (least_tail != SIZE_MAX && least_tail >= 4) {
    c.keep({"truncated_weight",
            fmt::format("the last {} columns of {} are not zero", least_tail, w.name),
            {},
            0.6,
            0.95});
  }
}

void weight_bias(OpCase& c) {
  if (c.tokens() < 3) return;
  std::vector<double> offset(c.width());
  std::vector<float> out = c.output();
  const WeightProbe probe(c);
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t t = i / c.width(), r = i % c.width();
    offset[r] += (static_cast<double>(c.target()[i]) - out[i]) / static_cast<double>(c.tokens());
    products += probe.output(t, r) * probe.target(t, r);
    squares += probe.output(t, r) * probe.output(t, r);
  }
  const double scale = squares > 0 ? products / squares : 0;
  std::vector<float> scaled = out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t r = i % c.width();
    scaled[i] = static_cast<float>(probe.output(i / c.width(), r) * scale + probe.bias(r));
  }
  // A scale of 0 is no scale.
  if (std::abs(scale) > 1e-4) {
    c.consider("weight_scaled", fmt::format("{} is multiplied by {:.6g}", c.setup().weights[0].name, scale),
               {}, scaled, 0.95);
  }
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(out[i] + offset[i % c.width()]);
  const bool has_bias = !c.setup().biases.empty() && c.setup().biases[0];
  if (!has_bias) {
    c.consider("bias_missing", "a bias is added", {}, out);
    return;
  }
  const TensorView& bias = *c.setup().biases[0];
  c.attempt("bias_missing", "no bias is added", fmt::format("Leave {} out.", bias.name),
            [](OpSetup& s) { s.biases.clear(); });
  for (const TensorView& other : c.context().weights.tensors()) {
    if (other.shape != bias.shape || other.data.data() == bias.data.data()) continue;
    c.attempt("stale_weight", fmt::format("the bias is {}", other.name), {},
              [&](OpSetup& s) { s.biases[0] = other; });
  }
  std::vector<float> stored(c.width());
  const bool zero =
      decode_f32(bias, 0, stored) && std::ranges::all_of(stored, [](float x) { return x == 0; });
  c.consider(zero ? "bias_missing" : "weight_wrong",
             fmt::format("{} {}", bias.name, zero ? "is not zero" : "holds other values"), {}, out, 0.8);
}

void weight_rows(OpCase& c) {
  const WeightProbe probe(c);
  if (c.explained() || c.tokens() < 2) return;  // one token is no fingerprint
  const std::vector<std::size_t> sources = find_sources(c, probe);
  std::size_t found = 0, shifted = 0, to_pairs = 0, from_pairs = 0, proportional = 0;
  const std::size_t rows = c.width(), dim = head_dim(c);
  std::size_t shift = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::size_t r = probe.bad()[i], s = sources[i];
    if (s == rows) continue;
    if (found++ == 0) shift = (s + rows - r) % rows;
    shifted += (s + rows - r) % rows == shift;
    if (dim > 1 && dim % 2 == 0) {
      to_pairs += s == paired(r, dim);
      from_pairs += s == unpaired(r, dim);
    }
    proportional += s < r;
  }
  const auto most = [&](std::size_t count) { return count > 0 && count * 10 >= sources.size() * 9; };
  const std::string name = probe.weight().name;
  const std::string where = list_rows(probe.bad());
  const auto signed_shift = shift > rows / 2
                                ? static_cast<std::int64_t>(shift) - static_cast<std::int64_t>(rows)
                                : static_cast<std::int64_t>(shift);
  // Rows were matched through every token, so what fits, fits.
  constexpr double kMatched = 0.3;
  if (most(to_pairs) || most(from_pairs)) {
    c.keep({"weight_permuted",
            fmt::format("the rows of {} are put in the order of {}", name,
                        most(from_pairs) ? "neighbouring rotary pairs (GGUF's)"
                                         : "halves of a head (Hugging Face's)"),
            {},
            kMatched,
            1});
  } else if (most(shifted)) {
    c.keep({"weight_shifted",
            fmt::format("row i of {} is row i {} {} ({})", name, signed_shift < 0 ? '-' : '+',
                        std::abs(signed_shift), where),
            {},
            kMatched,
            1});
  } else if (most(found)) {
    c.keep({"weight_permuted", fmt::format("{} of {} change places", where, name), {}, kMatched, 0.95});
  } else if (found >= 2 && found * 20 >= sources.size() && proportional == found) {
    c.keep(
        {"row_blocks_misaligned",
         fmt::format("{} is cut into rows at other places: row {} lies where row {} should", name,
                     probe.bad()[static_cast<std::size_t>(
                         std::ranges::find_if(sources, [&](auto s) { return s != rows; }) - sources.begin())],
                     *std::ranges::find_if(sources, [&](auto s) { return s != rows; })),
         {},
         0.9,
         0.7});
  }
}

void weight_layout(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  const TensorView& w = probe.weight();
  const auto rows = w.rows(), cols = w.cols();
  const auto attempt = [&](const char* cause, std::string says, const WeightProbe::ReadRow& read,
                           double weight = 1) {
    return c.keep({cause, std::move(says), {}, probe.ratio(read), weight});
  };
  if (is_quantised(w.dtype)) return;
  attempt("weight_transposed", fmt::format("{} is read with rows and columns exchanged", w.name),
          from_places(
              w, [&](std::uint64_t r, std::uint64_t i) { return static_cast<std::int64_t>(i * rows + r); }));
  attempt("weight_transposed", fmt::format("{} is not transposed", w.name),
          from_places(w, [&](std::uint64_t r, std::uint64_t i) {
            const std::uint64_t flat = r * cols + i;
            return static_cast<std::int64_t>((flat % rows) * cols + flat / rows);
          }));
  for (const DType type : {DType::kF16, DType::kBF16}) {
    if (type == w.dtype || (w.dtype != DType::kF16 && w.dtype != DType::kBF16)) continue;
    TensorView other = w;
    other.dtype = type;
    c.keep({"wrong_dtype",
            fmt::format("the bytes of {} are read as {}", w.name, dtype_name(type)),
            {},
            probe.ratio(other),
            1});
  }
  const std::size_t dim = head_dim(c);
  for (const bool pairs : {true, false}) {
    if (dim < 2 || cols % dim != 0) break;
    attempt("weight_permuted",
            fmt::format("the columns of {} are put in the order of {}", w.name,
                        pairs ? "halves of a head" : "pairs"),
            from_places(w, [&](std::uint64_t r, std::uint64_t i) {
              return static_cast<std::int64_t>(r * cols + (pairs ? paired(i, dim) : unpaired(i, dim)));
            }));
  }
  for (const std::int64_t by : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 256}) {
    for (const std::int64_t sign : {1, -1}) {
      if (c.explained()) return;
      attempt("weight_shifted",
              fmt::format("{} begins {} values {}", w.name, by, sign > 0 ? "later" : "earlier"),
              shifted_by(w, sign * by));
      attempt("weight_shifted",
              fmt::format("the columns of {} lie {} {}", w.name, by, sign > 0 ? "further" : "earlier"),
              from_places(w, [&](std::uint64_t r, std::uint64_t i) {
                const auto n = static_cast<std::int64_t>(cols);
                return static_cast<std::int64_t>(r * cols) +
                       ((static_cast<std::int64_t>(i) + sign * by) % n + n) % n;
              }));
    }
  }
  attempt_cuts(c, probe);
  for (const std::uint64_t block :
       {std::uint64_t{32}, std::uint64_t{64}, std::uint64_t{128}, std::uint64_t{256}}) {
    const std::uint64_t stride = (cols + block - 1) / block * block;
    if (stride == cols || c.explained()) continue;
    attempt("row_blocks_misaligned", fmt::format("rows of {} are read {} values apart", w.name, stride),
            from_places(w, [&](std::uint64_t r, std::uint64_t i) {
              return static_cast<std::int64_t>(r * stride + i);
            }));
  }
}

void weight_blocks(OpCase& c) {
  const WeightProbe probe(c);
  const TensorView& w = probe.weight();
  if (c.explained() || !is_quantised(w.dtype)) return;
  const auto layout = std::ranges::find(kBlocks, w.dtype, &BlockLayout::type);
  if (layout != std::end(kBlocks)) {
    const std::string in = fmt::format("in the blocks of {} ({})", w.name, dtype_name(w.dtype));
    if (layout->nibbles != 0 || w.dtype == DType::kQ6_K) {
      c.keep({"nibble_order",
              "low and high nibbles change places " + in,
              {},
              probe.ratio(changed_blocks(w, *layout, swap_nibbles)),
              1});
    }
    if (layout->nibble_bytes == 16) {
      c.keep({"nibble_order",
              "neighbours share a byte " + in,
              {},
              probe.ratio(changed_blocks(w, *layout, spread_apart)),
              1});
      c.keep({"nibble_order",
              "values 16 apart share a byte " + in,
              {},
              probe.ratio(changed_blocks(w, *layout, spread_together)),
              1});
    }
    if (layout->m != 0)
      c.keep({"scale_min_swapped",
              "scale and minimum change places " + in,
              {},
              probe.ratio(changed_blocks(w, *layout, swap_scale_and_min)),
              1});
  }
  const auto values = static_cast<std::int64_t>(dtype_info(w.dtype).block_values);
  for (const std::int64_t by : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8}) {
    c.keep({std::abs(by) * values % static_cast<std::int64_t>(w.cols()) == 0 ? "weight_shifted"
                                                                             : "row_blocks_misaligned",
            fmt::format("{} begins {} blocks {}", w.name, std::abs(by), by > 0 ? "later" : "earlier"),
            {},
            probe.ratio(shifted_by(w, by * values)),
            1});
  }
  attempt_cuts(c, probe);
  // Rows that were padded to super-blocks, or cut from a stream that was.
  for (const std::uint64_t block : {std::uint64_t{256}, std::uint64_t{512}}) {
    const std::uint64_t stride = (w.cols() + block - 1) / block * block;
    if (stride == w.cols()) continue;
    c.keep(
        {"row_blocks_misaligned",
         fmt::format("rows of {} are read {} values apart", w.name, stride),
         {},
         probe.ratio(from_places(
             w, [&](std::uint64_t r, std::uint64_t i) { return static_cast<std::int64_t>(r * stride + i); })),
         1});
  }
}

void weight_others(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  const std::string name = probe.weight().name;
  const TensorView* embedding = nullptr;
  if (const WeightId id = c.context().weights.find(WeightRole::kTokenEmbedding); id != kNoWeight)
    embedding = &c.context().weights[id];
  if (c.stage() == Stage::kLogits && embedding != nullptr &&
      embedding->data.data() != probe.weight().data.data()) {
    c.keep({"tied_head", fmt::format("the head is {}", embedding->name), "Set tie_word_embeddings to true.",
            probe.ratio(*embedding), 1});
  }
  for (const std::size_t other : alike(c)) {
    const Op& op = c.plan().ops[other];
    const TensorView& weight = c.context().weights[op.weights[0]];
    if (weight.data.data() == probe.weight().data.data()) continue;
    const double ratio = probe.ratio(weight);
    if (ratio > 1) continue;
    const Stage stage = c.plan().values[op.outputs[0]].stage;
    const bool gate_up = op.layer == c.layer() && ((stage == Stage::kFfnUp && c.stage() == Stage::kFfnGate) ||
                                                   (stage == Stage::kFfnGate && c.stage() == Stage::kFfnUp));
    const bool both = fits_there(c, other);
    c.keep({gate_up ? "gate_up_swapped"
            : both  ? "tensor_swapped"
                    : "stale_weight",
            fmt::format("the weight is {}{}", weight.name, both ? ", which has this one's place" : ""),
            both ? fmt::format("Exchange {} and {}.", name, weight.name) : std::string(), ratio, 1});
    return;
  }
}

void matmul_input(OpCase& c) {
  if (c.explained()) return;
  for (const OpCase::Other& other : c.others(c.setup().inputs[0].width)) {
    if (other.rows == c.setup().inputs[0].data) continue;
    c.attempt("norm_order", fmt::format("it reads {}", stage_key(other.stage, other.layer)), {},
              [&](OpSetup& s) { s.inputs[0].data = other.rows; });
  }
}

void weight_one_value(OpCase& c) {
  if (c.explained() || c.tokens() < 3) return;
  const WeightProbe probe(c);
  if (one_value_each(c, probe)) return;
  const WeightId embedding = c.context().weights.find(WeightRole::kTokenEmbedding);
  const bool tied = c.stage() == Stage::kLogits && c.op().weights[0] == embedding;
  if (tied && probe.bad().size() * 10 > c.width() * 9) {
    c.keep({"tied_head", "the head is a matrix of its own",
            "Set tie_word_embeddings to false, and bind the head.", 0.9, 0.8});
    return;
  }
  if (probe.bad().size() * 2 > c.width()) return;
  // Most rows are right: the others were damaged.
  c.keep({"weight_wrong",
          fmt::format("{} of {} hold other values", list_rows(probe.bad()), probe.weight().name),
          {},
          0.9,
          0.7});
}

}  // namespace doppler::repairs
