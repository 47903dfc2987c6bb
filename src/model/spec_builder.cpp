#include "model/spec_builder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "model/rope.h"

namespace doppler {
namespace {

// Counts and sizes of real models stay far below; 2^31 keeps every product of two of them inside 64 bits.
constexpr std::uint64_t kMaxSize = (std::uint64_t{1} << 31) - 1;
// The deepest published decoders have about 130 layers; the bound keeps a lying config from allocating.
constexpr std::uint64_t kMaxLayers = 4096;
// The widest published heads have 512 dims.
constexpr std::uint32_t kMaxHeadDim = 8192;

std::string number_text(double value) {
  return fmt::format("{}", value);
}

// "layers[0-4,6]" from the indices for which `selected` holds.
template <typename Predicate>
std::string layer_ranges(std::size_t count, Predicate selected) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (!selected(i)) continue;
    std::size_t last = i;
    while (last + 1 < count && selected(last + 1)) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", i);
    if (last > i) text += fmt::format("-{}", last);
    i = last;
  }
  return "layers[" + text + "]";
}

}  // namespace

void SpecBuilder::note(std::string path, std::string value, std::string source) {
  spec_.sources.push_back({std::move(path), std::move(value), std::move(source)});
}

std::string_view SpecBuilder::spelled(std::string_view key) const {
  if (config_.has(key)) return key;
  for (const KeyAlias& alias : aliases_) {
    if (alias.key == key && config_.has(alias.other)) return alias.other;
  }
  return key;
}

Result<std::uint32_t> SpecBuilder::get_uint(std::string_view path, std::string_view key,
                                            std::optional<std::uint64_t> fallback, bool zero_allowed) {
  key = spelled(key);
  DOPPLER_ASSIGN(const std::optional<std::uint64_t> read, config_.get_uint(key));
  if (!read && !fallback) {
    return fail(ErrorCode::kCorrupt,
                "The {} has no {}, which the {} family needs. Check that it belongs to the model.",
                config_.source(), config_.name(key), spec_.family);
  }
  const std::uint64_t value = read ? *read : *fallback;
  if (value > kMaxSize || (value == 0 && !zero_allowed)) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but it must lie between {} and {}. Correct it.",
                config_.source(), config_.name(key), value, zero_allowed ? 0 : 1, kMaxSize);
  }
  note(std::string(path), std::to_string(value), read ? config_.where(key) : default_source_);
  return static_cast<std::uint32_t>(value);
}

Result<double> SpecBuilder::get_number(std::string_view path, std::string_view key,
                                       std::optional<double> fallback) {
  key = spelled(key);
  DOPPLER_ASSIGN(const std::optional<double> read, config_.get_number(key));
  if (!read && !fallback) {
    return fail(ErrorCode::kCorrupt,
                "The {} has no {}, which the {} family needs. Check that it belongs to the model.",
                config_.source(), config_.name(key), spec_.family);
  }
  const double value = read ? *read : *fallback;
  note(std::string(path), number_text(value), read ? config_.where(key) : default_source_);
  return value;
}

Result<double> SpecBuilder::get_positive(std::string_view path, std::string_view key,
                                         std::optional<double> fallback) {
  DOPPLER_ASSIGN(const double value, get_number(path, key, fallback));
  if (value > 0) return value;
  return fail(ErrorCode::kCorrupt, "The value {} = {} is not positive. Correct it.",
              config_.where(spelled(key)), value);
}

Result<bool> SpecBuilder::get_bool(std::string_view path, std::string_view key, bool fallback) {
  key = spelled(key);
  DOPPLER_ASSIGN(const std::optional<bool> read, config_.get_bool(key));
  note(std::string(path), read.value_or(fallback) ? "true" : "false",
       read ? config_.where(key) : default_source_);
  return read.value_or(fallback);
}

bool says_null(const ConfigReader& config, std::string_view key) {
  const auto found = config.json().find(std::string(key));
  return found != config.json().end() && found->is_null();
}

