#include "model/spec_builder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace doppler {
namespace {

// Counts and sizes of real models stay far below; 2^31 keeps every product of two of them inside 64 bits.
constexpr std::uint64_t kMaxSize = (std::uint64_t{1} << 31) - 1;
// The deepest published decoders have about 130 layers; the bound keeps a lying config from allocating.
constexpr std::uint64_t kMaxLayers = 4096;

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

Result<std::uint32_t> SpecBuilder::get_uint(std::string_view path, std::string_view key,
                                            std::optional<std::uint64_t> fallback, bool zero_allowed) {
  DOPPLER_ASSIGN(const std::optional<std::uint64_t> read, config_.get_uint(key));
  if (!read && !fallback) {
    return fail(ErrorCode::kCorrupt,
                "The {} has no {}, which the {} family needs. Check that it belongs to the model.",
                config_.source(), key, spec_.family);
  }
  const std::uint64_t value = read ? *read : *fallback;
  if (value > kMaxSize || (value == 0 && !zero_allowed)) {
    return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but it must lie between {} and {}. Correct it.",
                config_.source(), key, value, zero_allowed ? 0 : 1, kMaxSize);
  }
  note(std::string(path), std::to_string(value), read ? config_.where(key) : default_source_);
  return static_cast<std::uint32_t>(value);
}

Result<double> SpecBuilder::get_number(std::string_view path, std::string_view key,
                                       std::optional<double> fallback) {
  DOPPLER_ASSIGN(const std::optional<double> read, config_.get_number(key));
  if (!read && !fallback) {
    return fail(ErrorCode::kCorrupt,
                "The {} has no {}, which the {} family needs. Check that it belongs to the model.",
                config_.source(), key, spec_.family);
  }
  const double value = read ? *read : *fallback;
  note(std::string(path), number_text(value), read ? config_.where(key) : default_source_);
  return value;
}

Result<bool> SpecBuilder::get_bool(std::string_view path, std::string_view key, bool fallback) {
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
  // transformers' names (ACT2FN): gelu_new, gelu_fast and gelu_pytorch_tanh are the same tanh approximation.
  static constexpr std::array<Known, 6> kKnown = {{{"silu", Activation::kSilu},
                                                   {"swish", Activation::kSilu},
                                                   {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                                   {"gelu_new", Activation::kGeluTanh},
                                                   {"gelu_fast", Activation::kGeluTanh},
                                                   {"gelu", Activation::kGeluErf}}};
  for (const Known& known : kKnown) {
    if (known.name == name) return known.activation;
  }
  return fail(ErrorCode::kUnsupported,
              "The {} names the activation {}, but Doppler knows silu, gelu and gelu_pytorch_tanh.", where,
              printable(name));
}

namespace {

Status read_special_ids(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  ModelSpec& spec = builder.spec();
  const auto read_id = [&](std::string_view key, std::int32_t& id) -> Status {
    DOPPLER_ASSIGN(const std::optional<std::uint64_t> read, config.get_uint(key));
    if (!read) return {};
    if (*read >= spec.vocab_size) {
      return fail(ErrorCode::kCorrupt, "The {} says {} = {}, but the vocabulary has {} tokens. Correct it.",
                  config.source(), key, *read, spec.vocab_size);
    }
    id = static_cast<std::int32_t>(*read);
    builder.note(std::string(key), std::to_string(id), config.where(key));
    return {};
  };
  DOPPLER_TRY(read_id("bos_token_id", spec.bos_id));
  DOPPLER_TRY(read_id("pad_token_id", spec.pad_id));
  return {};
}

Status read_attention_sizes(SpecBuilder& builder, const ConfigDefaults& defaults, AttentionSpec& attention) {
  const ModelSpec& spec = builder.spec();
  DOPPLER_ASSIGN(attention.heads,
                 builder.get_uint("attention.heads", "num_attention_heads", defaults.num_attention_heads));
  DOPPLER_ASSIGN(attention.kv_heads,
                 builder.get_uint("attention.kv_heads", "num_key_value_heads",
                                  defaults.num_key_value_heads.value_or(attention.heads)));
  DOPPLER_ASSIGN(attention.head_dim,
                 builder.get_uint("attention.head_dim", "head_dim",
                                  defaults.head_dim.value_or(spec.hidden / attention.heads)));
  if (attention.heads % attention.kv_heads != 0) {
    return fail(ErrorCode::kCorrupt,
                "The {} says num_attention_heads = {} and num_key_value_heads = {}, but the first must be a "
                "multiple of "
                "the second. Correct it.",
                builder.config().source(), attention.heads, attention.kv_heads);
  }
  if (attention.head_dim % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "The head_dim {} is odd, but rotary embedding turns pairs of dims. Correct the {}.",
                attention.head_dim, builder.config().source());
  }
  // A projection wider than 2^31 cannot be real and would overflow later products.
  if (std::uint64_t{attention.heads} * attention.head_dim > kMaxSize) {
    return fail(ErrorCode::kCorrupt,
                "The {} says num_attention_heads = {} and head_dim = {}, too large to be true. Correct it.",
                builder.config().source(), attention.heads, attention.head_dim);
  }
  attention.rope.rotary_dim = attention.head_dim;
  return {};
}

}  // namespace

