#include "model/guess/guessed_config.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// The usual key and how other configuration classes of transformers call it.
struct Synonyms {
  std::string_view key;
  std::array<std::string_view, 7> others;
};
constexpr std::array kSynonyms = {
    Synonyms{"num_attention_heads",
             {"n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads"}},
    Synonyms{
        "num_key_value_heads",
        {"n_head_kv", "num_kv_heads", "n_kv_heads", "kv_heads", "num_query_groups", "multi_query_group_num"}},
    Synonyms{"head_dim", {"kv_channels", "attention_head_dim", "head_size", "attention_head_size", "d_head"}},
    Synonyms{"max_position_embeddings",
             {"n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length",
              "max_seq_length"}},
    Synonyms{"norm_eps",
             {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "layernorm_epsilon",
              "rms_norm_epsilon", "norm_eps"}},
    Synonyms{"hidden_act",
             {"hidden_activation", "activation_function", "activation", "act_fn", "mlp_hidden_act", "ffn_act",
              "activation_type"}},
    Synonyms{"rope_theta",
             {"rotary_emb_base", "rope_base", "rotary_base", "rope_freq_base", "rope_theta_base"}},
    Synonyms{"partial_rotary_factor", {"rotary_pct", "rope_pct", "rotary_percent", "rope_partial_factor"}},
    Synonyms{"embedding_multiplier",
             {"scale_emb", "embedding_scale", "emb_scale", "input_scale", "embed_scale"}},
    Synonyms{"residual_multiplier", {"residual_scale"}},
    Synonyms{"attention_multiplier", {"attention_scale", "attn_scale", "attention_scaling"}},
    Synonyms{"logit_scale",
             {"logits_multiplier", "output_multiplier", "output_logits_scale", "lm_head_multiplier"}},
    Synonyms{"attn_logit_softcapping",
             {"attention_logit_softcapping", "attn_logit_softcap", "attention_softcap"}},
    Synonyms{"final_logit_softcapping", {"logits_soft_cap", "logit_softcap", "final_logit_softcap"}},
    Synonyms{"sliding_window", {"attention_window", "window_size", "sliding_window_size"}},
    Synonyms{"num_experts_per_tok",
             {"top_k", "moe_top_k", "num_activated_experts", "n_activated_experts", "num_selected_experts",
              "experts_per_token", "num_experts_per_topk"}},
    Synonyms{"norm_topk_prob",
             {"normalize_topk_prob", "norm_topk", "route_norm", "norm_expert_weights", "moe_renormalize"}},
    Synonyms{"routed_scaling_factor",
             {"route_scale", "moe_routed_scaling_factor", "router_scaling_factor", "moe_router_scale"}},
    Synonyms{"scoring_func",
             {"score_func", "score_function", "router_score_function", "moe_router_score_function",
              "router_scoring_func", "router_activation", "gating_function"}},
};

class Translator {
 public:
  Translator(const ConfigReader& config, const TensorPatterns& patterns, const GuessedNames& names)
      : config_(config), patterns_(patterns), names_(names) {
    *guessed_.json = config.json();
  }

  Result<GuessedConfig> translate() {
    for (const Synonyms& synonyms : kSynonyms) take_synonym(synonyms);
    DOPPLER_TRY(measure_sizes());
    DOPPLER_TRY(measure_heads());
    DOPPLER_TRY(take_rotary_dim());
    return std::move(guessed_);
  }

 private:
  void take_synonym(const Synonyms& synonyms) {
    if (config_.has(synonyms.key)) return;
    for (const std::string_view other : synonyms.others) {
      if (other.empty() || !config_.has(other)) continue;
      (*guessed_.json)[std::string(synonyms.key)] = config_.json().at(std::string(other));
      guessed_.origins[std::string(synonyms.key)] = {std::string(other), config_.where(other)};
      return;
    }
  }

  bool has(std::string_view key) const {
    const auto found = guessed_.json->find(std::string(key));
    return found != guessed_.json->end() && !found->is_null();
  }
  void set(std::string_view key, std::uint64_t value, std::string source) {
    (*guessed_.json)[std::string(key)] = value;
    guessed_.origins[std::string(key)] = {std::string(key), "guess: " + std::move(source)};
  }
  // What a tensor's shape says has the last word: a key may speak of something else.
  void measure(std::string_view key, const TensorPattern& tensor, std::size_t dim, std::uint64_t parts = 1) {
    const Shape& shape = tensor.first().shape;
    if (dim >= shape.size() || shape[dim] % parts != 0) return;
    set(key, shape[dim] / parts, fmt::format("{} is {}", printable(tensor.name), describe_shape(shape)));
  }

  Status measure_sizes() {
    const TensorPattern* const embedding = names_.find(WeightRole::kTokenEmbedding);
    if (embedding == nullptr || embedding->first().shape.size() != 2) {
      return fail(
          ErrorCode::kMismatch,
          "The guess finds no embedding among the tensors' names. This may be no decoder; Doppler runs "
          "decoders only.");
    }
    measure("vocab_size", *embedding, 0);
    measure("hidden_size", *embedding, 1);
    if (patterns_.layers == 0) {
      return fail(ErrorCode::kMismatch,
                  "The guess finds no numbered layers among the tensors' names. Doppler runs decoders only.");
    }
    set("num_hidden_layers", static_cast<std::uint64_t>(patterns_.layers),
        fmt::format("tensors {}0 to {}", printable(patterns_.layer_prefix), patterns_.layers - 1));
    if (const auto* up = names_.find(WeightRole::kUp))
      measure("intermediate_size", *up, 0);
    else if (const auto* both = names_.find(WeightRole::kGateUp))
      measure("intermediate_size", *both, 0, 2);
    measure_experts();
    return {};
  }

