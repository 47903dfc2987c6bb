// Checks of the files, of the description's plausibility, and of the memory.
#include <algorithm>
#include <cmath>
#include <set>

#include "backend/kv_cache.h"
#include "base/sha256.h"
#include "base/text.h"
#include "diagnosis/doctor/doctor_checks.h"

namespace doppler::diagnosis::doctor {
namespace {

// About 400 MB a second on one core: files up to this size are hashed without being asked to.
constexpr std::uint64_t kHashedAnyway = 100'000'000;

void note_spec(const Examination& e, std::string cause, std::string_view stage, int layer,
               std::string explanation, std::string repair = {}) {
  e.find({.cause = std::move(cause),
          .stage = std::string(stage),
          .layer = layer,
          .explanation = std::move(explanation),
          .repair = std::move(repair),
          .confidence = 0.9});
}

// Values that no model of any family has; with them a model loads but generates nonsense.
void check_norms(const Examination& e) {
  const NormSpec& norm = e.subject.spec.norm;
  // Published models have 1e-6 or 1e-5; some 1e-12 (BERT's relatives) and 1e-3.
  if (!(norm.eps > 0) || norm.eps > 1e-2)
    note_spec(e, "norm_eps", "attn_normed", -1,
              fmt::format("The norms add {}, but every published model adds 1e-12 to 1e-3.", norm.eps));
}

void check_attention(const Examination& e, int i) {
  const LayerSpec& layer = e.subject.spec.layers[static_cast<std::size_t>(i)];
  if (!layer.has_attention) return;
  const AttentionSpec& a = layer.attention;
  if (!(a.scale > 0) || !std::isfinite(a.scale)) {
    note_spec(e, "attention_scale", "attn_out", i,
              fmt::format("Layer {} multiplies its attention scores by {}.", i, a.scale));
  }
  if (!(a.rope.theta >= 1)) {
    note_spec(e, "rope_theta", "q_rope", i,
              fmt::format("The rotary base of layer {} is {}, but no angle below 1 falls from pair to pair.",
                          i, a.rope.theta));
  }
  if (a.rope.rotary_dim > a.head_dim) {
    note_spec(
        e, "rope_dims", "q_rope", i,
        fmt::format("Layer {} rotates {} dims of heads that have {}.", i, a.rope.rotary_dim, a.head_dim));
  }
  if (a.kind == AttentionKind::kSliding && a.window == 0)
    note_spec(e, "sliding_window", "attn_out", i, fmt::format("Layer {} slides, but its window is 0.", i));
}

}  // namespace

Result<Outcome> check_files(const Examination& e) {
  const ModelFiles& files = e.subject.model->files;
  std::uint64_t bytes = 0;
  for (const MappedFile& file : files.tensors.files()) bytes += file.bytes().size();
  std::string text = fmt::format("{} tensors, {} in {}", files.tensors.tensors().size(), human_bytes(bytes),
                                 counted(files.tensors.files().size(), "file"));
  if (!e.options.hashes && bytes > kHashedAnyway)
    return Outcome::ok(text + "; --hashes prints their SHA-256");
  for (const MappedFile& file : files.tensors.files())
    text += fmt::format("; {} sha256 {}", file.path().filename().string(), sha256_hex(file.bytes()));
  return Outcome::ok(std::move(text));
}

Result<Outcome> check_spec(const Examination& e) {
  const ModelSpec& spec = e.subject.spec;
  check_norms(e);
  for (int i = 0; i < static_cast<int>(spec.layers.size()); ++i) {
    if (spec.layers[static_cast<std::size_t>(i)].has_attention) check_attention(e, i);
  }
  if (!(spec.embedding_scale != 0) || !std::isfinite(spec.embedding_scale))
    note_spec(e, "embedding_scale", "embed_out", -1,
              fmt::format("The embeddings are multiplied by {}.", spec.embedding_scale));
  if (spec.final_softcap < 0)
    note_spec(e, "final_softcap", "logits_final", -1,
              fmt::format("The logits are capped at {}.", spec.final_softcap));
  for (const std::int32_t id : spec.eos_ids) {
    if (id >= 0 && static_cast<std::uint32_t>(id) < spec.vocab_size) continue;
    note_spec(e, "special_tokens", "", -1,
              fmt::format("The end-of-sequence id {} is outside of the vocabulary of {} tokens.", id,
                          spec.vocab_size));
  }
  std::set<std::uint32_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.insert(layer.attention.window);
  return Outcome::ok(fmt::format("{}: {} layers of width {}, {} heads on {}, vocabulary {}{}", spec.family,
                                 spec.layers.size(), spec.hidden, spec.layers[0].attention.heads,
                                 spec.layers[0].attention.kv_heads, spec.vocab_size,
                                 windows.size() > 1 ? ", local and global layers" : ""));
}

Result<Outcome> check_memory(const Examination& e) {
  const BackendOptions& options = e.subject.options;
  DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(options.context));
  const KvType type = choose_kv_type(options, plan, e.subject.weights);
  DOPPLER_ASSIGN(const std::uint64_t cache,
                 KvCache::bytes_needed(plan.kv_layers, cache_extent(options), type));
  return Outcome::ok(fmt::format("weights {}, KV cache {} ({}) at a context of {}",
                                 human_bytes(e.subject.model->files.tensors.total_bytes()),
                                 human_bytes(cache), kv_type_name(type), options.context));
}

}  // namespace doppler::diagnosis::doctor
