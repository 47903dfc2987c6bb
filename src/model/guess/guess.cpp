#include "model/guess/guess.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/json.h"
#include "base/text.h"
#include "model/families/experts.h"
#include "model/families/rules.h"
#include "model/guess/guessed_config.h"
#include "model/guess/guessed_names.h"
#include "model/spec_builder.h"
#include "model/special_ids.h"

namespace doppler {
namespace {

using enum WeightRole;

class Guesser {
 public:
  Guesser(SpecBuilder& builder, const GuessedNames& names) : builder_(builder), names_(names) {}

  Status fill() {
    DOPPLER_TRY(fill_sizes());
    for (const GuessedName& name : names_.all())
      if (!name.reason.empty())
        builder_.note(fmt::format("role of {}", printable(name.pattern->name)),
                      std::string(weight_info(name.role).label), "guess: " + name.reason);
    DOPPLER_TRY(fill_norms());
    DOPPLER_TRY(fill_halves());
    DOPPLER_TRY(fill_experts());
    DOPPLER_TRY(fill_attention());
    DOPPLER_TRY(fill_multipliers());
    DOPPLER_TRY(fill_windows());
    DOPPLER_TRY(read_rope(builder_, RopeDefaults{.theta = 10000, .layout = rope_layout()}));
    return leave_ropes_out();
  }

 private:
  ModelSpec& spec() { return builder_.spec(); }
  const ConfigReader& config() const { return builder_.config(); }
  bool has(WeightRole role) const { return names_.has(role); }
  bool has_gate() const {
    return std::ranges::any_of(std::array{kGate, kGateUp, kGateExperts, kGateUpExperts},
                               [&](WeightRole role) { return has(role); });
  }

  template <typename Set>
  void set_layers(const Set& set) {
    for (LayerSpec& layer : spec().layers) set(layer);
  }
  // A flag that follows from a tensor's being there.
  bool note_presence(std::string path, WeightRole role) {
    const TensorPattern* const pattern = names_.find(role);
    builder_.note(std::move(path), pattern != nullptr ? "true" : "false",
                  pattern != nullptr
                      ? fmt::format("guess: {} is there", printable(pattern->name))
                      : fmt::format("guess: there is no tensor for {}", weight_info(role).label));
    return pattern != nullptr;
  }

  Status fill_sizes() {
    const bool gated = has_gate();
    DOPPLER_TRY(read_common(
        builder_,
        {.norm_eps_key = "norm_eps", .activation = gated ? "silu" : "gelu", .activation_key = "hidden_act"}));
    spec().fused_qkv = has(kQkv);
    spec().fused_gate_up = has(kGateUp);
    spec().head_bias = has(kHeadBias);
    const bool untied = has(kHead);
    if (untied != !spec().tied_head) {
      spec().tied_head = !untied;
      std::erase_if(spec().sources, [](const SpecSource& source) { return source.path == "head.tied"; });
      builder_.note(
          "head.tied", untied ? "false" : "true",
          untied ? "guess: a tensor of the head is there" : "guess: there is no tensor of the head");
    }
    if (const TensorPattern* const positions = names_.find(kPositionEmbedding);
        positions != nullptr && positions->first().shape.size() == 2) {
      spec().learned_positions = static_cast<std::uint32_t>(positions->first().shape[0]);
      builder_.note("learned_positions", fmt::format("{}", spec().learned_positions),
                    fmt::format("guess: {} is there", printable(positions->name)));
    }
    return {};
  }

  Status fill_norms() {
    NormSpec& norm = spec().norm;
    norm.bias = has(kFinalNormBias) || has(kAttnNormBias);
    const std::string key = config().name("norm_eps");
    const bool rms = key.contains("rms");
    const bool layer = norm.bias || (!rms && key.contains("layer"));
    norm.kind = layer ? NormKind::kLayer : NormKind::kRms;
    builder_.note(
        "norm.kind", std::string(name_of(norm.kind)),
        norm.bias ? "guess: norms have biases" : fmt::format("guess: epsilon is called {}", printable(key)));
    return fill_weight_offset();
  }

  // Some checkpoints store w - 1: then the weights lie about 0, or many are negative.
  Status fill_weight_offset() {
    if (config().has("norm_weight_offset")) {
      DOPPLER_ASSIGN(spec().norm.weight_offset,
                     builder_.get_number("norm.weight_offset", "norm_weight_offset", 0));
      return {};
    }
    DOPPLER_ASSIGN(const std::vector<float> values, weights_of_norms());
    if (values.empty()) return {};
    double sum = 0;
    std::size_t negative = 0;
    for (const float value : values) sum += value, negative += value < 0;
    const double count = static_cast<double>(values.size());
    // Weights of norms begin at 1, or at 0 where 1 is added, and training hardly moves any across zero.
    constexpr double kNearZero = 0.5, kManyNegative = 0.01;
    const double mean = sum / count, share = static_cast<double>(negative) / count;
    spec().norm.weight_offset = mean < kNearZero || share > kManyNegative ? 1 : 0;
    builder_.note("norm.weight_offset", fmt::format("{}", spec().norm.weight_offset),
                  fmt::format("guess: the weights of norms have a mean of {:.2f}, and {:.1f} % are negative",
                              mean, share * 100));
    return {};
  }