Result<Activation> parse_activation(std::string_view name, const std::string& where) {
  struct Known {
    std::string_view name;
    Activation activation;
  };
  // transformers' names (ACT2FN), of which several stand for the same approximation by tanh.
  static constexpr std::array<Known, 15> kKnown = {{{"silu", Activation::kSilu},
                                                    {"swish", Activation::kSilu},
                                                    {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                    {"gelu_new", Activation::kGeluTanh},
                                                    {"gelu_fast", Activation::kGeluTanh},
                                                    {"gelu_python_tanh", Activation::kGeluTanh},
                                                    {"gelu_accurate", Activation::kGeluTanh},
                                                    {"gelu", Activation::kGeluErf},
                                                    {"gelu_python", Activation::kGeluErf},
                                                    {"quick_gelu", Activation::kQuickGelu},
                                                    {"sigmoid", Activation::kSigmoid},
                                                    {"linear", Activation::kIdentity},
                                                    {"relu", Activation::kRelu},
                                                    {"relu2", Activation::kReluSquared},
                                                    {"xielu", Activation::kXielu}}};
  for (const Known& known : kKnown) {
    if (known.name == name) return known.activation;
  }
  return fail(
      ErrorCode::kUnsupported,
      "The value {} names the activation {}, but Doppler knows silu, gelu, gelu_pytorch_tanh, quick_gelu, "
      "relu, relu2, xielu, sigmoid and linear.",
      where, printable(name));
}

namespace {

// The value of `key`, else the family's default, else what follows from other values.
Result<std::uint32_t> get_or_derive(SpecBuilder& builder, const std::string& path, std::string_view key,
                                    std::optional<std::uint64_t> fallback, std::uint32_t derived,
                                    std::string rule) {
  if (builder.config().has(builder.spelled(key)) || fallback) return builder.get_uint(path, key, fallback);
  builder.note(path, std::to_string(derived), "derived: " + std::move(rule));
  return derived;
}

Status read_attention_sizes(SpecBuilder& builder, const ConfigDefaults& defaults, AttentionSpec& attention) {
  const ConfigReader& config = builder.config();
  const std::uint32_t hidden = builder.spec().hidden;
  DOPPLER_ASSIGN(attention.heads,
                 builder.get_uint("attention.heads", "num_attention_heads", defaults.num_attention_heads));
  DOPPLER_ASSIGN(attention.kv_heads,
                 get_or_derive(builder, "attention.kv_heads", "num_key_value_heads",
                               defaults.num_key_value_heads, attention.heads, "num_attention_heads"));
  DOPPLER_ASSIGN(attention.head_dim,
                 get_or_derive(builder, "attention.head_dim", "head_dim", defaults.head_dim,
                               std::max(hidden / attention.heads, 1u), "hidden_size / num_attention_heads"));
  if (attention.heads % attention.kv_heads != 0) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} says {} = {} and {} = {}, but the first must be a multiple of the second. Correct it.",
        config.source(), config.name(builder.spelled("num_attention_heads")), attention.heads,
        config.name(builder.spelled("num_key_value_heads")), attention.kv_heads);
  }
  if (attention.head_dim % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "The {} {} is odd, but rotary embedding turns pairs of dims. Correct the {}.",
                config.name("head_dim"), attention.head_dim, config.source());
  }
  // A projection wider than 2^31 cannot be real and would overflow later products; rope tables hold a value
  // for every pair of a head's dims.
  if (std::uint64_t{attention.heads} * attention.head_dim > kMaxSize || attention.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {} and {} = {}, too large to be true. Correct it.",
                config.source(), config.name(builder.spelled("num_attention_heads")), attention.heads,
                config.name("head_dim"), attention.head_dim);
  }
  attention.rope.rotary_dim = attention.head_dim;
  return {};
}