  // Experts have a tensor each, or the first dim of one counts them.
  void measure_experts() {
    const TensorPattern* const up = names_.find(WeightRole::kUpExperts);
    const TensorPattern* const both = names_.find(WeightRole::kGateUpExperts);
    const TensorPattern* const experts = up != nullptr ? up : both;
    if (experts == nullptr) return;
    measure("moe_intermediate_size", *experts, experts->experts > 0 ? 0 : 1, up != nullptr ? 1 : 2);
    if (!has("intermediate_size") && has("moe_intermediate_size")) {
      // No layer has a feed-forward of that width.
      set("intermediate_size", (*guessed_.json)["moe_intermediate_size"].get<std::uint64_t>(),
          "the width of experts");
    }
    if (experts->experts > 0)
      set("num_experts", static_cast<std::uint64_t>(experts->experts),
          fmt::format("tensors of experts 0 to {}", experts->experts - 1));
    else
      measure("num_experts", *experts, 0);
    if (const auto* shared = names_.find(WeightRole::kSharedUp))
      measure("shared_expert_intermediate_size", *shared, 0);
    else if (const auto* shared_both = names_.find(WeightRole::kSharedGateUp))
      measure("shared_expert_intermediate_size", *shared_both, 0, 2);
  }

  Result<std::uint64_t> number(std::string_view key) const {
    const ConfigReader reader(*guessed_.json, config_.source());
    DOPPLER_ASSIGN(const std::optional<std::uint64_t> value, reader.get_uint(key));
    return value.value_or(0);
  }

  // Heads and their width, of which tensors say the product only.
  Status measure_heads() {
    DOPPLER_ASSIGN(const std::uint64_t heads, number("num_attention_heads"));
    if (heads == 0) {
      return fail(
          ErrorCode::kMismatch,
          "The {} does not say how many heads attention has (num_attention_heads, n_head, …), and no tensor "
          "does. Add it.",
          config_.source());
    }
    const TensorPattern* const q = names_.find(WeightRole::kQ);
    const TensorPattern* const k = names_.find(WeightRole::kK);
    if (q != nullptr && k != nullptr && !q->first().shape.empty() && q->first().shape[0] % heads == 0) {
      const std::uint64_t dim = q->first().shape[0] / heads;
      measure("head_dim", *q, 0, heads);
      if (dim > 0 && k->first().shape[0] % dim == 0) measure("num_key_value_heads", *k, 0, dim);
      return {};
    }
    const TensorPattern* const qkv = names_.find(WeightRole::kQkv);
    if (qkv == nullptr || qkv->first().shape.empty()) {
      return fail(ErrorCode::kMismatch,
                  "The guess finds no tensors of queries, keys and values among the layers' names: {}.",
                  list_unplaced());
    }
    return measure_fused(*qkv, heads);
  }

  Status measure_fused(const TensorPattern& qkv, std::uint64_t heads) {
    const std::uint64_t rows = qkv.first().shape[0];
    DOPPLER_ASSIGN(std::uint64_t kv_heads, number("num_key_value_heads"));
    DOPPLER_ASSIGN(const std::uint64_t dim, number("head_dim"));
    if (kv_heads == 0 && dim != 0 && rows % dim == 0 && rows / dim > heads)
      kv_heads = (rows / dim - heads) / 2;
    if (kv_heads == 0) kv_heads = heads;
    if (kv_heads > heads || rows % (heads + 2 * kv_heads) != 0) {
      return fail(
          ErrorCode::kMismatch,
          "The tensor {} has {} rows, which are not those of {} heads of queries and twice {} of keys and "
          "values. Check that {} belongs to these weights.",
          printable(qkv.name), rows, heads, kv_heads, config_.source());
    }
    set("num_key_value_heads", kv_heads, fmt::format("{} has {} rows", printable(qkv.name), rows));
    set("head_dim", rows / (heads + 2 * kv_heads), fmt::format("{} has {} rows", printable(qkv.name), rows));
    return {};
  }

  std::string list_unplaced() const {
    std::vector<std::string> names;
    for (const TensorPattern* const pattern : names_.unplaced()) {
      if (names.size() < 5) names.push_back(printable(pattern->name));
    }
    return names.empty() ? "there are no others" : join(names, ", ");
  }

  // Older files count the dims that turn.
  Status take_rotary_dim() {
    if (has("partial_rotary_factor") || !config_.has("rotary_dim")) return {};
    DOPPLER_ASSIGN(const std::uint64_t turning, number("rotary_dim"));
    DOPPLER_ASSIGN(const std::uint64_t dim, number("head_dim"));
    if (turning == 0 || dim == 0 || turning > dim) return {};
    (*guessed_.json)["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(dim);
    guessed_.origins["partial_rotary_factor"] = {"rotary_dim", config_.where("rotary_dim")};
    return {};
  }

  const ConfigReader& config_;
  const TensorPatterns& patterns_;
  const GuessedNames& names_;
  GuessedConfig guessed_;
};

}  // namespace

Result<GuessedConfig> guess_config(const ConfigReader& config, const TensorPatterns& patterns,
                                   const GuessedNames& names) {
  if (!config.json().is_object()) {
    return fail(ErrorCode::kCorrupt, "The {} is not a JSON object. Correct it.", config.source());
  }
  return Translator(config, patterns, names).translate();
}

}  // namespace doppler