  // Of all layers.
  Result<std::vector<float>> weights_of_norms() const {
    std::vector<float> values;
    for (const GuessedName& name : names_.all()) {
      if (weight_info(name.role).kind != WeightKind::kNorm) continue;
      for (const TensorView* const tensor : name.pattern->tensors) {
        const std::size_t begin = values.size();
        values.resize(begin + element_count(tensor->shape).value_or(0));
        DOPPLER_TRY(decode_f32(*tensor, 0, std::span(values).subspan(begin)));
      }
    }
    return values;
  }

  Status fill_halves() {
    const bool attn_norm = note_presence("attn_norm", kAttnNorm),
               ffn_norm = note_presence("ffn_norm", kFfnNorm);
    const bool post_attn = note_presence("post_attn_norm", kPostAttnNorm);
    const bool post_ffn = note_presence("post_ffn_norm", kPostFfnNorm);
    const bool gated = has_gate();
    builder_.note("ffn.gated", gated ? "true" : "false",
                  gated ? "guess: a tensor of the gate is there" : "guess: there is no tensor of a gate");
    const bool bias = note_presence("ffn.bias", kUpBias);
    DOPPLER_ASSIGN(const bool parallel, is_parallel(attn_norm, ffn_norm));
    set_layers([&](LayerSpec& layer) {
      layer.attn_norm = attn_norm, layer.ffn_norm = ffn_norm;
      layer.post_attn_norm = post_attn, layer.post_ffn_norm = post_ffn;
      layer.ffn.gated = gated, layer.ffn.bias = bias;
      layer.parallel = parallel;
    });
    return {};
  }

  Result<bool> is_parallel(bool attn_norm, bool ffn_norm) {
    for (const std::string_view key :
         {"use_parallel_residual", "parallel_attn", "parallel_residual", "parallel_block"}) {
      DOPPLER_ASSIGN(const std::optional<bool> says, config().get_bool(key));
      if (!says) continue;
      builder_.note("parallel", *says ? "true" : "false", config().where(key));
      return *says;
    }
    const bool post = has(kPostAttnNorm) || has(kPostFfnNorm);
    const bool one = attn_norm && !ffn_norm && !post;
    builder_.note(
        "parallel", one ? "true" : "false",
        one ? "guess: a layer has one norm, which both halves read" : "guess: both halves have norms");
    return one;
  }

  // Which layers have experts the names say; how tokens are sent to them mostly the keys.
  Status fill_experts() {
    const TensorPattern* const router = names_.find(kRouter);
    if (router == nullptr) return {};
    DOPPLER_ASSIGN(const RouterSpec rule, guess_router());
    const auto has_experts = [&](std::size_t layer) {
      return std::ranges::find(router->layers, static_cast<int>(layer)) != router->layers.end();
    };
    DOPPLER_TRY(read_experts(builder_,
                             {.experts = {},
                              .top_k = {},
                              .width = {},
                              .router = rule,
                              .reads_normalise = config().has("norm_topk_prob"),
                              .reads_scale = true,
                              .reads_groups = true},
                             has_experts));
    spec().fused_experts = has(kGateUpExperts);
    const bool expert_bias = note_presence("ffn.expert_bias", kUpExpertsBias);
    for (LayerSpec& layer : spec().layers)
      if (layer.ffn.experts > 0) layer.ffn.expert_bias = expert_bias;
    return fill_shared_expert();
  }

  Result<RouterSpec> guess_router() {
    RouterSpec router;
    router.bias = note_presence("ffn.router.bias", kRouterBias);
    router.correction = note_presence("ffn.router.correction", kRouterCorrection);
    // A sum of two is what those with a correction take (DeepSeek V3); those before took the best.
    router.group_best = router.correction ? 2 : 1;
    DOPPLER_ASSIGN(const std::optional<std::string> score, config().get_string("scoring_func"));
    const bool logistic = score ? ascii_lower(*score).contains("sigmoid") : router.correction;
    if (score && !logistic && !ascii_lower(*score).contains("softmax")) {
      return fail(ErrorCode::kUnsupported, "The guess knows no score of experts called {} ({}).",
                  printable(*score), config().where("scoring_func"));
    }
    router.score = logistic ? RouterScore::kSigmoid : RouterScore::kSoftmax;
    builder_.note("ffn.router.score", std::string(name_of(router.score)),
                  score      ? config().where("scoring_func")
                  : logistic ? "guess: scores with a correction are logistic ones"
                             : "guess: what most routers without a correction have; no key says it");
    // The weights of several experts are made to sum to 1 where no key says otherwise (Mixtral).
    router.normalise = true;
    if (!config().has("norm_topk_prob"))
      builder_.note("ffn.router.normalise", "true", "guess: what most have; no key says it");
    return router;
  }