Status read_ffn_sizes(SpecBuilder& builder, const ConfigDefaults& defaults, FfnSpec& ffn) {
  const ConfigReader& config = builder.config();
  const std::uint32_t hidden = builder.spec().hidden;
  if (defaults.widths_by_layer) {
    ffn.width = 0;  // read layer by layer
  } else if (defaults.intermediate_factor != 0) {
    const std::uint64_t width = std::uint64_t{hidden} * defaults.intermediate_factor;
    if (width > kMaxSize)
      return fail(ErrorCode::kCorrupt, "The {} says {} = {}, too large to be true. Correct it.",
                  config.source(), config.name(builder.spelled("hidden_size")), hidden);
    DOPPLER_ASSIGN(ffn.width, get_or_derive(builder, "ffn.width", "intermediate_size", std::nullopt,
                                            static_cast<std::uint32_t>(width),
                                            fmt::format("{} x hidden_size", defaults.intermediate_factor)));
  } else {
    DOPPLER_ASSIGN(ffn.width, builder.get_uint("ffn.width", "intermediate_size", defaults.intermediate_size));
  }
  const std::string_view key = builder.spelled(defaults.activation_key);
  DOPPLER_ASSIGN(const std::optional<std::string> activation, config.get_string(key));
  DOPPLER_ASSIGN(ffn.activation,
                 parse_activation(activation.value_or(std::string(defaults.activation)), config.where(key)));
  builder.note("ffn.activation", std::string(name_of(ffn.activation)),
               activation ? config.where(key) : builder.default_source());
  return {};
}

}  // namespace

Status read_common(SpecBuilder& builder, const ConfigDefaults& defaults) {
  ModelSpec& spec = builder.spec();
  const ConfigReader& config = builder.config();
  builder.use_aliases(defaults.aliases);
  builder.note("family", spec.family, config.where("model_type"));
  DOPPLER_ASSIGN(spec.vocab_size, builder.get_uint("vocab_size", "vocab_size", defaults.vocab_size));
  DOPPLER_ASSIGN(spec.hidden, builder.get_uint("hidden", "hidden_size", defaults.hidden_size));
  DOPPLER_ASSIGN(spec.context_length, builder.get_uint("context_length", "max_position_embeddings",
                                                       defaults.max_position_embeddings.value_or(2048)));
  DOPPLER_ASSIGN(const std::uint32_t layers,
                 builder.get_uint("layers", "num_hidden_layers", defaults.num_hidden_layers));
  if (layers > kMaxLayers) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but no model has more than {}. Correct it.",
                config.source(), config.name("num_hidden_layers"), layers, kMaxLayers);
  }
  DOPPLER_ASSIGN(spec.norm.eps, builder.get_number("norm.eps", defaults.norm_eps_key, defaults.rms_norm_eps));
  if (!(spec.norm.eps >= 0 && spec.norm.eps < 1)) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but it must lie between 0 and 1. Correct it.",
                config.source(), config.name(defaults.norm_eps_key), spec.norm.eps);
  }
  DOPPLER_ASSIGN(spec.tied_head,
                 builder.get_bool("head.tied", "tie_word_embeddings", defaults.tie_word_embeddings));

  LayerSpec layer;
  if (defaults.attention) DOPPLER_TRY(read_attention_sizes(builder, defaults, layer.attention));
  if (defaults.ffn) DOPPLER_TRY(read_ffn_sizes(builder, defaults, layer.ffn));
  layer.has_attention = defaults.attention, layer.has_ffn = defaults.ffn;
  layer.ffn_norm = defaults.ffn;
  spec.layers.assign(layers, layer);
  if (!defaults.attention) return {};
  set_attention_scale(builder, 1 / std::sqrt(static_cast<double>(layer.attention.head_dim)),
                      "derived: 1 / sqrt(head_dim)");
  return {};
}

void set_attention_scale(SpecBuilder& builder, double scale, std::string source) {
  auto& sources = builder.spec().sources;
  std::erase_if(sources, [](const SpecSource& s) { return s.path == "attention.scale"; });
  builder.note("attention.scale", number_text(scale), std::move(source));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.scale = scale;
}

namespace {

Result<RopeScalingKind> parse_rope_type(std::string_view name, const std::string& where) {
  struct Known {
    std::string_view name;
    RopeScalingKind kind;
  };
  // "su" is longrope's name in the first Phi-3 configs.
  static constexpr std::array<Known, 8> kKnown = {{{"default", RopeScalingKind::kNone},
                                                   {"proportional", RopeScalingKind::kNone},
                                                   {"dynamic", RopeScalingKind::kNone},
                                                   {"linear", RopeScalingKind::kLinear},
                                                   {"llama3", RopeScalingKind::kLlama3},
                                                   {"yarn", RopeScalingKind::kYarn},
                                                   {"longrope", RopeScalingKind::kLongRope},
                                                   {"su", RopeScalingKind::kLongRope}}};
  for (const Known& known : kKnown) {
    if (known.name == name) return known.kind;
  }
  return fail(
      ErrorCode::kUnsupported,
      "The value {} names the rope type {}, but Doppler knows default, linear, llama3, yarn and longrope.",
      where, printable(name));
}

Result<double> positive(const ConfigReader& values, std::string_view key, std::optional<double> fallback) {
  DOPPLER_ASSIGN(const std::optional<double> read, values.get_number(key));
  if (!read && !fallback) {
    return fail(ErrorCode::kCorrupt, "The {} has no {}, which its rope type needs. Add it.", values.source(),
                key);
  }
  const double value = read ? *read : *fallback;
  if (!(value > 0)) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} is not positive. Correct it.", values.where(key),
                value);
  }
  return value;
}

