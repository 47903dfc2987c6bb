#include "model/guess/guessed_names.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace doppler {
namespace {

using enum WeightRole;

// Where in a decoder a module stands.
enum class Place : std::uint8_t { kModel, kAttention, kFeedForward, kExperts, kShared };

// The last parts of modules' names, in the spellings of published checkpoints: a module and its bias.
struct Spelling {
  WeightRole role, bias;
  Place place;
  std::array<std::string_view, 12> leaves;
};
// A role that occurs twice goes to the first row that finds its tensor.
constexpr std::array kSpellings = {
    Spelling{kTokenEmbedding,
             kCount,
             Place::kModel,
             {"embed_tokens", "wte", "word_embeddings", "tok_embeddings", "embed_in", "token_embedding",
              "embeddings", "embedding", "word_embedding", "tok_embedding", "tokens_embed", "embed"}},
    Spelling{kPositionEmbedding,
             kCount,
             Place::kModel,
             {"wpe", "embed_positions", "position_embeddings", "position_embedding", "pos_emb", "pos_embed"}},
    Spelling{kHead,
             kHeadBias,
             Place::kModel,
             {"lm_head", "embed_out", "output", "head", "output_layer", "unembed", "lm_output", "ff_out"}},
    Spelling{kQkv,
             kQkvBias,
             Place::kAttention,
             {"qkv_proj", "qkv", "query_key_value", "c_attn", "wqkv", "w_pack", "att_proj", "attn_qkv",
              "in_proj", "to_qkv", "qkv_linear", "qkv_layer"}},
    Spelling{kQ,
             kQBias,
             Place::kAttention,
             {"q_proj", "query", "wq", "q", "q_lin", "to_q", "query_proj", "attn_q", "linear_q", "w_q"}},
    Spelling{kK,
             kKBias,
             Place::kAttention,
             {"k_proj", "key", "wk", "k", "k_lin", "to_k", "key_proj", "attn_k", "linear_k", "w_k"}},
    Spelling{kV,
             kVBias,
             Place::kAttention,
             {"v_proj", "value", "wv", "v", "v_lin", "to_v", "value_proj", "attn_v", "linear_v", "w_v"}},
    Spelling{kO,
             kOBias,
             Place::kAttention,
             {"o_proj", "out_proj", "wo", "o", "dense", "c_proj", "out", "out_lin", "attn_out", "output_proj",
              "proj", "to_out"}},
    Spelling{
        kQNorm,
        kCount,
        Place::kAttention,
        {"q_norm", "q_layernorm", "query_layernorm", "query_norm", "norm_q", "q_layer_norm", "q_ln", "ln_q"}},
    Spelling{
        kKNorm,
        kCount,
        Place::kAttention,
        {"k_norm", "k_layernorm", "key_layernorm", "key_norm", "norm_k", "k_layer_norm", "k_ln", "ln_k"}},
    Spelling{kGateUp,
             kCount,
             Place::kFeedForward,
             {"gate_up_proj", "gate_up", "gate_and_up_proj", "w12", "w13", "input_linear", "gate_up_linear"}},
    Spelling{kGate,
             kGateBias,
             Place::kFeedForward,
             {"gate_proj", "gate", "wi_0", "w_gate", "linear_gate", "gate_linear", "ffn_gate"}},
    Spelling{kUp,
             kUpBias,
             Place::kFeedForward,
             {"up_proj", "up", "wi_1", "w_up", "fc1", "c_fc", "fc_in", "dense_h_to_4h", "linear_1", "lin1",
              "linear_in", "ffn_up"}},
    Spelling{kDown,
             kDownBias,
             Place::kFeedForward,
             {"down_proj", "down", "w_down", "fc2", "c_proj", "fc_out", "dense_4h_to_h", "linear_2", "lin2",
              "linear_out", "output_linear", "ffn_down"}},
    Spelling{kGateUpExperts,
             kCount,
             Place::kExperts,
             {"gate_up_proj", "gate_up", "gate_and_up_proj", "w12", "w13", "input_linear"}},
    Spelling{kGateExperts, kGateExpertsBias, Place::kExperts, {"gate_proj", "gate", "w_gate", "linear_gate"}},
    Spelling{kUpExperts, kUpExpertsBias, Place::kExperts, {"up_proj", "up", "w_up", "fc1", "linear_1"}},
    Spelling{kDownExperts,
             kDownExpertsBias,
             Place::kExperts,
             {"down_proj", "down", "w_down", "fc2", "linear_2", "output_linear"}},
    Spelling{kSharedGateUp,
             kCount,
             Place::kShared,
             {"gate_up_proj", "gate_up", "gate_and_up_proj", "w12", "w13", "input_linear"}},
    Spelling{
        kSharedGateProj, kSharedGateProjBias, Place::kShared, {"gate_proj", "gate", "w_gate", "linear_gate"}},
    Spelling{kSharedUp, kSharedUpBias, Place::kShared, {"up_proj", "up", "w_up", "fc1", "linear_1"}},
    Spelling{kSharedDown,
             kSharedDownBias,
             Place::kShared,
             {"down_proj", "down", "w_down", "fc2", "linear_2", "output_linear"}},
    Spelling{kSharedGate, kCount, Place::kFeedForward, {"shared_expert_gate", "shared_experts_gate"}},
};
// Llama's own names: w1 is the gate and w3 goes up where there are three, w1 goes up where there are two.
struct NumberedFfn {
  Place place;
  WeightRole gate, gate_bias, up, up_bias, down, down_bias;
};
constexpr std::array kNumbered = {
    NumberedFfn{Place::kFeedForward, kGate, kGateBias, kUp, kUpBias, kDown, kDownBias},
    NumberedFfn{Place::kExperts, kGateExperts, kGateExpertsBias, kUpExperts, kUpExpertsBias, kDownExperts,
                kDownExpertsBias},
    NumberedFfn{Place::kShared, kSharedGateProj, kSharedGateProjBias, kSharedUp, kSharedUpBias, kSharedDown,
                kSharedDownBias},
};

bool has_word(std::span<const std::string> words, std::initializer_list<std::string_view> any) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return std::ranges::find(any, word) != any.end(); });
}
bool is_of_attention(std::span<const std::string> words) {
  return has_word(words, {"attn", "attention", "self", "selfattention", "att", "mixer"});
}
bool is_of_ffn(std::span<const std::string> words) {
  return has_word(words, {"mlp", "ffn", "ff", "ffw", "feedforward", "feed", "forward", "ffwd"});
}

