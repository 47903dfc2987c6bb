#include "model/families/hybrid.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// The widest published recurrent layers have some ten thousand channels and a state of a million values.
constexpr std::uint64_t kMaxWidth = std::uint64_t{1} << 24, kMaxState = std::uint64_t{1} << 32;
// Published convolutions reach over 3 or 4 tokens.
constexpr std::uint32_t kMaxTaps = 64;

const LayerKind* find_kind(std::span<const LayerKind> kinds, std::string_view name) {
  const auto found = std::ranges::find(kinds, name, &LayerKind::name);
  return found == kinds.end() ? nullptr : &*found;
}

void apply(const LayerKind& kind, LayerSpec& layer) {
  layer.has_attention = kind.attention;
  layer.has_ffn = kind.ffn;
  // The kind of the half itself is set by set_recurrent().
  layer.recurrent.kind = kind.recurrent ? RecurrentKind::kShortConvolution : RecurrentKind::kNone;
  if (!kind.attention && !kind.recurrent) layer.attn_norm = false;
  if (!kind.ffn) layer.ffn_norm = false;
}

}  // namespace

Status read_layer_kinds(SpecBuilder& builder, std::string_view key, std::span<const LayerKind> kinds,
                        const std::function<std::string_view(std::size_t)>& kind_of, std::string rule) {
  const ConfigReader& config = builder.config();
  std::vector<LayerSpec>& layers = builder.spec().layers;
  DOPPLER_ASSIGN(const auto names, config.get_strings(key));
  if (names && names->size() != layers.size()) {
    return fail(ErrorCode::kCorrupt, "The {} lists {} {} for {} layers. Correct it.", config.source(),
                names->size(), config.name(key), layers.size());
  }
  std::vector<std::string> known;
  for (const LayerKind& kind : kinds) known.emplace_back(kind.name);
  const std::string source = names ? config.where(key) : std::move(rule);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string_view name = names ? std::string_view((*names)[i]) : kind_of(i);
    const LayerKind* kind = find_kind(kinds, name);
    if (kind == nullptr) {
      return fail(ErrorCode::kUnsupported, "The {} gives layer {} the type {}, but Doppler knows {}.",
                  config.source(), i, printable(name), join(known, ", "));
    }
    apply(*kind, layers[i]);
    builder.note(fmt::format("layers[{}].kind", i), std::string(name), source);
  }
  return {};
}

std::string_view known_key(const ConfigReader& config, std::string_view now, std::string_view before) {
  return config.has(now) ? now : before;
}

Status read_convolution_activation(SpecBuilder& builder, std::string_view key, RecurrentSpec& r) {
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(const auto name, config.get_string(key));
  if (!name) return {};
  DOPPLER_ASSIGN(r.conv_activation, parse_activation(*name, config.where(key)));
  if (r.conv_activation == Activation::kXielu) {
    return fail(
        ErrorCode::kUnsupported,
        "The {} says {} = {}, which has numbers of its own that convolutions lack. Use another model.",
        config.source(), config.name(key), printable(*name));
  }
  builder.note("recurrent.conv_activation", std::string(name_of(r.conv_activation)), config.where(key));
  return {};
}

Status read_step_limits(SpecBuilder& builder, RecurrentSpec& r) {
  const ConfigReader& config = builder.config();
  if (!config.has("time_step_limit")) return {};
  const auto found = config.json().find("time_step_limit");
  const bool pair = found != config.json().end() && found->is_array() && found->size() == 2;
  // JSON has no infinity: transformers writes an object in its place.
  const auto limit = [&](std::size_t i) -> std::optional<double> {
    const Json& value = (*found)[i];
    if (value.is_number()) return value.get<double>();
    const bool infinite =
        value.is_object() && value.contains("__float__") && value["__float__"] == "Infinity";
    return infinite ? std::optional(std::numeric_limits<double>::infinity()) : std::nullopt;
  };
  const auto low = pair ? limit(0) : std::nullopt, high = pair ? limit(1) : std::nullopt;
  if (!low || !high || !(*low >= 0 && *low <= *high)) {
    return fail(ErrorCode::kCorrupt,
                "The value {} is not a lower and an upper limit of the time step. Correct it.",
                config.where("time_step_limit"));
  }
  r.min_step = *low, r.max_step = *high;
  builder.note("recurrent.step_limits", fmt::format("{} to {}", *low, *high),
               config.where("time_step_limit"));
  return {};
}