Status read_common(SpecBuilder& builder, const ConfigDefaults& defaults) {
  ModelSpec& spec = builder.spec();
  const ConfigReader& config = builder.config();
  builder.note("family", spec.family, config.where("model_type"));
  DOPPLER_ASSIGN(spec.vocab_size, builder.get_uint("vocab_size", "vocab_size", defaults.vocab_size));
  DOPPLER_ASSIGN(spec.hidden, builder.get_uint("hidden", "hidden_size", defaults.hidden_size));
  DOPPLER_ASSIGN(spec.context_length, builder.get_uint("context_length", "max_position_embeddings",
                                                       defaults.max_position_embeddings.value_or(2048)));
  DOPPLER_ASSIGN(const std::uint32_t layers,
                 builder.get_uint("layers", "num_hidden_layers", defaults.num_hidden_layers));
  if (layers > kMaxLayers) {
    return fail(ErrorCode::kCorrupt,
                "The {} says num_hidden_layers = {}, but no model has more than {}. Correct it.",
                config.source(), layers, kMaxLayers);
  }
  DOPPLER_ASSIGN(spec.norm.eps, builder.get_number("norm.eps", "rms_norm_eps", defaults.rms_norm_eps));
  if (!(spec.norm.eps >= 0 && spec.norm.eps < 1)) {
    return fail(ErrorCode::kCorrupt,
                "The {} says rms_norm_eps = {}, but it must lie between 0 and 1. Correct it.",
                config.source(), spec.norm.eps);
  }
  DOPPLER_ASSIGN(spec.tied_head,
                 builder.get_bool("head.tied", "tie_word_embeddings", defaults.tie_word_embeddings));

  LayerSpec layer;
  DOPPLER_TRY(read_attention_sizes(builder, defaults, layer.attention));
  DOPPLER_ASSIGN(layer.ffn.width,
                 builder.get_uint("ffn.width", "intermediate_size", defaults.intermediate_size));
  // hidden_activation is Gemma's key; its configs carry an outdated hidden_act beside it.
  const std::string_view key = config.has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const bool gemma = spec.family.starts_with("gemma");
  DOPPLER_ASSIGN(const std::optional<std::string> activation,
                 config.get_string(gemma ? "hidden_activation" : key));
  const bool from_config = activation.has_value();
  DOPPLER_ASSIGN(layer.ffn.activation,
                 parse_activation(from_config ? *activation : defaults.activation, config.source()));
  builder.note("ffn.activation", std::string(name_of(layer.ffn.activation)),
               from_config ? config.where(gemma ? "hidden_activation" : key) : builder.default_source());
  spec.layers.assign(layers, layer);
  set_attention_scale(builder, 1 / std::sqrt(static_cast<double>(layer.attention.head_dim)),
                      "derived: 1 / sqrt(head_dim)");
  return read_special_ids(builder);
}

void set_attention_scale(SpecBuilder& builder, double scale, std::string source) {
  auto& sources = builder.spec().sources;
  std::erase_if(sources, [](const SpecSource& s) { return s.path == "attention.scale"; });
  builder.note("attention.scale", number_text(scale), std::move(source));
  for (LayerSpec& layer : builder.spec().layers) layer.attention.scale = scale;
}