struct Module {
  const TensorPattern* pattern;
  std::string leaf;
  std::vector<std::string> words, outer;  // of the whole module, and of what the leaf stands in
  bool is_bias;
  bool taken = false;
};

bool is_norm(const Module& module) {
  const bool named =
      has_word(module.words, {"norm", "layernorm", "ln", "rmsnorm", "ln1", "ln2", "norm1", "norm2"}) ||
      module.leaf.starts_with("layernorm") || module.leaf.ends_with("norm");
  // Norms of heads may be stored as [heads, head_dim].
  return named && module.pattern->first().shape.size() <= 2;
}

std::vector<Module> modules_of(const TensorPatterns& patterns) {
  std::vector<Module> modules;
  for (const TensorPattern& pattern : patterns.patterns) {
    // A parameter with a name of its own is as good as a module: "mlp.experts.gate_up_proj".
    const bool of_module = pattern.kind.empty() || pattern.kind == "weight" || pattern.kind == "bias";
    const std::string name = of_module                ? pattern.module
                             : pattern.module.empty() ? pattern.kind
                                                      : fmt::format("{}.{}", pattern.module, pattern.kind);
    const std::size_t dot = name.rfind('.');
    const bool nested = dot != std::string::npos;
    Module module{
        .pattern = &pattern,
        .leaf = ascii_lower(nested ? std::string_view(name).substr(dot + 1) : name),
        .words = words_of(name),
        .outer = nested ? words_of(std::string_view(name).substr(0, dot)) : std::vector<std::string>(),
        .is_bias = pattern.kind == "bias"};
    modules.push_back(std::move(module));
  }
  return modules;
}