// The factor if it is there, else how much longer the context is than the original one.
Result<double> read_stretch(const ConfigReader& values, double context, const RopeScaling& scaling) {
  return positive(values, "factor", context / scaling.original_context);
}

Status read_longrope(const ConfigReader& values, std::uint32_t rotary_dim, double context,
                     RopeScaling& scaling) {
  DOPPLER_ASSIGN(const auto short_factor, values.get_numbers("short_factor"));
  DOPPLER_ASSIGN(const auto long_factor, values.get_numbers("long_factor"));
  for (const auto* factors : {&short_factor, &long_factor}) {
    const bool all_positive =
        *factors && std::all_of((*factors)->begin(), (*factors)->end(), [](double f) { return f > 0; });
    if (!all_positive || (*factors)->size() != rotary_dim / 2) {
      return fail(ErrorCode::kCorrupt,
                  "The {} needs short_factor and long_factor of {} positive numbers each. Correct it.",
                  values.source(), rotary_dim / 2);
    }
  }
  scaling.short_factor = *short_factor, scaling.long_factor = *long_factor;
  DOPPLER_ASSIGN(const double stretch, read_stretch(values, context, scaling));
  const double published =
      stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(scaling.original_context));
  DOPPLER_ASSIGN(scaling.attention_factor, positive(values, "attention_factor", published));
  // Phi 3.5 MoE gives one for each side.
  DOPPLER_ASSIGN(scaling.attention_factor, positive(values, "short_mscale", scaling.attention_factor));
  DOPPLER_ASSIGN(scaling.long_attention_factor, positive(values, "long_mscale", scaling.attention_factor));
  return {};
}

Status read_yarn(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                 RopeScaling& scaling) {
  DOPPLER_ASSIGN(scaling.factor, read_stretch(values, builder.spec().context_length, scaling));
  builder.note(
      path + ".scaling.factor", number_text(scaling.factor),
      values.has("factor") ? values.where("factor") : "derived: max_position_embeddings / original context");
  DOPPLER_ASSIGN(scaling.beta_fast, positive(values, "beta_fast", 32.0));
  DOPPLER_ASSIGN(scaling.beta_slow, positive(values, "beta_slow", 1.0));
  DOPPLER_ASSIGN(const std::optional<bool> truncate, values.get_bool("truncate"));
  scaling.truncate = truncate.value_or(true);
  // DeepSeek gives two weights of the logarithm, whose quotient counts.
  const auto magnitude = [&](double weight) {
    return scaling.factor <= 1 ? 1 : 0.1 * weight * std::log(scaling.factor) + 1;
  };
  double published = magnitude(1);
  // A weight of 0 is none: transformers asks for both by their truth.
  DOPPLER_ASSIGN(const auto mscale, values.get_number("mscale"));
  DOPPLER_ASSIGN(const auto mscale_all_dim, values.get_number("mscale_all_dim"));
  if (mscale.value_or(0) != 0 && mscale_all_dim.value_or(0) != 0) {
    DOPPLER_TRY(positive(values, "mscale", std::nullopt));
    DOPPLER_TRY(positive(values, "mscale_all_dim", std::nullopt));
    published = magnitude(*mscale) / magnitude(*mscale_all_dim);
  }
  DOPPLER_ASSIGN(scaling.attention_factor, positive(values, "attention_factor", published));
  return {};
}

