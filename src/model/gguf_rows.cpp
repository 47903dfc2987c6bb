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

Status restore_row_order(const ModelSpec& spec, std::span<const WeightName> names, TensorStore& store) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = spec.layers[i].attention;
    const std::pair<WeightRole, std::uint64_t> roles[] = {{WeightRole::kQ, a.heads},
                                                          {WeightRole::kQBias, a.heads},
                                                          {WeightRole::kK, a.kv_heads},
                                                          {WeightRole::kKBias, a.kv_heads}};
    for (const auto& [role, heads] : roles) {
      const std::string name = weight_name(names, role, static_cast<int>(i));
      const TensorView* tensor = name.empty() ? nullptr : store.find(name);
      if (tensor == nullptr || tensor->shape.empty() || tensor->shape[0] != heads * a.head_dim) continue;
      DOPPLER_TRY(store.rewrite(name, RowCopy{heads, a.head_dim}));
    }
  }
  return {};
}

}  // namespace doppler
