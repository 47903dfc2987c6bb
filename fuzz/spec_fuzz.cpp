// Any config.json, with or without a generation_config.json after a NUL byte, becomes a spec or an error; and
// a spec that is accepted holds what the plan builder and the backends rely on.
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "formats/config_json.h"
#include "model/family.h"
#include "model/rope.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const doppler::ModelSpec& spec) {
  require(!spec.layers.empty() && spec.hidden > 0 && spec.vocab_size > 0 && spec.context_length > 0);
  for (const std::int32_t id : spec.eos_ids)
    require(id >= 0 && static_cast<std::uint32_t>(id) < spec.vocab_size);
  require(spec.pad_id >= -1 && spec.bos_id >= -1 && spec.pad_id < static_cast<std::int64_t>(spec.vocab_size));
  const doppler::LayerSpec* last = nullptr;
  for (const doppler::LayerSpec& layer : spec.layers) {
    require(layer.has_attention || layer.has_ffn || layer.recurrent.exists());
    if (layer.has_ffn) require(layer.ffn.width > 0);
    if (layer.has_ffn && layer.ffn.experts > 0)
      require(layer.ffn.router.top_k > 0 && layer.ffn.router.top_k <= layer.ffn.experts);
    if (layer.recurrent.exists()) require(layer.recurrent.taps > 0 && layer.recurrent.inner() > 0);
    if (!layer.has_attention) continue;
    const doppler::AttentionSpec& a = layer.attention;
    require(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.head_dim % 2 == 0 &&
            a.q_width() / a.head_dim == a.heads);
    require(a.scale > 0 && std::isfinite(a.scale) && a.softcap >= 0);
    require((a.kind != doppler::AttentionKind::kFull) == (a.window > 0));
    require(a.rope.rotary_dim <= a.head_dim && a.rope.rotary_dim % 2 == 0);
    if (a.rope.rotary_dim == 0) continue;
    // Tables cost time, and neighbouring layers mostly share theirs.
    if (a.head_dim > 4096 || (last != nullptr && last->attention.rope == a.rope)) continue;
    last = &layer;
    for (const double f : doppler::make_rope_table(a.rope, spec.context_length).inverse_frequency)
      require(std::isfinite(f));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t nul = text.find('\0');
  const auto config = doppler::parse_config_json(text.substr(0, nul), "config.json");
  if (!config) return 0;
  std::optional<doppler::Json> generation;
  if (nul != std::string_view::npos) {
    auto parsed = doppler::parse_config_json(text.substr(nul + 1), "generation_config.json");
    if (!parsed) return 0;
    generation = std::move(*parsed);
  }
  const auto spec = doppler::read_spec(*config, generation ? &*generation : nullptr);
  if (spec)
    check(*spec);
  else
    require(!spec.error().message.empty());
  return 0;
}
