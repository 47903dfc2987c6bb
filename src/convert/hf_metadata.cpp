#include "convert/hf_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "model/arrange.h"

namespace doppler::convert {
namespace {

// Keys that the converter writes for some architectures only, and the values that readers assume when a key
// is absent.
struct Habits {
  std::string_view family;
  bool rope_dimension = false;    // writes rope.dimension_count always
  bool rope_base = true;          // writes rope.freq_base even where it is the default of 10000
  bool original_context = false;  // writes rope.scaling.original_context_length always
  bool window_always = false;     // 0 stands for no window
  double full_theta = 0;          // of layers that attend fully, where a model has none; 0: as the others
  std::uint32_t period = 0;     // readers' rule: the last layer of each so many attends fully; 1: none slides
  bool pattern_always = false;  // writes the pattern of windows even where it follows the rule
  bool logit_scale = false;     // writes what logits are multiplied by
  bool multipliers = false;     // Granite's: of embedding, residual branches and scores, and logits' divisor
  bool kinds_by_heads = false;  // layers that do not attend have no heads of keys
  bool kinds_by_interval = false;  // every so many layers attend, the others are recurrent
  bool rope_flag = false;          // says whether queries and keys turn
  bool text_sections = false;      // writes rotary sections, which for text change nothing
  bool parallel_flag = false;      // says whether the halves lie side by side
  bool scale_by_rule = false;      // readers know the scale of scores
  bool two_widths = false;         // heads of sliding layers have keys of their own
  bool shared_layers = false;      // layers that read another's keys, and per-layer embeddings, have keys
  bool routing_by_rule = false;    // readers know how experts are weighed, and the shared one's width
  bool experts_by_step = false;    // the last of every so many layers has experts
  std::string_view data_layout = {};
};
constexpr std::array kHabits = {
    Habits{.family = "llama", .rope_dimension = true, .period = 1},
    Habits{.family = "mistral", .rope_dimension = true},
    Habits{.family = "ministral3", .rope_dimension = true, .period = 1},
    Habits{.family = "qwen2", .period = 1},
    Habits{.family = "qwen3", .period = 1},
    Habits{.family = "phi3", .rope_dimension = true, .original_context = true, .window_always = true},
    Habits{.family = "gemma", .rope_base = false, .period = 1},
    Habits{.family = "gemma2", .rope_base = false, .period = 2},
    Habits{.family = "gemma3", .full_theta = 1000000, .period = 6},
    Habits{.family = "gemma3n",
           .full_theta = 1000000,
           .period = 5,
           .pattern_always = true,
           .scale_by_rule = true,
           .shared_layers = true},
    Habits{.family = "gemma4",
           .rope_dimension = true,
           .pattern_always = true,
           .scale_by_rule = true,
           .two_widths = true,
           .shared_layers = true},
    Habits{.family = "deepseek_v2", .rope_dimension = true, .period = 1, .scale_by_rule = true},
    Habits{.family = "deepseek_v3", .rope_dimension = true, .period = 1, .scale_by_rule = true},
    Habits{.family = "mistral4", .rope_dimension = true, .period = 1, .scale_by_rule = true},
    Habits{.family = "glm4_moe_lite", .rope_dimension = true, .period = 1, .scale_by_rule = true},
    Habits{.family = "llama4_text",
           .rope_dimension = true,
           .window_always = true,
           .period = 1,
           .routing_by_rule = true,
           .experts_by_step = true},
    Habits{.family = "olmo2", .period = 1},
    Habits{.family = "olmo3", .period = 4, .pattern_always = true},
    Habits{.family = "granite", .rope_dimension = true, .period = 1, .multipliers = true},
    Habits{.family = "smollm3", .rope_dimension = true, .period = 1},
    Habits{.family = "glm4", .period = 1},
    Habits{.family = "cohere", .period = 1, .logit_scale = true},
    Habits{.family = "cohere2", .rope_dimension = true, .period = 4, .logit_scale = true},
    Habits{.family = "exaone4", .period = 4, .pattern_always = true},
    Habits{.family = "phi", .rope_dimension = true, .rope_base = false, .period = 1},
    Habits{.family = "starcoder2"},
    Habits{
        .family = "stablelm", .rope_dimension = true, .rope_base = false, .period = 1, .parallel_flag = true},
    Habits{.family = "seed_oss", .period = 1},
    Habits{.family = "ernie4_5", .period = 1},
    Habits{.family = "hunyuan_v1_dense", .period = 1},
    Habits{.family = "nemotron", .rope_dimension = true, .period = 1},
    Habits{.family = "apertus", .rope_dimension = true, .period = 1},
    Habits{.family = "gpt2", .rope_base = false, .period = 1},
    Habits{
        .family = "gpt_neox", .rope_dimension = true, .rope_base = false, .period = 1, .parallel_flag = true},
    Habits{.family = "falcon", .rope_base = false, .period = 1, .data_layout = "jploski"},
    Habits{.family = "gpt_oss", .period = 2},
    Habits{.family = "lfm2", .period = 1, .kinds_by_heads = true},
    Habits{.family = "lfm2_moe", .period = 1, .kinds_by_heads = true},
    Habits{.family = "qwen3_next", .rope_dimension = true, .period = 1, .kinds_by_interval = true},
    Habits{.family = "qwen3_5",
           .rope_dimension = true,
           .period = 1,
           .kinds_by_interval = true,
           .text_sections = true},
    Habits{.family = "qwen3_5_moe",
           .rope_dimension = true,
           .period = 1,
           .kinds_by_interval = true,
           .text_sections = true},
    Habits{.family = "granitemoe", .rope_dimension = true, .period = 1, .multipliers = true},
    Habits{.family = "granitemoehybrid",
           .rope_dimension = true,
           .period = 1,
           .multipliers = true,
           .kinds_by_heads = true,
           .rope_flag = true},
    Habits{.family = "mamba", .period = 1},
    Habits{.family = "mamba2", .period = 1},
    Habits{.family = "falcon_h1", .period = 1},
    Habits{.family = "nemotron_h", .period = 1, .kinds_by_heads = true},
    Habits{.family = "jamba", .period = 1, .kinds_by_heads = true},
};

const Habits& habits_of(std::string_view family) {
  const auto found = std::ranges::find(kHabits, family, &Habits::family);
  return found == kHabits.end() ? kHabits[0] : *found;
}

bool slides(const LayerSpec& layer) {
  return layer.attention.kind == AttentionKind::kSliding;
}

class MetadataWriter {
 public:
  MetadataWriter(const ModelSpec& spec, const HfFacts& facts)
      : spec_(spec),
        facts_(facts),
        habits_(habits_of(spec.family)),
        attention_(main_attention(spec, habits_)) {}

