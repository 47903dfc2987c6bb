// Repairs of products whose weight is undamaged, but read in another layout than it was written.
#include <cstring>

#include "diagnosis/doctor/head_rows.h"
#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis::repairs {
namespace {

void attempt_all(OpCase& c, const WeightProbe& probe, const TensorView& weight, std::uint64_t dim,
                 bool through_file) {
  for (const Relayout& layout : relayouts(weight, dim)) {
    if (layout.search && c.explained()) return;
    const auto read = [&](std::uint64_t row, std::span<float> values) {
      return layout.read(through_file ? unpaired(row, dim) : row, values);
    };
    c.keep({layout.cause, layout.says, layout.repair, probe.ratio(read), layout.weight});
    if (!through_file)
      c.add_fix({Fix::Kind::kTensor, weight.name, layout.says, {}, layout.read, layout.type});
  }
}

// Read in another layout, and rows in the other order of rotary pairs besides.
void attempt_reordered(OpCase& c, const WeightProbe& probe, std::uint64_t dim) {
  for (const auto order : {paired, unpaired}) {
    for (const Relayout& layout : relayouts(probe.weight(), dim)) {
      if (layout.search || c.explained()) break;
      const auto read = [&](std::uint64_t row, std::span<float> values) {
        return layout.read(order(row, dim), values);
      };
      c.keep({layout.cause, layout.says + ", and its rows are put in the other order of rotary pairs",
              layout.repair, probe.ratio(read), 0.95});
    }
  }
}

// The bytes as they lay in a file that has the rows of rotary pairs side by side.
std::vector<std::byte> in_file_order(const TensorView& weight, std::uint64_t dim) {
  const std::size_t row = weight.data.size() / weight.rows();
  std::vector<std::byte> bytes(weight.data.size());
  for (std::size_t r = 0; r < weight.rows(); ++r)
    std::memcpy(&bytes[unpaired(r, dim) * row], &weight.data[r * row], row);
  return bytes;
}

}  // namespace

void weight_layout(OpCase& c) {
  if (c.explained()) return;
  const WeightProbe probe(c);
  const std::uint64_t dim = head_dim(c);
  attempt_all(c, probe, probe.weight(), dim, false);
  if (c.explained() || !rows_may_be_paired(c)) return;
  // The damage to the file happened before loading reordered its rows.
  TensorView file = probe.weight();
  const std::vector<std::byte> bytes = in_file_order(file, dim);
  file.data = bytes;
  attempt_all(c, probe, file, dim, true);
  if (!c.explained()) attempt_reordered(c, probe, dim);
}

}  // namespace doppler::diagnosis::repairs
