// SpecBuilder: reads values for a ModelSpec from config.json and remembers where each came from.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/hf_config.h"
#include "model/spec.h"

namespace doppler {

// Another spelling of a key, for families whose configuration class has its own (attribute_map in
// transformers); where a file has both, `key` counts.
struct KeyAlias {
  std::string_view key, other;
};

// The defaults of one family's configuration class, used where config.json leaves a key out.
struct ConfigDefaults {
  std::optional<std::uint64_t> vocab_size, hidden_size, intermediate_size, num_hidden_layers,
      num_attention_heads, num_key_value_heads, head_dim, max_position_embeddings;
  double rms_norm_eps = 1e-6;
  std::string_view norm_eps_key = "rms_norm_eps";
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
  std::string_view activation = "silu", activation_key = "hidden_act";
  bool widths_by_layer = false;           // intermediate_size is a list, which the family reads
  bool attention = true, ffn = true;      // whether any layer has one; else their sizes are not read
  std::uint32_t intermediate_factor = 0;  // of the hidden size, where no intermediate_size is given
  std::span<const KeyAlias> aliases = {};
};

class SpecBuilder {
 public:
  SpecBuilder(const ConfigReader& config, ModelSpec& spec, std::string family)
      : config_(config), spec_(spec), default_source_("default of the " + family + " family") {
    spec_.family = std::move(family);
  }

  const ConfigReader& config() const { return config_; }
  ModelSpec& spec() { return spec_; }

  // The value of `key`, else the default; noted under `path`. Without a default a missing key is an error
  // (kCorrupt). Unsigned values must lie in [1, 2^31) unless zero_allowed.
  Result<std::uint32_t> get_uint(std::string_view path, std::string_view key,
                                 std::optional<std::uint64_t> fallback, bool zero_allowed = false);
  Result<double> get_number(std::string_view path, std::string_view key, std::optional<double> fallback);
  // The same, above zero.
  Result<double> get_positive(std::string_view path, std::string_view key, std::optional<double> fallback);
  Result<bool> get_bool(std::string_view path, std::string_view key, bool fallback);

  void use_aliases(std::span<const KeyAlias> aliases) { aliases_ = aliases; }
  // The key as this file spells it. Getters do this by themselves.
  std::string_view spelled(std::string_view key) const;

  // Notes a value that is not read from one key.
  void note(std::string path, std::string value, std::string source);
  const std::string& default_source() const { return default_source_; }

 private:
  const ConfigReader& config_;
  ModelSpec& spec_;
  std::string default_source_;
  std::span<const KeyAlias> aliases_;
};

// The parts every family shares. Each fills the spec from `builder` and notes its values.

// Sizes, norm and head tie; makes the layers, all alike, with attention sizes and the feed-forward.
Status read_common(SpecBuilder& builder, const ConfigDefaults& defaults);

// The rope of a family's files.
struct RopeDefaults {
  double theta = 10000;
  std::optional<double> local_theta = std::nullopt;  // of sliding layers where they have a theta of their own
  bool plain_sliding = false;                        // rope_scaling is not for sliding layers
  // The part of a head that turns, without a partial_rotary_factor. None: all of it turns, whatever the file
  // says, as in the classes of transformers that take no notice of the key.
  std::optional<double> rotary_part = std::nullopt;
  RopeLayout layout = RopeLayout::kHalf;
  std::uint32_t rotary_dim = 0;  // of every head, whatever the file says; 0: what it says
  // Of files older than rope_parameters, where the family reads these keys alone. None: partial_rotary_factor
  // or a synonym.
  std::string_view old_theta_key = "rope_theta", old_part_key;
};

// Where rope values name their type: the older spelling is "type"; where both stand, rope_type is the current
// one.
std::string_view rope_type_key(const ConfigReader& values);

// rope_parameters (one set, or one per layer type), or the older rope_theta, rope_scaling and
// rope_local_base_freq.
Status read_rope(SpecBuilder& builder, const RopeDefaults& defaults);
inline Status read_rope(SpecBuilder& builder, double default_theta,
                        std::optional<double> local_theta = std::nullopt) {
  return read_rope(builder, {.theta = default_theta, .local_theta = local_theta});
}

// llama_4_scaling_beta beside the rope values: queries grow with their position. Without it nothing changes.
Status read_query_scale(SpecBuilder& builder);

// The layers for which has_rope(layer) does not hold do without.
void leave_rope_out(SpecBuilder& builder, const std::function<bool(std::size_t layer)>& has_rope,
                    std::string source);

// layer_types if it is there, else layer i attends fully iff is_full(i); sliding layers get the window.
Status read_layer_types(SpecBuilder& builder, std::optional<std::uint64_t> default_window,
                        bool (*is_full)(std::uint32_t layer, std::uint32_t period), std::uint32_t period,
                        std::string rule);

// Applies to every layer: spec.layers[i].attention.scale = scale.
void set_attention_scale(SpecBuilder& builder, double scale, std::string source);

// The key is there and says null, which some families take for "off" where an absent key means their default.
bool says_null(const ConfigReader& config, std::string_view key);

Result<Activation> parse_activation(std::string_view name, const std::string& where);

}  // namespace doppler
