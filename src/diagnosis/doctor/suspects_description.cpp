// Suspects of the description: what a configuration may say wrongly, or an engine take wrongly from it.
#include <algorithm>
#include <cmath>
#include <set>

#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/trial.h"
#include "model/rope.h"

namespace doppler::diagnosis {
namespace {

using repairs::number;
using Change = std::function<Status(Trial&)>;

Error does_not_apply() {
  return {ErrorCode::kNotFound, "The model is so already."};
}

// Changes layers where `change` returns true; an error where it changes none.
Change layers(std::function<bool(LayerSpec&)> change) {
  return [change = std::move(change)](Trial& trial) -> Status {
    bool any = false;
    for (LayerSpec& layer : trial.layers()) any |= change(layer);
    return any ? Status() : std::unexpected(does_not_apply());
  };
}
template <typename T>
bool set(T& value, const T& to) {
  const bool other = value != to;
  value = to;
  return other;
}

Change plan(std::function<void(Plan&)> change) {
  return [change = std::move(change)](Trial& trial) -> Status {
    trial.change_plan(change);
    return {};
  };
}

class Suspects {
 public:
  explicit Suspects(const Subject& subject) : subject_(subject), spec_(subject.spec) {}

  std::vector<Suspect> list() {
    norms();
    rope();
    attention();
    feed_forward();
    ends();
    const std::size_t before = all_.size();
    windows();
    for (std::size_t i = before; i < all_.size(); ++i) all_[i].late = true, all_[i].turn = 1;
    return std::move(all_);
  }

 private:
  void add(const char* cause, std::string says, std::string repair, Stage stage, int layer, Change change) {
    all_.push_back({cause, std::move(says), std::move(repair), stage, layer, std::move(change)});
  }
  bool has(WeightRole role, int layer) const { return subject_.weights.find(role, layer) != kNoWeight; }
  const AttentionSpec& first() const { return spec_.layers.front().attention; }
  // The first layer of which this holds.
  int layer_where(const std::function<bool(const LayerSpec&)>& holds) const {
    const auto found = std::ranges::find_if(spec_.layers, holds);
    return found == spec_.layers.end() ? 0 : static_cast<int>(found - spec_.layers.begin());
  }

  void offset(std::string which, Stage stage, int layer, std::vector<Stage> stages) {
    add("norm_weight_offset", fmt::format("{} the other weight offset (w against 1 + w)", which),
        "Set rms_norm_weight_offset: 1 for checkpoints that store w - 1 (Gemma), else 0; or convert the "
        "norms again.",
        stage, layer, plan([stages = std::move(stages)](Plan& made) {
          for (Op& op : made.ops) {
            const bool meant =
                stages.empty() || std::ranges::find(stages, made.values[op.outputs[0]].stage) != stages.end();
            if (op.kind != OpKind::kRmsNorm || !meant) continue;
            double& offset = std::get<NormParams>(op.params).weight_offset;
            offset = 1 - offset;
          }
        }));
  }