Status read_llama3(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                   RopeScaling& scaling) {
  DOPPLER_ASSIGN(scaling.low_freq_factor, positive(values, "low_freq_factor", std::nullopt));
  DOPPLER_ASSIGN(scaling.high_freq_factor, positive(values, "high_freq_factor", std::nullopt));
  builder.note(path + ".scaling.low_freq_factor", number_text(scaling.low_freq_factor),
               values.where("low_freq_factor"));
  builder.note(path + ".scaling.high_freq_factor", number_text(scaling.high_freq_factor),
               values.where("high_freq_factor"));
  // Equal ones leave no frequencies between those that are kept and those that are stretched (Llama 4).
  if (scaling.low_freq_factor <= scaling.high_freq_factor) return {};
  return fail(ErrorCode::kCorrupt, "The value {} = {} must be at most high_freq_factor = {}. Correct it.",
              values.where("low_freq_factor"), scaling.low_freq_factor, scaling.high_freq_factor);
}

// The type dynamic stretches theta for sequences longer than the context that the model was made for, which
// do not run; Hunyuan's alpha stretches it from the first token on.
Status stretch_theta(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                     RopeSpec& rope) {
  if (!values.has("alpha")) return {};
  DOPPLER_ASSIGN(const double alpha, positive(values, "alpha", std::nullopt));
  const double dim = rope.rotary_dim;
  if (!(dim > 2)) return {};
  rope.theta *= std::pow(alpha, dim / (dim - 2));
  builder.note(path + ".theta", number_text(rope.theta), "derived: rope_theta and " + values.where("alpha"));
  return {};
}

// One set of rope values: its name in reports, the older top-level key of its theta, theta's default, and the
// dims of a head.
struct RopeSet {
  std::string path;
  std::string_view old_key;
  double default_theta;
  std::optional<double> part;     // RopeDefaults::rotary_part
  std::string_view old_part_key;  // RopeDefaults::old_part_key, if the file's keys are its own
  std::uint32_t head_dim;
  bool whole = false;    // all of these dims turn, whatever the file says
  bool of_type = false;  // it is that of a type of layers
};

// `values` is the object that holds rope_type and its parameters: rope_parameters, or the older rope_scaling.
Status read_scaling(SpecBuilder& builder, const ConfigReader& values, const RopeSet& set, RopeSpec& rope) {
  const ConfigReader& config = builder.config();
  const std::string& path = set.path;
  const std::string_view key = rope_type_key(values);
  DOPPLER_ASSIGN(const std::optional<std::string> type, values.get_string(key));
  RopeScaling& s = rope.scaling;
  DOPPLER_ASSIGN(s.kind, parse_rope_type(type.value_or("default"), values.where(key)));
  builder.note(path + ".scaling", std::string(name_of(s.kind)),
               type ? values.where(key) : builder.default_source());
  if (type == "dynamic") return stretch_theta(builder, values, path, rope);
  if (type == "proportional" && values.has("factor")) s.kind = RopeScalingKind::kLinear;
  if (s.kind == RopeScalingKind::kNone) return {};
  if (s.kind == RopeScalingKind::kLinear || s.kind == RopeScalingKind::kLlama3) {
    DOPPLER_ASSIGN(s.factor, positive(values, "factor", std::nullopt));
    builder.note(path + ".scaling.factor", number_text(s.factor), values.where("factor"));
  }
  if (s.kind == RopeScalingKind::kLinear) return {};
  // Phi-3 keeps original_max_position_embeddings beside rope_scaling, newer files inside; transformers asks
  // there first, but for ropes of layer types.
  const std::string_view original = "original_max_position_embeddings";
  const ConfigReader& from = config.has(original) && !set.of_type ? config : values;
  const double context = builder.spec().context_length;
  DOPPLER_ASSIGN(s.original_context, positive(from, original, context));
  builder.note(path + ".scaling.original_context", number_text(s.original_context),
               from.has(original) ? from.where(original) : "derived: max_position_embeddings");
  if (s.kind == RopeScalingKind::kLlama3) return read_llama3(builder, values, path, s);
  if (s.kind == RopeScalingKind::kYarn) DOPPLER_TRY(read_yarn(builder, values, path, s));
  if (set.of_type) s.truncate = true;  // transformers looks for the key beside the types
  if (s.kind == RopeScalingKind::kLongRope) DOPPLER_TRY(read_longrope(values, rope.rotary_dim, context, s));
  builder.note(
      path + ".scaling.attention_factor", number_text(s.attention_factor),
      values.has("attention_factor") ? values.where("attention_factor") : "derived: from the scaling factor");
  return {};
}