namespace {

// One set of rope values: where to read them, and what they are for messages.
struct RopeSection {
  const ConfigReader& values;  // holds rope_theta (new style)
  std::string path;            // "attention.rope" or "attention.rope[sliding]"
};

Result<RopeScalingKind> parse_rope_type(std::string_view name, const std::string& where) {
  struct Known {
    std::string_view name;
    RopeScalingKind kind;
  };
  // "su" is longrope's name in the first Phi-3 configs.
  static constexpr std::array<Known, 6> kKnown = {{{"default", RopeScalingKind::kNone},
                                                   {"linear", RopeScalingKind::kLinear},
                                                   {"llama3", RopeScalingKind::kLlama3},
                                                   {"yarn", RopeScalingKind::kYarn},
                                                   {"longrope", RopeScalingKind::kLongRope},
                                                   {"su", RopeScalingKind::kLongRope}}};
  for (const Known& known : kKnown) {
    if (known.name == name) return known.kind;
  }
  return fail(ErrorCode::kUnsupported,
              "The {} names the rope type {}, but Doppler knows default, linear, llama3, yarn and longrope.",
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

Status read_longrope(const ConfigReader& values, std::uint32_t rotary_dim, double context,
                     RopeScaling& scaling) {
  DOPPLER_ASSIGN(const auto short_factor, values.get_numbers("short_factor"));
  DOPPLER_ASSIGN(const auto long_factor, values.get_numbers("long_factor"));
  for (const auto* factors : {&short_factor, &long_factor}) {
    const bool positive_all =
        *factors && std::all_of((*factors)->begin(), (*factors)->end(), [](double f) { return f > 0; });
    if (!positive_all || (*factors)->size() != rotary_dim / 2) {
      return fail(ErrorCode::kCorrupt,
                  "The {} needs short_factor and long_factor of {} positive numbers each. Correct it.",
                  values.source(), rotary_dim / 2);
    }
  }
  scaling.short_factor = *short_factor, scaling.long_factor = *long_factor;
  const double stretch = context / scaling.original_context;
  const double published =
      stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(scaling.original_context));
  DOPPLER_ASSIGN(scaling.attention_factor, positive(values, "attention_factor", published));
  return {};
}

// `values` is the object that holds rope_type and its parameters: rope_parameters, or the older rope_scaling.
Status read_scaling(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                    RopeSpec& rope) {
  const ConfigReader& config = builder.config();
  // The older spelling is "type"; where both stand, rope_type is the current one.
  const std::string_view key = values.has("rope_type") ? "rope_type" : "type";
  DOPPLER_ASSIGN(const std::optional<std::string> type, values.get_string(key));
  RopeScaling& s = rope.scaling;
  DOPPLER_ASSIGN(s.kind, parse_rope_type(type.value_or("default"), values.where(key)));
  builder.note(path + ".scaling", std::string(name_of(s.kind)),
               type ? values.where(key) : builder.default_source());
  if (s.kind == RopeScalingKind::kNone) return {};
  const double context = builder.spec().context_length;
  if (s.kind != RopeScalingKind::kLongRope) {
    DOPPLER_ASSIGN(s.factor, positive(values, "factor", std::nullopt));
    builder.note(path + ".scaling.factor", number_text(s.factor), values.where("factor"));
  }
  if (s.kind == RopeScalingKind::kLinear) return {};
  // Phi-3 keeps original_max_position_embeddings beside rope_scaling, newer files inside.
  const bool inside = values.has("original_max_position_embeddings");
  DOPPLER_ASSIGN(s.original_context,
                 positive(inside ? values : config, "original_max_position_embeddings",
                          s.kind == RopeScalingKind::kLlama3 ? std::nullopt : std::optional(context)));
  builder.note(path + ".scaling.original_context", number_text(s.original_context),
               (inside ? values : config).where("original_max_position_embeddings"));
  if (s.kind == RopeScalingKind::kLlama3) {
    DOPPLER_ASSIGN(s.low_freq_factor, positive(values, "low_freq_factor", std::nullopt));
    DOPPLER_ASSIGN(s.high_freq_factor, positive(values, "high_freq_factor", std::nullopt));
    builder.note(path + ".scaling.low_freq_factor", number_text(s.low_freq_factor),
                 values.where("low_freq_factor"));
    builder.note(path + ".scaling.high_freq_factor", number_text(s.high_freq_factor),
                 values.where("high_freq_factor"));
    if (s.low_freq_factor >= s.high_freq_factor) {
      return fail(ErrorCode::kCorrupt, "The value {} = {} must be below high_freq_factor = {}. Correct it.",
                  values.where("low_freq_factor"), s.low_freq_factor, s.high_freq_factor);
    }
  } else if (s.kind == RopeScalingKind::kYarn) {
    DOPPLER_ASSIGN(s.beta_fast, positive(values, "beta_fast", 32.0));
    DOPPLER_ASSIGN(s.beta_slow, positive(values, "beta_slow", 1.0));
    DOPPLER_ASSIGN(const std::optional<bool> truncate, values.get_bool("truncate"));
    s.truncate = truncate.value_or(true);
    const double published = s.factor <= 1 ? 1 : 0.1 * std::log(s.factor) + 1;
    DOPPLER_ASSIGN(s.attention_factor, positive(values, "attention_factor", published));
  } else {
    DOPPLER_TRY(read_longrope(values, rope.rotary_dim, context, s));
  }
  if (s.kind != RopeScalingKind::kLlama3) {
    builder.note(path + ".scaling.attention_factor", number_text(s.attention_factor),
                 values.has("attention_factor") ? values.where("attention_factor")
                                                : "derived: from the scaling factor");
  }
  return {};
}

Status read_rotary_dim(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                       RopeSpec& rope, std::uint32_t head_dim) {
  const ConfigReader& from = values.has("partial_rotary_factor") ? values : builder.config();
  DOPPLER_ASSIGN(const std::optional<double> part, from.get_number("partial_rotary_factor"));
  rope.rotary_dim = static_cast<std::uint32_t>(head_dim * std::clamp(part.value_or(1.0), 0.0, 1.0));
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0) {
    return fail(ErrorCode::kCorrupt,
                "The value {} = {} leaves {} rotary dims of {}; it must be an even number. Correct it.",
                from.where("partial_rotary_factor"), *part, rope.rotary_dim, head_dim);
  }
  if (part)
    builder.note(path + ".rotary_dim", std::to_string(rope.rotary_dim), from.where("partial_rotary_factor"));
  return {};
}

// New style: `values` holds theta and scaling of one layer type.
Status read_rope_set(SpecBuilder& builder, const ConfigReader& values, const std::string& path,
                     double default_theta, RopeSpec& rope, std::uint32_t head_dim) {
  const bool inside = values.has("rope_theta");
  const ConfigReader& from = inside ? values : builder.config();
  DOPPLER_ASSIGN(rope.theta, positive(from, "rope_theta", default_theta));
  builder.note(path + ".theta", number_text(rope.theta),
               from.has("rope_theta") ? from.where("rope_theta") : builder.default_source());
  DOPPLER_TRY(read_rotary_dim(builder, values, path, rope, head_dim));
  return read_scaling(builder, values, path, rope);
}

}  // namespace

