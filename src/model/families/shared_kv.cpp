#include "model/families/shared_kv.h"

#include "base/json.h"

namespace doppler {

Status read_shared_kv(SpecBuilder& builder) {
  constexpr std::string_view kKey = "num_kv_shared_layers";
  auto& layers = builder.spec().layers;
  DOPPLER_ASSIGN(const std::uint32_t shared,
                 builder.get_uint("layers that share keys and values", kKey, 0, true));
  if (shared >= layers.size() && shared > 0) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but there are only {} layers. Correct it.",
                builder.config().source(), builder.config().name(kKey), shared, layers.size());
  }
  const std::size_t first = layers.size() - shared;
  for (std::size_t i = first; i < layers.size(); ++i) {
    AttentionSpec& a = layers[i].attention;
    for (std::size_t j = 0; j < first; ++j) {
      if (layers[j].attention.kind == a.kind) a.kv_source = static_cast<int>(j);
    }
    if (a.kv_source < 0) {
      return fail(
          ErrorCode::kCorrupt,
          "The {} says {} = {}, but before layer {}, which attends as {}, no layer of that kind makes keys "
          "and values. Correct it.",
          builder.config().source(), builder.config().name(kKey), shared, i, name_of(a.kind));
    }
    const AttentionSpec& source = layers[static_cast<std::size_t>(a.kv_source)].attention;
    if (source.head_dim != a.head_dim || source.kv_heads != a.kv_heads) {
      return fail(
          ErrorCode::kCorrupt,
          "The {} lets layer {} read the keys of layer {}, but the one has {} heads of {} dims and the other "
          "{} of {}. Correct it.",
          builder.config().source(), i, a.kv_source, a.kv_heads, a.head_dim, source.kv_heads,
          source.head_dim);
    }
    builder.note(fmt::format("layers[{}].attention.kv_source", i), std::to_string(a.kv_source),
                 builder.config().where(kKey));
  }
  return {};
}

Status read_per_layer(SpecBuilder& builder, std::uint32_t default_width) {
  constexpr std::string_view kWidth = "hidden_size_per_layer_input";
  PerLayerSpec& per_layer = builder.spec().per_layer;
  if (says_null(builder.config(), kWidth)) {
    builder.note("per_layer.width", "0", builder.config().where(kWidth));
    return {};
  }
  DOPPLER_ASSIGN(per_layer.width, builder.get_uint("per_layer.width", kWidth, default_width, true));
  if (per_layer.width == 0) return {};
  DOPPLER_ASSIGN(per_layer.tokens,
                 builder.get_uint("per_layer.tokens", "vocab_size_per_layer_input", 262144));
  if (std::uint64_t{per_layer.width} * builder.spec().layers.size() <= INT32_MAX) return {};
  return fail(ErrorCode::kCorrupt, "The {} says {} = {} for {} layers, too large to be true. Correct it.",
              builder.config().source(), builder.config().name(kWidth), per_layer.width,
              builder.spec().layers.size());
}

void derive_per_layer_tokens(GgufConfig& config) {
  if (const TensorView* table = config.tensor(WeightRole::kPerLayerEmbedding))
    config.derive("vocab_size_per_layer_input", table->rows(), "tensor " + table->name);
}

}  // namespace doppler