  Status fill_shared_expert() {
    spec().fused_shared = has(kSharedGateUp);
    if (!has(kSharedUp) && !has(kSharedGateUp)) return {};
    DOPPLER_ASSIGN(const std::uint32_t width,
                   builder_.get_uint("ffn.shared_width", "shared_expert_intermediate_size", std::nullopt));
    set_shared_expert(builder_, width, has(kSharedGate), config().where("shared_expert_intermediate_size"));
    return {};
  }

  Status fill_attention() {
    const bool o_bias = note_presence("attention.o_bias", kOBias);
    const bool qkv_bias = note_presence("attention.qkv_bias", spec().fused_qkv ? kQkvBias : kQBias);
    const TensorPattern* const norm = names_.find(kQNorm);
    const bool qk_norm = note_presence("attention.qk_norm", kQNorm) && has(kKNorm);
    NormSpan span = NormSpan::kHead;
    if (qk_norm) {
      const Shape& shape = norm->first().shape;
      const std::uint64_t count = element_count(shape).value_or(0);
      const bool whole = count != spec().layers.front().attention.head_dim;
      span = !whole ? NormSpan::kHead : shape.size() == 2 ? NormSpan::kOwnHead : NormSpan::kProjection;
      builder_.note("attention.qk_norm_span", std::string(name_of(span)),
                    fmt::format("guess: {} is {}", printable(norm->name), describe_shape(shape)));
    }
    DOPPLER_ASSIGN(const bool after_rope,
                   builder_.get_bool("attention.qk_norm_after_rope", "qk_norm_after_rope", false));
    set_layers([&](LayerSpec& layer) {
      AttentionSpec& attention = layer.attention;
      attention.qk_norm_after_rope = after_rope;
      attention.o_bias = o_bias, attention.qkv_bias = qkv_bias;
      attention.qk_norm = qk_norm, attention.qk_norm_span = span;
    });
    return {};
  }

  Status fill_multipliers() {
    DOPPLER_TRY(fill_embedding_scale());
    DOPPLER_ASSIGN(spec().residual_scale, builder_.get_number("residual_scale", "residual_multiplier", 1));
    DOPPLER_ASSIGN(spec().logit_scale, builder_.get_number("logit_scale", "logit_scale", 1));
    if (config().has("logits_scaling")) {
      DOPPLER_ASSIGN(const double divisor, builder_.get_positive("logit_scale", "logits_scaling", 1));
      spec().logit_scale = 1 / divisor;
    }
    DOPPLER_ASSIGN(spec().final_softcap, builder_.get_number("final_softcap", "final_logit_softcapping", 0));
    DOPPLER_ASSIGN(const double softcap,
                   builder_.get_number("attention.softcap", "attn_logit_softcapping", 0));
    set_layers([&](LayerSpec& layer) { layer.attention.softcap = softcap; });
    if (config().has("attention_multiplier")) {
      DOPPLER_ASSIGN(const std::optional<double> scale, config().get_number("attention_multiplier"));
      set_attention_scale(builder_, *scale, config().where("attention_multiplier"));
    } else if (config().has("query_pre_attn_scalar")) {
      DOPPLER_ASSIGN(const double scalar,
                     builder_.get_positive("query_pre_attn_scalar", "query_pre_attn_scalar", 1));
      set_attention_scale(builder_, 1 / std::sqrt(scalar), config().where("query_pre_attn_scalar"));
    }
    return {};
  }