bool is_proportional(const ConfigReader& values) {
  const auto type = values.get_string(rope_type_key(values));
  return type && *type == "proportional";
}

Status read_rotary_dim(SpecBuilder& builder, const ConfigReader& values, const RopeSet& set, RopeSpec& rope) {
  const std::uint32_t head_dim = set.head_dim;
  rope.rotary_dim = head_dim;
  if (set.whole) return {};
  const std::string& path = set.path;
  const ConfigReader& config = builder.config();
  const double default_part = set.part.value_or(1);
  // GPT-NeoX and StableLM called it rotary_pct; others count dims.
  const bool inside = values.has("partial_rotary_factor");
  const ConfigReader& from = inside ? values : config;
  std::string_view key = "partial_rotary_factor";
  for (const std::string_view other : {"rotary_pct", "rotary_dim"}) {
    if (!from.has(key) && from.has(other)) key = other;
  }
  if (!inside && !set.old_part_key.empty()) key = set.old_part_key;
  DOPPLER_ASSIGN(std::optional<double> part, from.get_number(key));
  if (!set.part && !config.translated() && !is_proportional(values)) {
    if (part)
      builder.note(path + ".rotary_dim", std::to_string(head_dim),
                   fmt::format("rule of the {} family, whatever {} says", builder.spec().family, key));
    return {};
  }
  const std::string where = part ? from.where(key) : builder.default_source();
  // A half more, so that the share times the dims, rounded down, is the count again.
  if (part && key == "rotary_dim" && *part < head_dim) part = (*part + 0.5) / head_dim;
  if (part && key == "rotary_dim" && *part == head_dim) part = 1;
  if (part.value_or(default_part) == 1 && default_part == 1) return {};
  if (!part) part = default_part;
  if (!(*part > 0 && *part <= 1)) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} must lie above 0 and at most at 1. Correct it.",
                where, *part);
  }
  if (is_proportional(values)) {
    // The first pairs of the whole head turn, and frequencies count as if all did.
    rope.still_pairs = head_dim / 2 - static_cast<std::uint32_t>(head_dim * *part / 2);
    builder.note(path + ".still_pairs", std::to_string(rope.still_pairs), where);
    return {};
  }
  rope.rotary_dim = static_cast<std::uint32_t>(head_dim * *part);
  if (rope.rotary_dim == 0 || rope.rotary_dim % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "The value {} = {} leaves {} rotary dims of {}; it must be an even number. Correct it.",
                where, *part, rope.rotary_dim, head_dim);
  }
  builder.note(path + ".rotary_dim", std::to_string(rope.rotary_dim), where);
  return {};
}

// theta stands in `values` or, in older files, beside them, or in both places if they agree.
Status read_theta(SpecBuilder& builder, const ConfigReader& values, const RopeSet& set, RopeSpec& rope) {
  const ConfigReader& config = builder.config();
  const bool inside = values.has("rope_theta"), outside = config.has(set.old_key);
  const ConfigReader& from = inside ? values : config;
  const std::string_view key = inside ? "rope_theta" : set.old_key;
  DOPPLER_ASSIGN(rope.theta, positive(from, key, set.default_theta));
  if (inside && outside) {
    DOPPLER_ASSIGN(const double other, positive(config, set.old_key, std::nullopt));
    if (other != rope.theta) {
      return fail(ErrorCode::kCorrupt, "The value {} = {} contradicts {} = {}. Remove the wrong one.",
                  values.where("rope_theta"), rope.theta, config.where(set.old_key), other);
    }
  }
  builder.note(set.path + ".theta", number_text(rope.theta),
               inside || outside ? from.where(key) : builder.default_source());
  return {};
}

Status read_rope_set(SpecBuilder& builder, const ConfigReader& values, const RopeSet& set, RopeSpec& rope) {
  DOPPLER_TRY(read_theta(builder, values, set, rope));
  DOPPLER_TRY(read_rotary_dim(builder, values, set, rope));
  DOPPLER_TRY(read_scaling(builder, values, set, rope));
  const RopeTable table = make_rope_table(rope, builder.spec().context_length);
  const auto usable = [](double x) { return std::isfinite(x) && x >= 0; };
  if (usable(table.magnitude) &&
      std::all_of(table.inverse_frequency.begin(), table.inverse_frequency.end(), usable)) {
    return {};
  }
  return fail(
      ErrorCode::kCorrupt,
      "The rope values of the {} (rope_theta = {}, rope type {}) give no finite angles. Correct them.",
      values.source(), rope.theta, name_of(rope.scaling.kind));
}

