// GgufConfig: a GGUF file's description of its model, translated to config.json's keys, so that one family
// file reads both. Every value keeps the name of its GGUF key (or tensor, or rule) for messages and `doppler
// inspect`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/gguf_metadata.h"
#include "formats/hf_config.h"
#include "formats/tensor_store.h"
#include "model/weights.h"

namespace doppler {

// A key of some architectures only, a number or a flag, and its counterpart in config.json.
struct GgufKey {
  std::string_view path, suffix;
};

class GgufConfig {
 public:
  // Everything given must outlive this. `names` are the family's names of tensors: some values follow from a
  // tensor's presence. `keys` are read besides those of all architectures.
  GgufConfig(const GgufMetadata& metadata, const TensorStore& tensors, std::string_view architecture,
             const WeightNames& names, std::span<const GgufKey> keys = {});

  // These keys (after "ARCHITECTURE.") are the family's own: it reads them itself, so they may differ between
  // layers, of which the first counts until then, and may change the arithmetic.
  void set_own_keys(std::span<const std::string_view> keys) { own_keys_ = keys; }

  // Fills the configuration from keys and tensors. Errors: kCorrupt for missing or contradictory keys,
  // kMismatch for a vocabulary that contradicts the embedding, kUnsupported for features that Doppler lacks.
  Status translate();

  // Values under "ARCHITECTURE.suffix"; a list of equal values, one per layer, counts as one value. Zeros in
  // it, for layers without what is counted, do not count.
  std::string key(std::string_view suffix) const;
  Result<std::optional<std::uint64_t>> get_uint(std::string_view suffix) const;
  Result<std::optional<double>> get_number(std::string_view suffix) const;
  // A value for each layer, which one value stands for, too; empty where there is none. Errors: kCorrupt for
  // a list of another length.
  Result<std::vector<std::uint64_t>> get_uints(std::string_view suffix) const;
  // A list as it is; empty where there is none.
  Result<std::vector<float>> get_floats(std::string_view suffix) const;
  Result<std::optional<bool>> get_flag(std::string_view suffix) const;
  std::string tensor_name(WeightRole role, int layer = -1) const { return weight_name(names_, role, layer); }
  // Null if the model has none.
  const TensorView* tensor(WeightRole role, int layer = -1) const;

  // config.json's value at a path ("rope_scaling.factor"), and where it comes from.
  void set(std::string_view path, Json value, KeyOrigin origin);
  void set_from_key(std::string_view path, Json value, std::string_view suffix);
  void derive(std::string_view path, Json value, std::string_view rule);

  std::uint64_t layers() const { return layers_; }
  const Json& json() const { return *json_; }
  // Of every key that config.json could have, also of absent ones.
  const KeyOrigins& origins() const { return origins_; }

 private:
  Status check_runnable() const;
  Status read_sizes();
  Status read_epsilon();
  Status read_own_keys();
  Status read_experts();
  Status read_head_dim();
  Status read_ffn_width();
  Status read_vocabulary();
  Status read_windows();
  Status read_softcaps();
  Status read_rope();
  Status read_rope_scaling();
  Status read_rope_factors();
  void read_flags();
  Status read_special_ids();

  const GgufMetadata& metadata_;
  const TensorStore& tensors_;
  std::string architecture_;
  const WeightNames& names_;
  std::span<const GgufKey> keys_;
  JsonMember json_;  // an object
  KeyOrigins origins_;
  std::span<const std::string_view> own_keys_;
  std::uint64_t layers_ = 0, hidden_ = 0, heads_ = 0, head_dim_ = 0;
};

}  // namespace doppler