  // Gemma's rule stands in no key: the embedding times the root of its width. What else marks that line of
  // models is found together in no other.
  Status fill_embedding_scale() {
    const NormSpec& norm = spec().norm;
    const FfnSpec& ffn = spec().layers.front().ffn;
    const bool gelu = ffn.activation == Activation::kGeluTanh || ffn.activation == Activation::kGeluErf;
    const bool as_gemma =
        norm.kind == NormKind::kRms && norm.weight_offset == 1 && spec().tied_head && ffn.gated && gelu;
    if (config().has("embedding_multiplier") || !as_gemma) {
      DOPPLER_ASSIGN(spec().embedding_scale,
                     builder_.get_number("embedding_scale", "embedding_multiplier", 1));
      return {};
    }
    spec().embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec().hidden)));
    builder_.note(
        "embedding_scale", fmt::format("{}", spec().embedding_scale),
        "guess: sqrt(hidden_size), as Gemma has it with norms of w - 1, a tied head and a gated GELU");
    return {};
  }

  Status fill_windows() {
    DOPPLER_ASSIGN(const std::optional<bool> used, config().get_bool("use_sliding_window"));
    const bool window = config().has("sliding_window") && used.value_or(true);
    if (config().has("layer_types") || !window) {
      return read_layer_types(
          builder_, std::nullopt, +[](std::uint32_t, std::uint32_t) { return true; }, 1,
          window ? "guess: no layer_types" : "guess: no sliding_window in use");
    }
    DOPPLER_ASSIGN(const std::optional<std::uint64_t> period, config().get_uint("sliding_window_pattern"));
    if (period && *period > 0) {
      return read_layer_types(builder_, std::nullopt, is_last_of_period, static_cast<std::uint32_t>(*period),
                              "guess: the last layer of each sliding_window_pattern attends fully");
    }
    return read_window_of_all_layers(builder_);
  }

  // Neither keys nor tensors say which two dims make a pair, but for a key that few files have.
  RopeLayout rope_layout() {
    for (const std::string_view key :
         {"rope_interleave", "rope_interleaved", "use_interleaved_rope", "rotary_interleaved"}) {
      const auto says = config().get_bool(key);
      if (!says || !*says) continue;
      builder_.note("attention.rope.layout", **says ? "interleaved" : "half", config().where(key));
      return **says ? RopeLayout::kInterleaved : RopeLayout::kHalf;
    }
    builder_.note("attention.rope.layout", "half", "guess: what most decoders have; no key says it");
    return RopeLayout::kHalf;
  }

  Status leave_ropes_out() {
    if (spec().learned_positions > 0 && !config().has("rope_theta") && !config().has("rope_parameters")) {
      leave_rope_out(builder_, [](std::size_t) { return false; }, "guess: positions are learned");
      return {};
    }
    DOPPLER_ASSIGN(const auto flags, config().get_uints("no_rope_layers"));
    if (!flags || flags->size() != spec().layers.size()) return {};
    leave_rope_out(
        builder_, [&](std::size_t layer) { return (*flags)[layer] != 0; }, config().where("no_rope_layers"));
    return {};
  }

  SpecBuilder& builder_;
  const GuessedNames& names_;
};

Status refuse_unplaced(const GuessedNames& names) {
  if (names.unplaced().empty()) return {};
  std::vector<std::string> list;
  for (const TensorPattern* const pattern : names.unplaced()) {
    if (list.size() == 4) break;
    list.push_back(fmt::format("{} ({})", printable(pattern->name), describe_shape(pattern->first().shape)));
  }
  return fail(
      ErrorCode::kMismatch,
      "The guess has no purpose for {} of {} kinds of tensors, among them {}. This decoder does something "
      "that no table of Doppler's says: docs/porting.md tells how to add a family.",
      names.unplaced().size(), names.unplaced().size() + names.all().size(), join(list, ", "));
}

}  // namespace

Result<GuessedModel> guess_model(const Json& config, const Json* generation_config,
                                 const TensorStore& tensors, std::string_view source) {
  const ConfigReader top(config, std::string(source));
  DOPPLER_ASSIGN(const std::optional<ConfigReader> text, top.get_object("text_config"));
  const ConfigReader& described = text ? *text : top;
  DOPPLER_ASSIGN(const TensorPatterns patterns, find_patterns(tensors));
  const GuessedNames names = guess_names(patterns);
  DOPPLER_ASSIGN(const GuessedConfig guessed, guess_config(described, patterns, names));
  GuessedModel model;
  const ConfigReader reader(*guessed.json, described.source(), &guessed.origins);
  SpecBuilder builder(reader, model.spec, std::string(kGuessFamily));
  DOPPLER_TRY(refuse_unplaced(names));
  DOPPLER_TRY(Guesser(builder, names).fill());
  std::vector<ConfigReader> readers;
  if (generation_config != nullptr) readers.emplace_back(*generation_config, "generation_config.json");
  readers.push_back(described);
  if (text) readers.push_back(top);
  DOPPLER_TRY(read_special_ids(readers, model.spec));
  const std::vector<WeightName> own = names.weight_names();
  DOPPLER_ASSIGN(model.weights,
                 bind_weights(model.spec, {.style = NameStyle::kHuggingFace, .own = own}, tensors));
  return model;
}

}  // namespace doppler