  void norms() {
    using enum Stage;
    offset("every norm has", kAttnNormed, 0, {});
    if (has(WeightRole::kQNorm, 0)) offset("the norms of queries and keys have", kQNorm, 0, {kQNorm, kKNorm});
    offset("the last norm has", kFinalNorm, -1, {kFinalNorm});
    offset("the norms before attention and feed-forward have", kAttnNormed, 0, {kAttnNormed, kFfnNormed});
    if (has(WeightRole::kPostAttnNorm, 0))
      offset("the norms after attention and feed-forward have", kPostAttnNorm, 0,
             {kPostAttnNorm, kPostFfnNorm});
    for (const double eps : {1e-6, 1e-5, 1e-12, 1e-3}) {
      if (eps == spec_.norm.eps) continue;
      add("norm_eps", fmt::format("epsilon is {} in every norm (it is {})", eps, spec_.norm.eps),
          fmt::format("Set rms_norm_eps to {} (it is {}).", eps, spec_.norm.eps), kAttnNormed, 0,
          [eps](Trial& trial) -> Status {
            trial.spec().norm.eps = eps;
            return {};
          });
    }
    const auto flag = [&](const char* missing, const char* extra, WeightRole role, const char* what,
                          Stage stage, auto member) {
      if (!has(role, 0)) return;
      const bool on = member(const_cast<LayerSpec&>(spec_.layers.front()));
      add(on ? extra : missing, fmt::format("{} are {}", what, on ? "left out" : "computed"), {}, stage, 0,
          layers([member, on](LayerSpec& l) { return set(static_cast<bool&>(member(l)), !on); }));
    };
    flag("qk_norm_missing", "qk_norm_misplaced", WeightRole::kQNorm, "the norms of queries and keys", kQNorm,
         [](LayerSpec& l) -> bool& { return l.attention.qk_norm; });
    flag("post_norm_missing", "post_norm_extra", WeightRole::kPostAttnNorm, "the norms after attention",
         kPostAttnNorm, [](LayerSpec& l) -> bool& { return l.post_attn_norm; });
    flag("post_norm_missing", "post_norm_extra", WeightRole::kPostFfnNorm, "the norms after the feed-forward",
         kPostFfnNorm, [](LayerSpec& l) -> bool& { return l.post_ffn_norm; });
    if (first().qk_norm) {
      add("qk_norm_misplaced", "queries and keys are normalised on the other side of their rotation", {},
          kQNorm, 0, plan([](Plan& made) {
            for (std::size_t i = 0; i + 1 < made.ops.size(); ++i) {
              const Stage stage = made.values[made.ops[i].outputs[0]].stage;
              if (stage != kQNorm && stage != kKNorm) continue;
              for (Op& later : made.ops) {
                if (later.layer != made.ops[i].layer ||
                    made.values[later.outputs[0]].stage != (stage == kQNorm ? kQRope : kKRope))
                  continue;
                std::swap(made.ops[i].kind, later.kind);
                std::swap(made.ops[i].params, later.params);
                std::swap(made.ops[i].weights, later.weights);
              }
            }
          }));
    }
    reads("norm_order", kFfnNormed, kPostAttn, "the feed-forward's norm reads the stream after attention");
    reads("norm_order", kFfnNormed, kAttnInput, "the feed-forward's norm reads the layer's input");
    reads("residual_missing", kPostAttn, kAttnInput, "attention's result is added to the layer's input");
    reads("residual_missing", kLayerOut, kPostAttn,
          "the feed-forward's result is added to the stream after attention");
  }

  // The first input of the op of `stage` is `source`, on every layer.
  void reads(const char* cause, Stage stage, Stage source, const char* says) {
    add(cause, says, {}, stage, 0, [stage, source](Trial& trial) -> Status {
      DOPPLER_ASSIGN(const Plan now, trial.subject().make_plan(1024));
      bool any = false;
      const auto rewire = [stage, source](Plan& made, bool& changed) {
        ValueId input = 0, after_attention = 0;  // of the layer
        for (Op& op : made.ops) {
          const Value& out = made.values[op.outputs[0]];
          if (out.stage == stage && out.layer >= 0) {
            const ValueId wanted = source == kAttnInput ? input : after_attention;
            changed |= op.inputs[0] != wanted;
            op.inputs[0] = wanted;
          }
          if (out.stage == kEmbedOut || out.stage == kLayerOut) input = op.outputs[0];
          if (out.stage == kPostAttn) after_attention = op.outputs[0];
        }
      };
      Plan tried = now;
      rewire(tried, any);
      if (!any) return std::unexpected(does_not_apply());
      trial.change_plan([rewire](Plan& made) {
        bool changed = false;
        rewire(made, changed);
      });
      return {};
    });
  }