Status read_rope(SpecBuilder& builder, double default_theta, std::optional<double> local_theta) {
  ModelSpec& spec = builder.spec();
  const ConfigReader& config = builder.config();
  const std::uint32_t head_dim = spec.layers.front().attention.head_dim;
  RopeSpec full;
  full.rotary_dim = head_dim;
  RopeSpec sliding = full;
  DOPPLER_ASSIGN(const std::optional<ConfigReader> parameters, config.get_object("rope_parameters"));
  DOPPLER_ASSIGN(const std::optional<ConfigReader> scaling, config.get_object("rope_scaling"));
  const bool by_type =
      parameters && (parameters->has("full_attention") || parameters->has("sliding_attention"));
  const char* full_path = local_theta ? "attention.rope[full]" : "attention.rope";
  if (by_type) {
    DOPPLER_ASSIGN(const std::optional<ConfigReader> full_values, parameters->get_object("full_attention"));
    DOPPLER_ASSIGN(const std::optional<ConfigReader> sliding_values,
                   parameters->get_object("sliding_attention"));
    DOPPLER_TRY(
        read_rope_set(builder, full_values.value_or(*parameters), full_path, default_theta, full, head_dim));
    DOPPLER_TRY(read_rope_set(builder, sliding_values.value_or(*parameters), "attention.rope[sliding]",
                              local_theta.value_or(default_theta), sliding, head_dim));
  } else {
    DOPPLER_TRY(read_rope_set(builder,
                              parameters ? *parameters
                              : scaling  ? *scaling
                                         : config,
                              full_path, default_theta, full, head_dim));
    sliding = full;
    if (local_theta) {  // sliding layers keep the unscaled rope of their own theta
      sliding = RopeSpec{.theta = *local_theta, .rotary_dim = full.rotary_dim, .scaling = {}};
      DOPPLER_ASSIGN(sliding.theta, positive(config, "rope_local_base_freq", *local_theta));
      builder.note("attention.rope[sliding].theta", number_text(sliding.theta),
                   config.has("rope_local_base_freq") ? config.where("rope_local_base_freq")
                                                      : builder.default_source());
    }
  }
  for (LayerSpec& layer : spec.layers) {
    layer.attention.rope = layer.attention.kind == AttentionKind::kFull ? full : sliding;
  }
  return {};
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