  std::vector<MetadataEntry> run() {
    add_text("general.architecture", facts_.architecture);
    add_text("general.type", "model");
    add_text("general.name", facts_.name);
    add_text("general.size_label", size_label(facts_.parameters));
    add_sizes();
    add_experts();
    add_recurrent();
    add_rope();
    add_scaling();
    add_windows();
    add_own();
    // Where no key says otherwise, readers scale by the head size.
    if (attention_.heads == 0) return std::move(out_);
    if (!habits_.scale_by_rule &&
        (habits_.multipliers ||
         std::abs(attention_.scale * std::sqrt(static_cast<double>(attention_.head_dim)) - 1) > 1e-6))
      add_number("attention.scale", attention_.scale);
    const bool gemma2 = spec_.family == "gemma2";  // whose readers take 50 and 30 when the keys are absent
    if (gemma2 || attention_.softcap > 0) add_number("attn_logit_softcapping", attention_.softcap);
    if (gemma2 || spec_.final_softcap > 0) add_number("final_logit_softcapping", spec_.final_softcap);
    return std::move(out_);
  }

 private:
  void add_text(std::string key, std::string_view value) {
    out_.push_back({std::move(key), std::string(value)});
  }
  std::string own(std::string_view key) const { return fmt::format("{}.{}", facts_.architecture, key); }
  void add_count(std::string_view key, std::uint32_t value) { out_.push_back({own(key), value}); }
  void add_number(std::string_view key, double value) {
    out_.push_back({own(key), static_cast<float>(value)});
  }