  void theta(std::string which, int layer, double theta, std::function<bool(const LayerSpec&)> meant) {
    add("rope_theta",
        fmt::format("the base of the rotation is {}{} (it is {})", number(theta), which,
                    number(spec_.layers[static_cast<std::size_t>(layer)].attention.rope.theta)),
        fmt::format("Set rope_theta{} to {}.", which, number(theta)), kQRope, layer,
        layers([theta, meant = std::move(meant)](LayerSpec& l) {
          return meant(l) && set(l.attention.rope.theta, theta);
        }));
  }

  void rope() {
    const auto sliding = [](const LayerSpec& l) { return l.attention.kind == AttentionKind::kSliding; };
    const auto full = [](const LayerSpec& l) { return l.attention.kind == AttentionKind::kFull; };
    const int first_full = layer_where(full), first_sliding = layer_where(sliding);
    const bool both = std::ranges::any_of(spec_.layers, sliding) && std::ranges::any_of(spec_.layers, full);
    // A file whose rows are in the order of pairs cannot be told from a layout of pairs; the layout follows
    // from the family, so the rows are suspected where it is the usual one (suspects_weights.cpp).
    if (first().rope.layout == RopeLayout::kInterleaved) {
      add("rope_layout", "pairs are (i, i + d/2)", {}, kQRope, 0,
          layers([](LayerSpec& l) { return set(l.attention.rope.layout, RopeLayout::kHalf); }));
    }
    if (both) {
      add("rope_theta", "local and global layers exchange their bases",
          "Exchange the two bases of the rotation.", kQRope, 0,
          [first_full, first_sliding, sliding](Trial& trial) -> Status {
            const double global = trial.layers()[static_cast<std::size_t>(first_full)].attention.rope.theta;
            const double local = trial.layers()[static_cast<std::size_t>(first_sliding)].attention.rope.theta;
            if (global == local) return std::unexpected(does_not_apply());
            for (LayerSpec& l : trial.layers()) l.attention.rope.theta = sliding(l) ? global : local;
            return {};
          });
    }
    const std::size_t before = all_.size();
    for (const double base : {1e4, 5e5, 1e6, 1e5, 1e7, 2.5e5, 5e6, 5e4, 1e8, 1e3}) {
      theta("", 0, base, [](const LayerSpec&) { return true; });
      if (!both) continue;
      theta(" on layers of full attention", first_full, base, full);
      theta(" on layers with a window", first_sliding, base, sliding);
    }
    for (std::size_t i = before + 9; i < all_.size(); ++i) all_[i].turn = 1;  // three bases are common
    using enum RopeScalingKind;
    const auto scaled = [&](std::string says, RopeScaling to) {
      add("rope_scaling", std::move(says), {}, kQRope, 0,
          layers([to](LayerSpec& l) { return set(l.attention.rope.scaling, to); }));
    };
    scaled("angles are not scaled", {});
    for (const double factor : {8.0, 4.0, 2.0, 32.0})
      scaled(fmt::format("positions are divided by {}", factor), {.kind = kLinear, .factor = factor});
    for (const double factor : {8.0, 32.0})
      scaled(fmt::format("angles are scaled as in Llama 3, by {}", factor),
             {.kind = kLlama3, .factor = factor, .original_context = 8192});
    for (const auto& [share, says] :
         {std::pair{1.0, "all"}, {0.5, "half of the"}, {0.25, "a quarter of the"}}) {
      add("rope_dims", fmt::format("{} dims of a head rotate", says),
          fmt::format("Set partial_rotary_factor to {}.", share), kQRope, 0, layers([share](LayerSpec& l) {
            const auto dims = static_cast<std::uint32_t>(share * l.attention.head_dim);
            return dims % 2 == 0 && set(l.attention.rope.rotary_dim, dims);
          }));
    }
    add("rope_missing", "queries and keys rotate by the description's angles", {}, kQRope, 0,
        [](Trial& trial) -> Status {
          DOPPLER_ASSIGN(const Plan now, trial.subject().make_plan(1024));
          const bool still = std::ranges::any_of(now.rope_tables, [](const RopeTable& table) {
            return std::ranges::all_of(table.inverse_frequency, [](double x) { return x == 0; });
          });
          if (!still) return std::unexpected(does_not_apply());
          DOPPLER_ASSIGN(const Plan right, build_plan(trial.spec(), trial.weights(), 1024));
          trial.change_plan([tables = right.rope_tables](Plan& made) { made.rope_tables = tables; });
          return {};
        });
    add("rope_missing", "nothing rotates", {}, kQRope, 0, plan([](Plan& made) {
          for (RopeTable& table : made.rope_tables) std::ranges::fill(table.inverse_frequency, 0);
        }));
  }

