// Differences between a written file's spec and that of its source: GGUF cannot express all of a model.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "convert/source.h"
#include "model/rope.h"
#include "model/spec_fields.h"

namespace doppler::convert {
namespace {

// Fields that say how a file stores the model, or what is asked of its tokenizer, not what it computes.
// Scalings have several spellings: their angles decide.
constexpr std::array<std::string_view, 17> kNotCompared = {"family",
                                                           "described_by",
                                                           "norm.weight_offset",
                                                           "fused_qkv",
                                                           "fused_gate_up",
                                                           "fused_experts",
                                                           "fused_shared",
                                                           "predicting_layers",
                                                           "eos_ids",
                                                           "bos_id",
                                                           "pad_id",
                                                           "attention.rope.scaling",
                                                           "attention.rope.still_pairs",
                                                           "attention.latent.split_up",
                                                           "ffn.latent_experts",
                                                           "recurrent.in_projection",
                                                           "recurrent.tiled_output"};

bool is_compared(std::string_view path) {
  return std::ranges::none_of(kNotCompared, [&](std::string_view other) {
    return path == other || (path.starts_with(other) && path[other.size()] == '.');
  });
}

// Floats of GGUF metadata have 24 bits.
constexpr double kRounding = 1e-6;

bool near(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return a == b;
  return a == b || std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
}

std::string_view name_of(GatedNorm norm) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "norm_then_gate", "gate_then_norm"};
  return kNames[static_cast<std::size_t>(norm)];
}

struct Field {
  std::string path, text;
  std::vector<double> numbers;
  bool operator==(const Field& other) const {
    return text == other.text && std::ranges::equal(numbers, other.numbers, near);
  }
  std::string shown() const { return numbers.size() == 1 ? fmt::format("{}", numbers[0]) : text; }
};

template <typename T>
concept Named = std::is_enum_v<T> && requires(T value) { name_of(value); };

struct Collect {
  std::vector<Field> fields;

  template <typename T>
  void operator()(const std::string& path, const T& value) {
    if (!is_compared(path)) return;
    Field field{.path = path};
    if constexpr (std::is_same_v<T, std::string>) {
      field.text = value;
    } else if constexpr (Named<T>) {
      field.text = name_of(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      field.numbers = {static_cast<double>(value)};
    } else {
      field.numbers.assign(value.begin(), value.end());
      field.text = "a list";
    }
    fields.push_back(std::move(field));
  }
};

RouterSpec meaning_of(RouterSpec r) {
  if (r.groups == 1) r.kept_groups = 1, r.group_best = RouterSpec().group_best;
  if (r.score != RouterScore::kSparseMixer) r.jitter = 0;
  if (!r.normalise) r.norm_eps = r.norm_floor = 0;
  return r;
}

FfnSpec meaning_of(FfnSpec f) {
  if (f.activation != Activation::kXielu) f.xielu = {};
  f.router = f.experts > 0 ? meaning_of(f.router) : RouterSpec();
  if (f.experts == 0) f.shared_width = f.latent_width = f.dense_width = 0, f.expert_bias = false;
  if (f.shared_width == 0) f.shared_gate = false;
  if (f.experts > 0 && f.shared_width == 0 && f.dense_width == 0) f.bias = false;
  return f;
}

AttentionSpec meaning_of(AttentionSpec a) {
  if (a.kind == AttentionKind::kFull) a.window = 0;
  if (!a.qk_norm) {
    a.qk_norm_span = NormSpan::kHead;
    a.qk_norm_after_rope = a.qk_norm_plain = a.qk_norm_bias = false;
  }
  if (a.rope.rotary_dim == 0) a.rope = {};
  // Where pairs are put makes no difference to the products of queries and keys.
  if (a.rope.layout == RopeLayout::kInterleavedToHalf) a.rope.layout = RopeLayout::kInterleaved;
  if (a.query_scale.every == 0) a.query_scale = {};
  if (a.alibi.max_bias == 0) a.alibi = {};
  if (!a.is_latent()) a.latent = {};
  return a;
}

// Without what means nothing in a layer of its kind.
LayerSpec meaning_of(LayerSpec layer) {
  layer.attention = layer.has_attention ? meaning_of(layer.attention) : AttentionSpec();
  layer.ffn = layer.has_ffn ? meaning_of(layer.ffn) : FfnSpec();
  if (!layer.recurrent.exists()) layer.recurrent = {};
  if (!layer.has_ffn) layer.ffn_norm = layer.post_ffn_norm = layer.parallel = false;
  if (!layer.has_attention && !layer.recurrent.exists()) layer.attn_norm = layer.post_attn_norm = false;
  return layer;
}

template <typename Spec>
std::vector<std::string> differences(const Spec& wanted, const Spec& got) {
  Collect a, b;
  each_field(wanted, a);
  each_field(got, b);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < a.fields.size(); ++i) {
    if (a.fields[i] == b.fields[i]) continue;
    out.push_back(
        fmt::format("{} is {}, not {}", a.fields[i].path, b.fields[i].shown(), a.fields[i].shown()));
  }
  return out;
}

// Where queries and keys turn by other angles, within or beyond the original context.
std::vector<std::string> rope_differences(const RopeSpec& wanted, const RopeSpec& got, double context) {
  if (wanted.rotary_dim == 0 || got.rotary_dim != wanted.rotary_dim) return {};
  for (const double at : {1.0, context}) {
    const RopeTable a = make_rope_table(wanted, static_cast<std::uint64_t>(at));
    const RopeTable b = make_rope_table(got, static_cast<std::uint64_t>(at));
    if (turn_alike(a, b, static_cast<std::uint64_t>(context), kRounding)) continue;
    return {fmt::format("attention.rope.scaling is {}, not {}", name_of(got.scaling.kind),
                        name_of(wanted.scaling.kind))};
  }
  return {};
}

std::vector<std::string> layer_differences(const LayerSpec& wanted, const LayerSpec& got, double context) {
  const LayerSpec a = meaning_of(wanted), b = meaning_of(got);
  std::vector<std::string> out = differences(a, b);
  if (out.empty()) out = rope_differences(a.attention.rope, b.attention.rope, context);
  return out;
}

}  // namespace

std::vector<std::string> spec_differences(const ModelSpec& wanted, const ModelSpec& got) {
  std::vector<std::string> out = differences(wanted, got);
  if (wanted.layers.size() != got.layers.size())
    out.push_back(fmt::format("layers is {}, not {}", got.layers.size(), wanted.layers.size()));
  const std::size_t layers = std::min(wanted.layers.size(), got.layers.size());
  std::vector<std::string> said;  // one layer is enough to say that all of its kind differ
  for (std::size_t i = 0; i < layers; ++i) {
    for (std::string& difference :
         layer_differences(wanted.layers[i], got.layers[i], wanted.context_length)) {
      if (std::ranges::find(said, difference) != said.end()) continue;
      out.push_back(fmt::format("{} in layer {}", difference, i));
      said.push_back(std::move(difference));
    }
  }
  return out;
}

}  // namespace doppler::convert