// Each expert has a tensor of its own, or all of a layer are one.
bool is_of_experts(const Module& module) {
  return module.pattern->experts > 0 || module.pattern->first().shape.size() == 3;
}

bool stands_at(const Module& module, Place place) {
  if (place == Place::kModel) return !module.pattern->per_layer();
  if (!module.pattern->per_layer()) return false;
  const bool experts = is_of_experts(module), shared = !experts && has_word(module.outer, {"shared"});
  if (experts || shared || place == Place::kExperts || place == Place::kShared)
    return experts ? place == Place::kExperts : shared && place == Place::kShared;
  // Files that put everything flat into the layer say it in the leaf, or nowhere.
  const std::span<const std::string> where = module.outer.empty() ? module.words : module.outer;
  const bool attention = is_of_attention(where), ffn = is_of_ffn(where);
  if (attention == ffn) return module.outer.empty() || !attention;
  return attention == (place == Place::kAttention);
}

// The four norms of a layer.
struct NormPlace {
  WeightRole role, bias;
};
constexpr NormPlace kBeforeAttention = {kAttnNorm, kAttnNormBias};
constexpr NormPlace kBeforeFfn = {kFfnNorm, kFfnNormBias};
constexpr NormPlace kAfterAttention = {kPostAttnNorm, kCount};
constexpr NormPlace kAfterFfn = {kPostFfnNorm, kCount};

class Placer {
 public:
  explicit Placer(std::vector<Module>& modules) : modules_(modules) {}

  void place_spellings() {
    for (const Spelling& spelling : kSpellings) {
      for (const std::string_view leaf : spelling.leaves) {
        if (leaf.empty() || has(spelling.role)) break;
        for (Module& module : modules_) {
          if (module.taken || module.is_bias || module.leaf != leaf || !stands_at(module, spelling.place))
            continue;
          if (is_norm(module) != is_norm_role(spelling.role)) continue;
          take(module, spelling.role);
          take_bias(module, spelling.bias);
          break;
        }
      }
    }
    for (const NumberedFfn& names : kNumbered) place_numbered(names);
  }

  // What sends a token to experts has a row for each of them. It is often called a gate, as a part of a
  // feed-forward is, and goes first.
  void place_router() {
    const auto experts = std::ranges::find_if(modules_, is_of_experts);
    if (experts == modules_.end()) return;
    const TensorPattern& pattern = *experts->pattern;
    const auto count =
        pattern.experts > 0 ? static_cast<std::uint64_t>(pattern.experts) : pattern.first().shape.front();
    for (Module& module : modules_) {
      const Shape& shape = module.pattern->first().shape;
      if (module.taken || module.is_bias || !module.pattern->per_layer() || is_of_experts(module) ||
          is_norm(module))
        continue;
      if (shape.size() == 1 && shape[0] == count && has_word(module.words, {"correction", "bias"}))
        take(module, kRouterCorrection, fmt::format("a value for each of {} experts", count));
      else if (shape.size() == 2 && shape[0] == count && !has(kRouter) &&
               has_word(module.words, {"router", "gate", "gating", "wg"}))
        put(module, kRouter, kRouterBias, fmt::format("a row for each of {} experts", count));
    }
  }

  void place_norms() {
    std::vector<Module*> norms;
    for (Module& module : modules_) {
      if (module.taken || module.is_bias || !is_norm(module)) continue;
      if (module.pattern->per_layer())
        norms.push_back(&module);
      else if (!has(kFinalNorm))
        put(module, kFinalNorm, kFinalNormBias, {});
    }
    std::vector<Module*> after_attention;  // or before the feed-forward: the name has both meanings
    for (Module* const norm : norms) place_norm(*norm, norms.size() == 1, after_attention);
    for (Module* const norm : after_attention) place_ambiguous(*norm);
  }

  std::vector<GuessedName> take_names() { return std::move(names_); }