  void attention() {
    const auto scale = [&](std::string says, const std::function<double(const AttentionSpec&)>& value) {
      add("attention_scale",
          fmt::format("attention scores are multiplied by {} (they are by {})", says, number(first().scale)),
          {}, kAttnOut, 0, layers([value](LayerSpec& l) {
            const double to = value(l.attention);
            const bool other = std::abs(to / l.attention.scale - 1) > 1e-3;
            l.attention.scale = to;
            return other;
          }));
    };
    const double hidden = spec_.hidden;
    scale("1 / sqrt(head_dim)", [](const AttentionSpec& a) { return 1 / std::sqrt(double{1} * a.head_dim); });
    scale("1 / sqrt(hidden / heads)",
          [hidden](const AttentionSpec& a) { return 1 / std::sqrt(hidden / a.heads); });
    scale("1 / head_dim", [](const AttentionSpec& a) { return 1.0 / a.head_dim; });
    scale("1", [](const AttentionSpec&) { return 1.0; });
    const std::size_t before = all_.size();
    for (const double scalar : {32.0, 64.0, 96.0, 128.0, 144.0, 168.0, 224.0, 256.0})
      scale(fmt::format("1 / sqrt({})", scalar),
            [scalar](const AttentionSpec&) { return 1 / std::sqrt(scalar); });
    for (std::size_t i = before; i < all_.size(); ++i) all_[i].turn = 1;
    for (const double cap : {0.0, 50.0, 30.0}) {
      add("attention_softcap",
          cap == 0 ? "attention scores are not capped"
                   : fmt::format("attention scores are capped at {}", cap),
          cap == 0 ? "Set attn_logit_softcapping to null."
                   : fmt::format("Set attn_logit_softcapping to {}.", cap),
          kAttnOut, 0, layers([cap](LayerSpec& l) { return set(l.attention.softcap, cap); }));
    }
    for (const std::uint32_t times : {2u, 4u}) {
      for (const bool more : {true, false}) heads(times, more);
    }
  }

  // As many values in more or fewer heads.
  void heads(std::uint32_t times, bool more) {
    const AttentionSpec& a = first();
    if (more ? a.head_dim % (2 * times) != 0 : a.heads % times != 0 || a.kv_heads % times != 0) return;
    if (has(WeightRole::kQNorm, 0)) return;  // its size tells that of a head
    const std::uint32_t dim = more ? a.head_dim / times : a.head_dim * times;
    add("head_grouping", fmt::format("heads have {} dims (they have {})", dim, a.head_dim),
        fmt::format("Set head_dim to {}, and the numbers of heads accordingly.", dim), kQRope, 0,
        layers([times, more](LayerSpec& l) {
          AttentionSpec& at = l.attention;
          const auto turn = [&](std::uint32_t& n, bool up) { n = up ? n * times : n / times; };
          turn(at.heads, more), turn(at.kv_heads, more), turn(at.head_dim, !more),
              turn(at.rope.rotary_dim, !more);
          at.scale *= more ? std::sqrt(times) : 1 / std::sqrt(times);
          return true;
        }));
  }