Result<RecurrentSpec> read_mamba2(SpecBuilder& builder, const Mamba2Keys& keys) {
  RecurrentSpec r{.kind = RecurrentKind::kMamba2, .norm = GatedNorm::kGateThenNorm};
  DOPPLER_ASSIGN(r.heads, builder.get_uint("recurrent.heads", keys.heads, keys.default_heads));
  DOPPLER_ASSIGN(r.head_dim, builder.get_uint("recurrent.head_dim", keys.head_dim, keys.default_head_dim));
  DOPPLER_ASSIGN(r.groups, builder.get_uint("recurrent.groups", keys.groups, keys.default_groups));
  DOPPLER_ASSIGN(r.state_dim, builder.get_uint("recurrent.state_dim", keys.states, keys.default_states));
  DOPPLER_ASSIGN(r.taps, builder.get_uint("recurrent.taps", keys.taps, 4));
  DOPPLER_ASSIGN(r.conv_bias, builder.get_bool("recurrent.conv_bias", keys.conv_bias, true));
  DOPPLER_TRY(read_step_limits(builder, r));
  DOPPLER_TRY(read_convolution_activation(builder, keys.activation, r));
  return r;
}

Status read_projection_bias(SpecBuilder& builder, std::string_view key, RecurrentSpec& r) {
  DOPPLER_ASSIGN(r.in_bias, builder.get_bool("recurrent.in_bias, recurrent.out_bias", key, false));
  r.out_bias = r.in_bias;
  return {};
}

Result<std::uint32_t> checked_inner(SpecBuilder& builder, std::uint32_t expand) {
  const std::uint64_t inner = std::uint64_t{expand} * builder.spec().hidden;
  if (inner <= kMaxWidth) return static_cast<std::uint32_t>(inner);
  return fail(ErrorCode::kCorrupt,
              "The {} widens recurrent layers {} times to {} values, too large to be true. Correct it.",
              builder.config().source(), expand, inner);
}

Status set_recurrent(SpecBuilder& builder, const RecurrentSpec& r) {
  const Checked inner = Checked(r.heads) * Checked(r.head_dim),
                keys = Checked(r.groups) * Checked(r.state_dim);
  const auto width = (inner * Checked(4) + keys * Checked(2) + Checked(r.rank)).get();
  const auto state = (inner * Checked(r.state_dim)).get();
  if (!width || *width > kMaxWidth || !state || *state > kMaxState) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} gives recurrent layers {} heads of {} and {} groups of {} states, too large to be true. "
        "Correct it.",
        builder.config().source(), r.heads, r.head_dim, r.groups, r.state_dim);
  }
  if (r.groups != 0 && r.heads % r.groups != 0) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} gives recurrent layers {} heads in {} groups, but the first must be a multiple of the "
        "second. Correct it.",
        builder.config().source(), r.heads, r.groups);
  }
  if (r.taps < 2 || r.taps > kMaxTaps) {
    return fail(
        ErrorCode::kCorrupt,
        "The {} gives recurrent layers a convolution of {} taps, but it must have 2 to {}. Correct it.",
        builder.config().source(), r.taps, kMaxTaps);
  }
  if (r.norm_groups == 0 || r.inner() % r.norm_groups != 0) {
    return fail(ErrorCode::kCorrupt,
                "The {} gives recurrent layers an inner width of {} in {} groups, which do not divide it. "
                "Correct it.",
                builder.config().source(), r.inner(), r.norm_groups);
  }
  builder.note("recurrent.kind", std::string(name_of(r.kind)),
               fmt::format("rule of the {} family", builder.spec().family));
  for (LayerSpec& layer : builder.spec().layers) {
    if (layer.recurrent.exists()) layer.recurrent = r;
  }
  return {};
}

}  // namespace doppler