// Both styles in one file must name one rope type.
Status check_styles_agree(const ConfigReader& parameters, const ConfigReader& scaling) {
  DOPPLER_ASSIGN(const auto now, parameters.get_string(rope_type_key(parameters)));
  DOPPLER_ASSIGN(const auto before, scaling.get_string(rope_type_key(scaling)));
  if (now.value_or("default") == before.value_or("default")) return {};
  return fail(ErrorCode::kCorrupt, "The value {} = {} contradicts {} = {}. Remove the wrong one.",
              parameters.where(rope_type_key(parameters)), printable(now.value_or("default")),
              scaling.where(rope_type_key(scaling)), printable(before.value_or("default")));
}

}  // namespace

std::string_view rope_type_key(const ConfigReader& values) {
  return values.has("rope_type") ? "rope_type" : "type";
}

Status read_rope(SpecBuilder& builder, const RopeDefaults& defaults) {
  ModelSpec& spec = builder.spec();
  const ConfigReader& config = builder.config();
  static const Json kEmpty = Json::object();
  const ConfigReader nothing(kEmpty, config.source());
  DOPPLER_ASSIGN(const std::optional<ConfigReader> parameters, config.get_object("rope_parameters"));
  DOPPLER_ASSIGN(const std::optional<ConfigReader> scaling, config.get_object("rope_scaling"));
  const bool by_type =
      parameters && (parameters->has("full_attention") || parameters->has("sliding_attention"));
  ConfigReader full_values = parameters ? *parameters : scaling ? *scaling : nothing;
  // Sliding layers share the rope of the others, unless the family gives them a theta of their own: that one
  // is not scaled by parameters that are given for all layers.
  const bool own_sliding = defaults.local_theta || defaults.plain_sliding;
  ConfigReader sliding_values = own_sliding ? nothing : full_values;
  if (by_type) {
    DOPPLER_ASSIGN(const std::optional<ConfigReader> of_full, parameters->get_object("full_attention"));
    DOPPLER_ASSIGN(const std::optional<ConfigReader> of_sliding, parameters->get_object("sliding_attention"));
    full_values = of_full.value_or(nothing);
    sliding_values = of_sliding.value_or(nothing);
  }
  if (parameters && scaling) DOPPLER_TRY(check_styles_agree(full_values, *scaling));
  const bool separate = by_type || own_sliding;
  RopeSpec full{.layout = defaults.layout};
  const std::string path = separate ? "attention.rope[full]" : "attention.rope";
  const std::string_view old_key = config.translated() ? "rope_theta" : defaults.old_theta_key;
  const std::string_view old_part_key = config.translated() ? "" : defaults.old_part_key;
  const bool whole = defaults.rotary_dim > 0;
  const auto dims_of = [&](AttentionKind kind) {
    const auto first =
        std::ranges::find(spec.layers, kind, [](const LayerSpec& l) { return l.attention.kind; });
    const LayerSpec& layer = first == spec.layers.end() ? spec.layers.front() : *first;
    return whole ? defaults.rotary_dim : layer.attention.head_dim;
  };
  DOPPLER_TRY(read_rope_set(builder, full_values,
                            {path, old_key, defaults.theta, defaults.rotary_part, old_part_key,
                             dims_of(AttentionKind::kFull), whole, separate},
                            full));
  RopeSpec sliding = full;
  if (separate) {
    sliding = {.layout = defaults.layout};
    // Without a theta of their own they have that of the others.
    const bool shared = !defaults.local_theta && !by_type;
    const RopeSet set = {"attention.rope[sliding]",
                         defaults.local_theta ? "rope_local_base_freq" : old_key,
                         shared ? full.theta : defaults.local_theta.value_or(defaults.theta),
                         defaults.rotary_part,
                         old_part_key,
                         dims_of(AttentionKind::kSliding),
                         whole,
                         separate};
    DOPPLER_TRY(read_rope_set(builder, sliding_values, set, sliding));
  }
  if (defaults.layout != RopeLayout::kHalf)
    builder.note("attention.rope.layout", std::string(name_of(defaults.layout)),
                 fmt::format("rule of the {} family", spec.family));
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    // One rope serves every layer of a kind, so their heads have one width.
    if (!whole && attention.head_dim != dims_of(attention.kind)) {
      return fail(
          ErrorCode::kCorrupt,
          "The {} gives layer {} heads of {} dims, but an earlier layer of its type, which shares its "
          "rotary embedding, heads of {}. Correct it.",
          config.source(), i, attention.head_dim, dims_of(attention.kind));
    }
    attention.rope = attention.kind == AttentionKind::kFull ? full : sliding;
  }
  return {};
}