  void feed_forward() {
    for (const auto& [activation, says, key] : {std::tuple{Activation::kSilu, "SiLU", "silu"},
                                                {Activation::kGeluTanh, "GELU", "gelu_pytorch_tanh"}}) {
      const Activation now = spec_.layers.front().ffn.activation;
      // The two forms of GELU differ by less than text shows.
      if (activation == now || (activation == Activation::kGeluTanh && now == Activation::kGeluErf)) continue;
      add("activation", fmt::format("the activation is {}", says), fmt::format("Set hidden_act to {}.", key),
          kFfnAct, 0, layers([activation](LayerSpec& l) { return set(l.ffn.activation, activation); }));
    }
    add("gate_up_swapped", "gate and up change places on every layer", {}, kFfnGate, 0, plan([](Plan& made) {
          for (Op& op : made.ops) {
            if (op.kind == OpKind::kGated && op.inputs.size() == 2) std::swap(op.inputs[0], op.inputs[1]);
          }
        }));
    if (has(WeightRole::kQBias, 0)) {
      add("bias_missing", "the biases of q, k and v are added", {}, kQProj, 0, [](Trial& trial) -> Status {
        DOPPLER_ASSIGN(const Plan now, trial.subject().make_plan(1024));
        if (std::ranges::any_of(now.ops, [](const Op& op) { return !op.biases.empty(); }))
          return std::unexpected(does_not_apply());
        DOPPLER_ASSIGN(const Plan right, build_plan(trial.spec(), trial.weights(), 1024));
        trial.change_plan([right](Plan& made) {
          for (std::size_t i = 0; i < std::min(made.ops.size(), right.ops.size()); ++i)
            made.ops[i].biases = right.ops[i].biases;
        });
        return {};
      });
    }
  }

  void ends() {
    for (const auto& [scale, says] :
         {std::pair{1.0, std::string("1")},
          {std::sqrt(double{1} * spec_.hidden),
           fmt::format("sqrt(hidden), {}", number(std::sqrt(double{1} * spec_.hidden)))}}) {
      if (std::abs(scale / spec_.embedding_scale - 1) < 0.01) continue;
      add("embedding_scale",
          fmt::format("embeddings are multiplied by {} (they are by {})", says,
                      number(spec_.embedding_scale)),
          {}, kEmbedOut, -1, [scale](Trial& trial) -> Status {
            trial.spec().embedding_scale = scale;
            return {};
          });
    }
    for (const double cap : {0.0, 30.0}) {
      if (cap == spec_.final_softcap) continue;
      add("final_softcap", cap == 0 ? "logits are not capped" : fmt::format("logits are capped at {}", cap),
          cap == 0 ? "Set final_logit_softcapping to null."
                   : fmt::format("Set final_logit_softcapping to {}.", cap),
          kLogitsFinal, -1, [cap](Trial& trial) -> Status {
            trial.spec().final_softcap = cap;
            return {};
          });
    }
    add("tied_head", "the embedding serves as head", "Set tie_word_embeddings to true.", kLogits, -1,
        [](Trial& trial) -> Status {
          const WeightId embedding = trial.weights().find(WeightRole::kTokenEmbedding);
          if (trial.weights().find(WeightRole::kHead) == embedding ||
              trial.weight(WeightRole::kHead, -1).shape != trial.weights()[embedding].shape)
            return std::unexpected(does_not_apply());
          trial.weights().alias(WeightRole::kHead, -1, embedding);
          return {};
        });
    const int count = static_cast<int>(spec_.layers.size());
    if (has(WeightRole::kO, count)) {
      add("layer_count", fmt::format("layer {}, whose weights are there, is computed, too", count),
          fmt::format("Set num_hidden_layers to {}.", count + 1), kAttnInput, count,
          [](Trial& trial) -> Status {
            trial.layers().push_back(trial.layers().back());
            return {};
          });
    }
  }