  void add_sizes() {
    add_count("block_count", static_cast<std::uint32_t>(spec_.layers.size()));
    add_count("context_length", spec_.context_length);
    add_count("embedding_length", spec_.hidden);
    add_ffn_width();
    add_count("attention.head_count", attention_.heads);
    add_kv_heads();
    const bool rms = spec_.norm.kind == NormKind::kRms;
    add_number(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", spec_.norm.eps);
    // Readers divide the width by the heads where the keys are absent.
    const bool attends = attention_.heads > 0;
    if (attention_.is_latent()) {
      add_latent();
    } else if (attends && (facts_.says_head_dim || attention_.q_width() != spec_.hidden)) {
      add_count("attention.key_length", attention_.head_dim);
      add_count("attention.value_length", attention_.head_dim);
    }
    if (habits_.two_widths) add_two_widths();
    if (habits_.shared_layers) add_shared_layers();
    add_count("vocab_size", spec_.vocab_size);
  }

  void add_kv_heads() {
    constexpr std::string_view kKey = "attention.head_count_kv";
    const auto differs = [&](const LayerSpec& l) { return l.attention.kv_heads != attention_.kv_heads; };
    if (attention_.is_latent())
      add_count(kKey, 1);  // the latent, which all heads read
    else if (habits_.kinds_by_heads)
      add_list(kKey, [&](const LayerSpec& l) { return l.has_attention ? attention_.kv_heads : 0; });
    else if (habits_.two_widths && std::ranges::any_of(spec_.layers, differs))
      add_list(kKey, [](const LayerSpec& l) { return l.attention.kv_heads; });
    else
      add_count(kKey, attention_.kv_heads);
  }

  // The usual lengths are those of what is cached, a head's own have the ending _mla.
  void add_latent() {
    const LatentSpec& latent = attention_.latent;
    add_count("attention.key_length", latent.kv_rank + latent.rope_dim);
    add_count("attention.value_length", latent.kv_rank);
    add_count("attention.key_length_mla", attention_.head_dim);
    add_count("attention.value_length_mla", latent.value_dim);
    add_count("attention.kv_lora_rank", latent.kv_rank);
    if (latent.q_rank > 0) add_count("attention.q_lora_rank", latent.q_rank);
  }

  void add_two_widths() {
    const auto sliding = std::ranges::find_if(spec_.layers, slides);
    const std::uint32_t dim = (sliding == spec_.layers.end() ? attention_ : sliding->attention).head_dim;
    add_count("attention.key_length_swa", dim);
    add_count("attention.value_length_swa", dim);
    add_count("rope.dimension_count_swa", dim);
  }

  void add_shared_layers() {
    const auto shared = std::ranges::count_if(
        spec_.layers, [](const LayerSpec& l) { return l.has_attention && !l.attention.has_own_kv(); });
    add_count("attention.shared_kv_layers", static_cast<std::uint32_t>(shared));
    add_count("embedding_length_per_layer_input", spec_.per_layer.width);
  }

  // Of the first layer that attends fully where the kinds differ, else of the first.
  static const AttentionSpec& main_attention(const ModelSpec& spec, const Habits& habits) {
    const auto full = std::ranges::find_if_not(spec.layers, slides);
    return (habits.two_widths && full != spec.layers.end() ? *full : spec.layers[0]).attention;
  }

  template <typename Count>
  void add_list(std::string_view key, Count count) {
    std::vector<std::int32_t> values;
    for (const LayerSpec& layer : spec_.layers) values.push_back(static_cast<std::int32_t>(count(layer)));
    out_.push_back({own(key), std::move(values)});
  }

  // A number for each layer where some have no feed-forward, or a wider one; else that of dense layers, if
  // there are any.
  void add_ffn_width() {
    const auto wider = [&](const LayerSpec& l) { return l.ffn.width != spec_.layers[0].ffn.width; };
    if (habits_.shared_layers && std::ranges::any_of(spec_.layers, wider)) {
      add_list("feed_forward_length", [](const LayerSpec& l) { return l.ffn.width; });
      return;
    }
    if (!std::ranges::all_of(spec_.layers, &LayerSpec::has_ffn) &&
        std::ranges::any_of(spec_.layers, &LayerSpec::has_ffn)) {
      add_list("feed_forward_length", [](const LayerSpec& l) { return l.has_ffn ? l.ffn.width : 0; });
      return;
    }
    const auto dense =
        std::ranges::find_if(spec_.layers, [](const LayerSpec& l) { return l.ffn.experts == 0; });
    const LayerSpec& layer = dense == spec_.layers.end() ? spec_.layers[0] : *dense;
    const FfnSpec& ffn = layer.ffn;
    add_count("feed_forward_length", !layer.has_ffn ? 0 : ffn.dense_width > 0 ? ffn.dense_width : ffn.width);
  }

  void add_recurrent() {
    const auto first =
        std::ranges::find_if(spec_.layers, [](const LayerSpec& l) { return l.recurrent.exists(); });
    if (habits_.rope_flag) out_.push_back({own("rope.scaling.finetuned"), main_rope().rotary_dim > 0});
    if (first == spec_.layers.end()) return;
    const RecurrentSpec& r = first->recurrent;
    if (r.kind == RecurrentKind::kShortConvolution) {
      add_count("shortconv.l_cache", r.taps);
      return;
    }
    const bool mamba1 = r.kind == RecurrentKind::kMamba1;
    add_count("ssm.conv_kernel", r.taps);
    add_count("ssm.inner_size", r.inner());
    add_count("ssm.state_size", r.state_dim);
    add_count("ssm.time_step_rank", mamba1 ? r.rank : r.heads);
    if (!mamba1) add_count("ssm.group_count", r.groups);
    if (habits_.kinds_by_interval) add_interval();
    if (habits_.text_sections) {
      // Qwen's shares of 32 pairs: 11, 11 and 10.
      const auto pairs = static_cast<std::int32_t>(main_rope().rotary_dim / 2);
      const std::int32_t third = (pairs + 2) / 3;
      out_.push_back(
          {own("rope.dimension_sections"), std::vector<std::int32_t>{third, third, pairs - 2 * third, 0}});
    }
  }

  // Every so many layers attend, or a list says which do not.
  void add_interval() {
    const auto& layers = spec_.layers;
    const auto first =
        static_cast<std::uint32_t>(std::ranges::find_if(layers, &LayerSpec::has_attention) - layers.begin());
    bool regular = true;
    std::vector<bool> recurrent;
    for (std::uint32_t i = 0; i < layers.size(); ++i) {
      regular = regular && layers[i].has_attention == ((i + 1) % (first + 1) == 0);
      recurrent.push_back(!layers[i].has_attention);
    }
    if (regular)
      add_count("full_attention_interval", first + 1);
    else
      out_.push_back({own("attention.recurrent_layers"), std::move(recurrent)});
  }

  void add_experts() {
    const auto first =
        std::ranges::find_if(spec_.layers, [](const LayerSpec& l) { return l.ffn.experts > 0; });
    if (first == spec_.layers.end()) return;
    const FfnSpec& ffn = first->ffn;
    const RouterSpec& router = ffn.router;
    add_count("expert_count", ffn.experts);
    add_count("expert_used_count", router.top_k);
    add_count("expert_feed_forward_length", ffn.width);
    if (habits_.experts_by_step)
      add_count("interleave_moe_layer_step", static_cast<std::uint32_t>(first - spec_.layers.begin()) + 1);
    if (habits_.routing_by_rule) return;
    if (ffn.shared_width > 0) {
      add_count("expert_shared_feed_forward_length", ffn.shared_width);
      if (ffn.shared_width % ffn.width == 0) add_count("expert_shared_count", ffn.shared_width / ffn.width);
    }
    if (router.groups > 1) {
      add_count("expert_group_count", router.groups);
      add_count("expert_group_used_count", router.kept_groups);
    }
    if (router.scale != 1) add_number("expert_weights_scale", router.scale);
    out_.push_back({own("expert_weights_norm"), router.normalise});
    // Readers' numbers: 1 softmax, 2 sigmoid.
    if (router.score == RouterScore::kSigmoid) add_count("expert_gating_func", 2);
    if (ffn.latent_width > 0) add_count("moe_latent_size", ffn.latent_width);
    const bool leading =
        std::all_of(first, spec_.layers.end(), [](const LayerSpec& l) { return l.ffn.experts > 0; });
    // Where the key is absent, readers of these have a number of their own.
    constexpr std::array<std::string_view, 7> kExpect = {
        "glm4_moe", "glm4_moe_lite", "deepseek_v2", "deepseek_v3", "mistral4", "lfm2_moe", "ernie4_5_moe"};
    const bool expected = std::ranges::find(kExpect, spec_.family) != kExpect.end();
    if (leading && (expected || first != spec_.layers.begin()))
      add_count("leading_dense_block_count", static_cast<std::uint32_t>(first - spec_.layers.begin()));
  }

  // Of the layers that turn the first that attends fully, or else the first: its rope is the model's.
  const RopeSpec& main_rope() const {
    const auto turns = [](const LayerSpec& layer) { return layer.attention.rope.rotary_dim > 0; };
    const auto full = std::ranges::find_if(
        spec_.layers, [&](const LayerSpec& layer) { return turns(layer) && !slides(layer); });
    const auto any = full != spec_.layers.end() ? full : std::ranges::find_if(spec_.layers, turns);
    return any == spec_.layers.end() ? attention_.rope : any->attention.rope;
  }

  void add_rope() {
    const RopeSpec& rope = main_rope();
    if (rope.rotary_dim == 0) return;  // no layer turns
    if (habits_.rope_dimension || rope.rotary_dim != attention_.head_dim)
      add_count("rope.dimension_count", rope.rotary_dim);
    const double theta =
        std::ranges::all_of(spec_.layers, slides) && habits_.full_theta > 0 ? habits_.full_theta : rope.theta;
    if (habits_.rope_base || theta != 10000) add_number("rope.freq_base", theta);
    if (habits_.full_theta == 0 && !habits_.two_widths) return;
    const auto sliding = std::ranges::find_if(spec_.layers, slides);
    if (sliding != spec_.layers.end()) add_number("rope.freq_base_swa", sliding->attention.rope.theta);
  }

  void add_scaling() {
    const RopeScaling& scaling = main_rope().scaling;
    const bool longrope = scaling.kind == RopeScalingKind::kLongRope;
    if (habits_.original_context || scaling.kind == RopeScalingKind::kYarn) {
      const bool own_context = longrope || scaling.kind == RopeScalingKind::kYarn;
      add_count("rope.scaling.original_context_length",
                own_context ? static_cast<std::uint32_t>(scaling.original_context) : spec_.context_length);
    }
    if (longrope) add_number("rope.scaling.attn_factor", scaling.attention_factor);
    if (scaling.kind != RopeScalingKind::kLinear && scaling.kind != RopeScalingKind::kYarn) return;
    add_text(own("rope.scaling.type"), name_of(scaling.kind));
    add_number("rope.scaling.factor", scaling.factor);
    if (scaling.kind != RopeScalingKind::kYarn) return;
    const double magnitude = scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1;
    if (attention_.is_latent() && scaling.factor > 1) {
      // Scores are multiplied by the square of a magnitude, whose weight readers are told a tenth of.
      const double squared = attention_.scale * std::sqrt(static_cast<double>(attention_.head_dim));
      add_number("rope.scaling.yarn_log_multiplier", (std::sqrt(squared) - 1) / std::log(scaling.factor));
    } else if (std::abs(scaling.attention_factor - 1) < 1e-6 && magnitude > 1) {
      // Where mscale and mscale_all_dim are equal, the magnitude is 1, and readers are told the weight.
      add_number("rope.scaling.yarn_log_multiplier", 1);
    } else if (std::abs(scaling.attention_factor / magnitude - 1) > 1e-6) {
      add_number("rope.scaling.yarn_attn_factor", scaling.attention_factor);
    }
    add_number("rope.scaling.yarn_beta_fast", scaling.beta_fast);
    add_number("rope.scaling.yarn_beta_slow", scaling.beta_slow);
    // No key of llama.cpp's says so, and gpt-oss is published without the rounding.
    if (!scaling.truncate) out_.push_back({own("rope.scaling.yarn_truncate"), false});
  }

  void add_windows() {
    const auto sliding = std::ranges::find_if(spec_.layers, slides);
    if (sliding == spec_.layers.end()) {
      const bool chunks = std::ranges::any_of(
          spec_.layers, [](const LayerSpec& l) { return l.attention.kind == AttentionKind::kChunked; });
      if (habits_.window_always && !chunks) add_count("attention.sliding_window", 0);
      return;
    }
    add_count("attention.sliding_window", sliding->attention.window);
    std::vector<bool> pattern;
    bool as_expected = true;
    for (std::size_t i = 0; i < spec_.layers.size(); ++i) {
      pattern.push_back(slides(spec_.layers[i]));
      const bool expected = habits_.period == 0 || (i + 1) % habits_.period != 0;
      as_expected = as_expected && expected == pattern.back();
    }
    if (!as_expected || habits_.pattern_always)
      out_.push_back({own("attention.sliding_window_pattern"), std::move(pattern)});
  }

  // Keys of some architectures only.
  void add_own() {
    if (!habits_.data_layout.empty()) add_text(own("tensor_data_layout"), habits_.data_layout);
    if (habits_.parallel_flag) out_.push_back({own("use_parallel_residual"), spec_.layers[0].parallel});
    if (habits_.logit_scale) add_number("logit_scale", spec_.logit_scale);
    if (habits_.multipliers) {
      add_number("embedding_scale", spec_.embedding_scale);
      add_number("residual_scale", spec_.residual_scale);
      add_number("logit_scale", 1 / spec_.logit_scale);
    }
    add_query_scale();
    if (attention_.qkv_clip > 0) add_number("attention.clamp_kqv", attention_.qkv_clip);
    if (attention_.alibi.max_bias > 0) add_number("attention.max_alibi_bias", attention_.alibi.max_bias);
    if (spec_.layers[0].ffn.activation == Activation::kXielu) add_xielu();
    if (spec_.altup.streams > 0) add_streams();
  }

  // Of several residual streams, and how far each layer's gates are cut off: -inf where they are not.
  void add_streams() {
    add_count("altup.num_inputs", spec_.altup.streams);
    add_count("altup.active_idx", spec_.altup.active);
    std::vector<float> cutoffs;
    constexpr float kNone = -std::numeric_limits<float>::infinity();
    for (const LayerSpec& layer : spec_.layers)
      cutoffs.push_back(layer.ffn.gate_cutoff > 0 ? static_cast<float>(layer.ffn.gate_cutoff) : kNone);
    out_.push_back({own("activation_sparsity_scale"), std::move(cutoffs)});
  }

  // Readers take the length for YaRN's original context where it is not written.
  void add_query_scale() {
    const PositionScale& scale = attention_.query_scale;
    if (scale.every == 0) return;
    add_number("attention.temperature_scale", scale.beta);
    if (attention_.is_latent()) add_count("attention.temperature_length", scale.every);
  }

  void add_xielu() {
    std::array<std::vector<float>, 4> lists;
    for (const LayerSpec& layer : spec_.layers) {
      const Xielu& x = layer.ffn.xielu;
      const std::array<double, 4> values = {stored_alpha_p(x), stored_alpha_n(x), x.beta, x.eps};
      for (std::size_t i = 0; i < values.size(); ++i) lists[i].push_back(static_cast<float>(values[i]));
    }
    constexpr std::array kKeys = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta", "xielu.eps"};
    for (std::size_t i = 0; i < kKeys.size(); ++i) out_.push_back({kKeys[i], std::move(lists[i])});
  }

  const ModelSpec& spec_;
  const HfFacts& facts_;
  const Habits& habits_;
  const AttentionSpec& attention_;
  std::vector<MetadataEntry> out_;
};

}  // namespace

std::vector<MetadataEntry> hf_metadata(const ModelSpec& spec, const HfFacts& facts) {
  return MetadataWriter(spec, facts).run();
}

std::string size_label(std::uint64_t parameters) {
  struct Unit {
    double size;
    char letter;
  };
  constexpr std::array kUnits = {Unit{1e12, 'T'}, Unit{1e9, 'B'}, Unit{1e6, 'M'}, Unit{1e3, 'K'}};
  const auto count = static_cast<double>(parameters);
  const auto unit = std::ranges::find_if(kUnits, [&](const Unit& u) { return count >= u.size; });
  const Unit& chosen = unit == kUnits.end() ? kUnits.back() : *unit;
  const double scaled = count / chosen.size;
  // At least two digits.
  return fmt::format("{:.{}f}{}", scaled, std::nearbyint(scaled) < 10 ? 1 : 0, chosen.letter);
}

namespace {

std::vector<float> llama3_divisors(const RopeSpec& rope) {
  const RopeScaling& s = rope.scaling;
  const auto low = static_cast<float>(s.low_freq_factor), high = static_cast<float>(s.high_freq_factor);
  const auto old = static_cast<float>(s.original_context), factor = static_cast<float>(s.factor);
  std::vector<float> out;
  for (std::uint32_t i = 0; i < rope.rotary_dim / 2; ++i) {
    // In single precision, as the converter computes it.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    const float frequency = 1 / std::pow(static_cast<float>(rope.theta), exponent);
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength < old / high) {
      out.push_back(1);
    } else if (wavelength > old / low) {
      out.push_back(factor);
    } else {
      const float smooth = (old / wavelength - low) / (high - low);
      out.push_back(1 / ((1 - smooth) / factor + smooth));
    }
  }
  return out;
}

}  // namespace

std::vector<float> rope_divisors(const RopeSpec& rope) {
  // So large that the angle of any position is none.
  constexpr float kStill = 1e30f;
  std::vector<float> out = rope.scaling.kind == RopeScalingKind::kLlama3
                               ? llama3_divisors(rope)
                               : std::vector<float>(rope.rotary_dim / 2, 1.0f);
  const auto still = std::min<std::size_t>(rope.still_pairs, out.size());
  std::fill_n(out.rbegin(), still, kStill);
  return out;
}

}  // namespace doppler::convert