Status read_query_scale(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  for (const std::string_view object : {"rope_parameters", "rope_scaling"}) {
    DOPPLER_ASSIGN(const std::optional<ConfigReader> values, config.get_object(object));
    if (!values || !values->has("llama_4_scaling_beta")) continue;
    DOPPLER_ASSIGN(const auto beta, values->get_number("llama_4_scaling_beta"));
    DOPPLER_ASSIGN(const auto every, values->get_uint("original_max_position_embeddings"));
    if (*beta == 0) return {};
    if (!every || *every == 0 || *every > kMaxSize) {
      return fail(
          ErrorCode::kCorrupt,
          "The value {} = {} needs an original_max_position_embeddings above 0 beside it. Correct it.",
          values->where("llama_4_scaling_beta"), *beta);
    }
    for (LayerSpec& layer : builder.spec().layers)
      layer.attention.query_scale = {.beta = *beta, .every = static_cast<std::uint32_t>(*every)};
    builder.note("attention.query_scale", fmt::format("{} every {} positions", *beta, *every),
                 values->where("llama_4_scaling_beta"));
    return {};
  }
  return {};
}

void leave_rope_out(SpecBuilder& builder, const std::function<bool(std::size_t)>& has_rope,
                    std::string source) {
  auto& layers = builder.spec().layers;
  const std::string without = layer_ranges(layers.size(), [&](std::size_t i) { return !has_rope(i); });
  if (without == "layers[]") return;
  builder.note(without + ".attention.rope", "none", std::move(source));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!has_rope(i)) layers[i].attention.rope = {.rotary_dim = 0};
  }
}

Status read_layer_types(SpecBuilder& builder, std::optional<std::uint64_t> default_window,
                        bool (*is_full)(std::uint32_t, std::uint32_t), std::uint32_t period,
                        std::string rule) {
  ModelSpec& spec = builder.spec();
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(const auto types, config.get_strings("layer_types"));
  if (types && types->size() != spec.layers.size()) {
    return fail(ErrorCode::kCorrupt, "The {} lists {} layer_types for num_hidden_layers = {}. Correct it.",
                config.source(), types->size(), spec.layers.size());
  }
  bool any_sliding = false;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    bool full = types ? (*types)[i] == "full_attention" : is_full(static_cast<std::uint32_t>(i), period);
    if (types && !full && (*types)[i] != "sliding_attention") {
      return fail(
          ErrorCode::kUnsupported,
          "The {} gives layer {} the type {}, but Doppler knows full_attention and sliding_attention.",
          config.source(), i, printable((*types)[i]));
    }
    spec.layers[i].attention.kind = full ? AttentionKind::kFull : AttentionKind::kSliding;
    any_sliding |= !full;
  }
  const std::string source = types ? config.where("layer_types") : std::move(rule);
  for (const AttentionKind kind : {AttentionKind::kFull, AttentionKind::kSliding}) {
    const auto selected = [&](std::size_t i) { return spec.layers[i].attention.kind == kind; };
    const std::string ranges = layer_ranges(spec.layers.size(), selected);
    if (ranges != "layers[]") builder.note(ranges + ".attention.kind", std::string(name_of(kind)), source);
  }
  if (!any_sliding) return {};
  DOPPLER_ASSIGN(const std::uint32_t window,
                 builder.get_uint("attention.window", "sliding_window", default_window));
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.kind == AttentionKind::kSliding) layer.attention.window = window;
  }
  return {};
}

}  // namespace doppler