  void windows() {
    const auto is_sliding = [](const LayerSpec& l) { return l.attention.kind == AttentionKind::kSliding; };
    const bool any = std::ranges::any_of(spec_.layers, is_sliding);
    const int at = any ? layer_where(is_sliding) : 0;
    add("sliding_window", "no layer has a window", "Set sliding_window to null.", kAttnOut, at,
        layers([](LayerSpec& l) {
          l.attention.kind = AttentionKind::kFull;
          return set(l.attention.window, 0u);
        }));
    for (const std::uint32_t window : {1024u, 512u, 256u, 128u, 64u, 32u, 4096u}) {
      if (!any) continue;
      add("sliding_window",
          fmt::format("the window is {} (it is {})", window,
                      spec_.layers[static_cast<std::size_t>(at)].attention.window),
          fmt::format("Set sliding_window to {}.", window), kAttnOut, at,
          layers([window, is_sliding](LayerSpec& l) {
            return is_sliding(l) && set(l.attention.window, window);
          }));
    }
    patterns();
  }

  // Which layers are local and which global, where there are two kinds.
  void patterns() {
    std::vector<AttentionSpec> kinds;
    for (const LayerSpec& l : spec_.layers) {
      if (std::ranges::none_of(kinds, [&](const AttentionSpec& k) {
            return k.kind == l.attention.kind && k.rope == l.attention.rope && k.window == l.attention.window;
          }))
        kinds.push_back(l.attention);
    }
    if (kinds.size() != 2) return;
    const auto stage = kinds[0].rope.theta != kinds[1].rope.theta ? kQRope : kAttnOut;
    if (kinds[0].kind == kinds[1].kind && kinds[0].window > 0) {
      const bool second = kinds[1].rope.theta > kinds[0].rope.theta;
      const double theta = kinds[second ? 1 : 0].rope.theta;
      add("layer_types", fmt::format("the layers whose base is {} attend to everything", number(theta)), {},
          kAttnOut, layer_where([theta](const LayerSpec& l) { return l.attention.rope.theta == theta; }),
          layers([theta](LayerSpec& l) {
            if (l.attention.rope.theta != theta) return false;
            l.attention.kind = AttentionKind::kFull;
            return set(l.attention.window, 0u);
          }));
    }
    if (kinds[0].kind == kinds[1].kind) return;
    if (kinds[0].kind == AttentionKind::kFull) std::swap(kinds[0], kinds[1]);  // local, global
    const std::size_t count = spec_.layers.size();
    std::set<std::vector<bool>> seen;
    std::vector<bool> now;
    for (const LayerSpec& l : spec_.layers) now.push_back(l.attention.kind == AttentionKind::kFull);
    seen.insert(now);
    const auto pattern = [&](std::string says, const std::vector<bool>& global) {
      if (!seen.insert(global).second) return;
      int layer = 0;
      while (global[static_cast<std::size_t>(layer)] == now[static_cast<std::size_t>(layer)]) ++layer;
      add("layer_types", std::move(says), {}, stage, layer, [global, kinds](Trial& trial) -> Status {
        for (std::size_t i = 0; i < global.size(); ++i)
          trial.layers()[i].attention = kinds[global[i] ? 1 : 0];
        return {};
      });
    };
    for (const int by : {1, -1}) {
      std::vector<bool> global(count);
      for (std::size_t i = 0; i < count; ++i)
        global[i] = now[(i + count + static_cast<std::size_t>(by + static_cast<int>(count))) % count];
      pattern(fmt::format("the pattern of local and global layers begins one layer {}",
                          by > 0 ? "earlier" : "later"),
              global);
    }
    for (const std::size_t period : {2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
      for (const bool last : {true, false}) {
        std::vector<bool> global(count);
        for (std::size_t i = 0; i < count; ++i) global[i] = i % period == (last ? period - 1 : 0);
        pattern(fmt::format("the {} layer of every {} is global", last ? "last" : "first", period), global);
      }
    }
  }

  using enum Stage;
  const Subject& subject_;
  const ModelSpec& spec_;
  std::vector<Suspect> all_;
};

}  // namespace

std::vector<Suspect> description_suspects(const Subject& subject) {
  return subject.spec.layers.empty() ? std::vector<Suspect>() : Suspects(subject).list();
}

}  // namespace doppler::diagnosis
