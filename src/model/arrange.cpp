#include "model/arrange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "model/weights.h"

namespace doppler {
namespace {

// [in, out] to [out, in], for values of some bytes each.
struct Transposed {
  std::size_t rows, cols, bytes;

  void operator()(std::span<const std::byte> from, std::span<std::byte> to) const {
    constexpr std::size_t kTile = 32;  // both sides of a tile stay in L1
    for (std::size_t r0 = 0; r0 < rows; r0 += kTile) {
      for (std::size_t c0 = 0; c0 < cols; c0 += kTile) {
        for (std::size_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
          for (std::size_t c = c0; c < std::min(cols, c0 + kTile); ++c)
            std::memcpy(&to[(c * rows + r) * bytes], &from[(r * cols + c) * bytes], bytes);
        }
      }
    }
  }
};

// Rows by KV head (its queries, its key, its value) to all queries, all keys, all values.
struct PartByPart {
  std::size_t heads, kv_heads, head_dim;

  void operator()(std::span<const std::byte> from, std::span<std::byte> to) const {
    const std::size_t group = heads / kv_heads, head = from.size() / (heads + 2 * kv_heads);
    for (std::size_t kv = 0; kv < kv_heads; ++kv) {
      const std::byte* own = &from[kv * (group + 2) * head];
      std::memcpy(&to[kv * group * head], own, group * head);
      std::memcpy(&to[(heads + kv) * head], own + group * head, head);
      std::memcpy(&to[(heads + kv_heads + kv) * head], own + (group + 1) * head, head);
    }
  }
};

class Arranger {
 public:
  Arranger(const ModelSpec& spec, const WeightNames& names, TensorStore& store)
      : spec_(spec), names_(names), store_(store), nesting_(find_nesting(names, store)) {}

  Status run() {
    for (layer_ = 0; layer_ < static_cast<int>(spec_.layers.size()); ++layer_) {
      for (const WeightRole role : names_.transposed) DOPPLER_TRY(transpose(name(role)));
      if (names_.qkv_by_head && spec_.fused_qkv) {
        DOPPLER_TRY(part_heads(name(WeightRole::kQkv)));
        DOPPLER_TRY(part_heads(name(WeightRole::kQkvBias)));
      }
      for (const WeightName& each : names_.each_head) {
        if (meets(spec_, weight_info(each.role).when, layer_)) DOPPLER_TRY(join_heads(each));
      }
    }
    return {};
  }

 private:
  std::string name(WeightRole role) const {
    return nested_name(nesting_, weight_name(names_, role, layer_, &spec_));
  }
  const AttentionSpec& attention() const { return spec_.layers[static_cast<std::size_t>(layer_)].attention; }

  Status transpose(const std::string& name) {
    const TensorView* tensor = store_.find(name);
    if (tensor == nullptr || tensor->shape.size() != 2) return {};
    const std::uint64_t rows = tensor->shape[0], cols = tensor->shape[1];
    if (rows == 0 || cols == 0 || is_quantised(tensor->dtype)) return {};
    const std::uint64_t bytes = tensor->bytes() / rows / cols;
    if (bytes * rows * cols != tensor->bytes()) return {};
    return store_.rewrite(name, Transposed{std::size_t(rows), std::size_t(cols), std::size_t(bytes)},
                          Shape{cols, rows});
  }

  Status part_heads(const std::string& name) {
    const AttentionSpec& a = attention();
    const TensorView* tensor = store_.find(name);
    const std::uint64_t rows = std::uint64_t{a.q_width()} + 2 * std::uint64_t{a.kv_width()};
    // One KV head's rows are in order already.
    if (tensor == nullptr || tensor->shape.empty() || tensor->shape[0] != rows || a.kv_heads == 1) return {};
    return store_.rewrite(name, PartByPart{a.heads, a.kv_heads, a.head_dim});
  }

  Status join_heads(const WeightName& each) {
    const std::string whole = name(each.role);
    if (store_.find(whole) != nullptr) return {};
    const std::uint32_t heads = each.role == WeightRole::kQNorm ? attention().heads : attention().kv_heads;
    const std::string pattern =
        nested_name(nesting_, numbered_name(each.name, static_cast<std::uint64_t>(layer_)));
    std::vector<std::string> parts;
    for (std::uint32_t head = 0; head < heads; ++head) {
      parts.push_back(numbered_name(pattern, head));
      if (store_.find(parts.back()) != nullptr) continue;
      return fail(
          ErrorCode::kMismatch,
          "The tensor {} is missing, but the {} family with {} needs it. Check that all weight files are "
          "there and belong to this {}.",
          parts.back(), spec_.family, weight_reason(each.role), spec_.described_by);
    }
    return store_.join(parts, whole, weight_shape(spec_, each.role, layer_));
  }

  const ModelSpec& spec_;
  const WeightNames& names_;
  TensorStore& store_;
  const Nesting nesting_;
  int layer_ = 0;
};

double softplus(double x) {
  return x > 30 ? x : std::log1p(std::exp(x));  // beyond 30 the rest is below a double's last place
}
double before_softplus(double y) {
  return y > 30 ? y : std::log(std::expm1(y));
}

}  // namespace

Status arrange_weights(const ModelSpec& spec, const WeightNames& names, TensorStore& store) {
  return Arranger(spec, names, store).run();
}

Xielu xielu_of(double alpha_p, double alpha_n, double beta, double eps) {
  return {.alpha_p = softplus(alpha_p), .alpha_n = beta + softplus(alpha_n), .beta = beta, .eps = eps};
}
double stored_alpha_p(const Xielu& numbers) {
  return before_softplus(numbers.alpha_p);
}
double stored_alpha_n(const Xielu& numbers) {
  return before_softplus(numbers.alpha_n - numbers.beta);
}

Status read_numbers(const WeightNames& names, const TensorStore& store, ModelSpec& spec) {
  const Nesting nesting = find_nesting(names, store);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].ffn.activation != Activation::kXielu) continue;
    constexpr std::array kRoles = {WeightRole::kXieluAlphaP, WeightRole::kXieluAlphaN, WeightRole::kXieluBeta,
                                   WeightRole::kXieluEps};
    std::array<float, 4> values = {};
    for (std::size_t n = 0; n < kRoles.size(); ++n) {
      const std::string name =
          nested_name(nesting, weight_name(names, kRoles[n], static_cast<int>(i), &spec));
      const TensorView* tensor = store.find(name);
      if (tensor == nullptr || element_count(tensor->shape) != 1) {
        return fail(
            ErrorCode::kMismatch,
            "The tensor {} must be there and hold one number. Check that all weight files are there and "
            "belong to this {}.",
            name, spec.described_by);
      }
      DOPPLER_TRY(decode_f32(*tensor, 0, std::span(values).subspan(n, 1)));
      if (!std::isfinite(values[n])) {
        return fail(ErrorCode::kCorrupt, "The tensor {} holds no finite number. Download the file again.",
                    name);
      }
    }
    spec.layers[i].ffn.xielu = xielu_of(values[0], values[1], values[2], values[3]);
  }
  return {};
}

}  // namespace doppler
