#include "model/gguf_rows.h"

#include <cstring>

namespace doppler {
namespace {

struct RowCopy {
  std::uint64_t heads, head_dim;

  // Rows are whole blocks in every type, so they move as bytes.
  void operator()(std::span<const std::byte> from, std::span<std::byte> to) const {
    const std::uint64_t rows = heads * head_dim, bytes = from.size() / rows;
    for (std::uint64_t row = 0; row < rows; ++row)
      std::memcpy(&to[paired(row, head_dim) * bytes], &from[row * bytes], bytes);
  }
};

}  // namespace

Status restore_row_order(const ModelSpec& spec, const WeightNames& names, TensorStore& store) {
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const std::uint64_t head_dim = spec.layers[static_cast<std::size_t>(layer)].attention.head_dim;
    for (const WeightInfo& info : weight_table()) {
      const std::uint64_t heads = rotated_heads(spec, info.role, layer);
      if (heads == 0) continue;
      const std::string name = weight_name(names, info.role, layer, &spec);
      const TensorView* tensor = store.find(name);
      if (tensor == nullptr || tensor->shape.empty() || tensor->shape[0] != heads * head_dim) continue;
      DOPPLER_TRY(store.rewrite(name, RowCopy{heads, head_dim}));
    }
  }
  return {};
}

}  // namespace doppler