 private:
  static bool is_norm_role(WeightRole role) { return weight_info(role).kind == WeightKind::kNorm; }
  bool has(WeightRole role) const {
    return std::ranges::find(names_, role, &GuessedName::role) != names_.end();
  }

  Module* leaf(std::string_view name, Place place) {
    const auto found = std::ranges::find_if(modules_, [&](const Module& module) {
      return !module.taken && !module.is_bias && module.leaf == name && stands_at(module, place);
    });
    return found == modules_.end() ? nullptr : &*found;
  }

  void place_numbered(const NumberedFfn& names) {
    Module* const one = leaf("w1", names.place);
    Module* const two = leaf("w2", names.place);
    Module* const three = leaf("w3", names.place);
    if (one == nullptr || two == nullptr) return;
    if (three != nullptr) {
      put(*one, names.gate, names.gate_bias, "w1 beside w3 is the gate");
      put(*three, names.up, names.up_bias, {});
    } else {
      put(*one, names.up, names.up_bias, "w1 without w3 goes up");
    }
    put(*two, names.down, names.down_bias, {});
  }

  void take(Module& module, WeightRole role, std::string reason = {}) {
    module.taken = true;
    names_.push_back({role, module.pattern, std::move(reason)});
  }
  void take_bias(const Module& of, WeightRole role) {
    if (role == kCount) return;
    for (Module& module : modules_) {
      if (module.is_bias && !module.taken && module.pattern->module == of.pattern->module &&
          module.pattern->per_layer() == of.pattern->per_layer())
        take(module, role);
    }
  }
  void put(Module& module, WeightRole role, WeightRole bias, std::string reason) {
    take(module, role, std::move(reason));
    take_bias(module, bias);
  }
  void put(Module& module, const NormPlace& place, std::string reason) {
    if (!has(place.role)) put(module, place.role, place.bias, std::move(reason));
  }

  void place_norm(Module& norm, bool only, std::vector<Module*>& after_attention) {
    const bool post = has_word(norm.words, {"post"}), attention = is_of_attention(norm.words);
    const bool ffn = is_of_ffn(norm.words);
    if (only) return put(norm, kBeforeAttention, "the layer's only norm");
    if (post && ffn) return put(norm, kAfterFfn, {});
    if (post && has_word(norm.words, {"self"})) return put(norm, kAfterAttention, {});
    if (post && attention) return after_attention.push_back(&norm);
    if (ffn || has_word(norm.words, {"2", "ln2", "norm2", "layernorm2"})) return put(norm, kBeforeFfn, {});
    if (attention || has_word(norm.words, {"input", "1", "ln1", "norm1", "layernorm1", "operator", "pre"}))
      put(norm, kBeforeAttention, {});
  }

  void place_ambiguous(Module& norm) {
    if (has(kFfnNorm)) return put(norm, kAfterAttention, "another norm stands before the feed-forward");
    if (!has(kAttnNorm) && has(kPostFfnNorm))
      return put(norm, kAfterAttention,
                 "the layer has no norm before attention, but one after the feed-forward");
    put(norm, kBeforeFfn, "no other norm stands before the feed-forward");
  }

  std::vector<Module>& modules_;
  std::vector<GuessedName> names_;
};

}  // namespace

const TensorPattern* GuessedNames::find(WeightRole role) const {
  const auto found = std::ranges::find(names_, role, &GuessedName::role);
  return found == names_.end() ? nullptr : found->pattern;
}

std::vector<WeightName> GuessedNames::weight_names() const {
  std::vector<WeightName> own;
  for (const GuessedName& name : names_) own.push_back({name.role, name.pattern->name});
  return own;
}

GuessedNames guess_names(const TensorPatterns& patterns) {
  std::vector<Module> modules = modules_of(patterns);
  Placer placer(modules);
  placer.place_router();
  placer.place_spellings();
  placer.place_norms();
  GuessedNames guessed;
  guessed.names_ = placer.take_names();
  for (const Module& module : modules) {
    if (!module.taken) guessed.unplaced_.push_back(module.pattern);
  }
  return guessed;
}

}  // namespace doppler
