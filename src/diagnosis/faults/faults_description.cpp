// Description faults: the spec or the plan contradicts the model.
#include <algorithm>
#include <cmath>

#include "diagnosis/faults/faults_table.h"

namespace doppler::diagnosis::faults {
namespace {

using Layers = std::vector<LayerSpec>;
using When = FaultPlace::When;

bool has_qk_norm(const Subject& s) {
  return s.spec.layers.front().attention.qk_norm;
}
bool has_windows(const Subject& s) {
  return first_layer(s.spec, AttentionKind::kSliding) >= 0;
}
bool has_both_kinds(const Subject& s) {
  return has_windows(s) && first_layer(s.spec, AttentionKind::kFull) >= 0;
}
bool has_two_thetas(const Subject& s) {
  if (!has_both_kinds(s)) return false;
  const auto theta = [&](AttentionKind kind) {
    return s.spec.layers[static_cast<std::size_t>(first_layer(s.spec, kind))].attention.rope.theta;
  };
  return theta(AttentionKind::kFull) != theta(AttentionKind::kSliding);
}
RopeScalingKind scaling(const Subject& s) {
  return s.spec.layers.front().attention.rope.scaling.kind;
}

// Changes every layer.
std::function<void(Site&)> each_layer(std::function<void(LayerSpec&)> change) {
  return [change = std::move(change)](Site& site) {
    for (LayerSpec& layer : site.spec().layers) change(layer);
  };
}
std::function<void(Site&)> plan(std::function<void(Plan&)> change) {
  return [change = std::move(change)](Site& site) { site.change_plan(change); };
}
// The parameters of the norms of these stages.
std::function<void(Site&)> norms(std::vector<Stage> stages, std::function<void(NormParams&)> change) {
  return plan([stages = std::move(stages), change = std::move(change)](Plan& made) {
    for (Op& op : made.ops) {
      if (op.kind == OpKind::kRmsNorm &&
          std::ranges::find(stages, made.values[op.outputs[0]].stage) != stages.end())
        change(std::get<NormParams>(op.params));
    }
  });
}
void flip_offset(NormParams& p) {
  p.weight_offset = 1 - p.weight_offset;
}

std::vector<FaultRow> norm_faults() {
  return {
      {{"norm_offset_missing", FaultKind::kDescription, "norm_weight_offset",
        "Gemma folders (GGUF files add the 1 to the weights)",
        "norms multiply by w where the model means 1 + w"},
       [](const Subject& s) { return s.spec.norm.weight_offset == 1; },
       at(Stage::kAttnNormed, 0),
       [](Site& site) { site.spec().norm.weight_offset = 0; }},
      {{"norm_offset_forced", FaultKind::kDescription, "norm_weight_offset", "all but Gemma folders",
        "norms multiply by 1 + w where the model means w"},
       [](const Subject& s) { return s.spec.norm.weight_offset == 0 && !is_gemma(s); },
       at(Stage::kAttnNormed, 0),
       [](Site& site) { site.spec().norm.weight_offset = 1; }},
      {{"qk_norm_offset", FaultKind::kDescription, "norm_weight_offset", "models with q/k norm",
        "only the norms of queries and keys have the wrong offset"},
       has_qk_norm,
       at(Stage::kQNorm, 0),
       norms({Stage::kQNorm, Stage::kKNorm}, flip_offset)},
      {{"final_norm_offset", FaultKind::kDescription, "norm_weight_offset", "",
        "only the last norm has the wrong offset"},
       {},
       at(Stage::kFinalNorm, -1),
       norms({Stage::kFinalNorm}, flip_offset)},
      {{"norm_eps_large", FaultKind::kDescription, "norm_eps", "", "eps is 1e-3 in every norm"},
       {},
       at(Stage::kAttnNormed, 0),
       [](Site& site) { site.spec().norm.eps = 1e-3; }},
      {{"qk_norm_missing", FaultKind::kDescription, "qk_norm_missing", "models with q/k norm",
        "queries and keys are not normalised"},
       has_qk_norm,
       at(Stage::kQNorm, 0),
       each_layer([](LayerSpec& l) { l.attention.qk_norm = false; })},
      {{"qk_norm_after_rope", FaultKind::kDescription, "qk_norm_misplaced", "models with q/k norm",
        "queries and keys turn before they are normalised"},
       has_qk_norm,
       at(Stage::kQNorm, 0),
       plan([](Plan& made) {  // the two ops change places; each value keeps the name of its place
         for (std::size_t i = 0; i < made.ops.size(); ++i) {
           const Stage stage = made.values[made.ops[i].outputs[0]].stage;
           if (stage != Stage::kQNorm && stage != Stage::kKNorm) continue;
           Op& rope = *op_of(made, stage == Stage::kQNorm ? Stage::kQRope : Stage::kKRope, made.ops[i].layer);
           Op& norm = made.ops[i];
           std::swap(norm.kind, rope.kind);
           std::swap(norm.params, rope.params);
           std::swap(norm.weights, rope.weights);
         }
       })},
      {{"post_attn_norm_missing", FaultKind::kDescription, "post_norm_missing", "Gemma 2 and 3",
        "what attention returns is added without its norm"},
       [](const Subject& s) { return s.spec.layers.front().post_attn_norm; },
       at(Stage::kPostAttnNorm, 0),
       each_layer([](LayerSpec& l) { l.post_attn_norm = false; })},
      {{"post_ffn_norm_missing", FaultKind::kDescription, "post_norm_missing", "Gemma 2 and 3",
        "what the feed-forward returns is added without its norm"},
       [](const Subject& s) { return s.spec.layers.front().post_ffn_norm; },
       at(Stage::kPostFfnNorm, 0),
       each_layer([](LayerSpec& l) { l.post_ffn_norm = false; })},
      {{"ffn_norm_reads_layer_input", FaultKind::kDescription, "norm_order", "",
        "the feed-forward's norm reads the stream as it was before attention"},
       {},
       at(Stage::kFfnNormed, 0),
       plan([](Plan& made) {
         for (Op& op : made.ops) {
           if (op.kind != OpKind::kRmsNorm || made.values[op.outputs[0]].stage != Stage::kFfnNormed) continue;
           op.inputs[0] = op_of(made, Stage::kAttnNormed, op.layer)->inputs[0];
         }
       })},
      {{"residual_after_norm", FaultKind::kDescription, "residual_missing", "",
        "attention's result is added to the normed stream instead of the stream"},
       {},
       at(Stage::kPostAttn, 0),
       plan([](Plan& made) {
         for (Op& op : made.ops) {
           if (op.kind == OpKind::kAdd && made.values[op.outputs[0]].stage == Stage::kPostAttn)
             op.inputs[0] = value_of(made, Stage::kAttnNormed, op.layer);
         }
       })},
  };
}

std::vector<FaultRow> rope_faults() {
  const auto first_full_theta = [](const Subject& s) {  // layers of a window have the usual theta already
    for (std::size_t i = 0; i < s.spec.layers.size(); ++i) {
      if (s.spec.layers[i].attention.rope.theta != 10000)
        return FaultPlace{Stage::kQRope, static_cast<int>(i)};
    }
    return FaultPlace{};
  };
  return {
      {{"rope_theta_default", FaultKind::kDescription, "rope_theta", "models whose theta is not 10000",
        "theta is 10000 on every layer"},
       [=](const Subject& s) { return first_full_theta(s).stage != Stage::kNone; },
       first_full_theta,
       each_layer([](LayerSpec& l) { l.attention.rope.theta = 10000; })},
      {{"rope_thetas_swapped", FaultKind::kDescription, "rope_theta", "Gemma 3",
        "local and global layers have each other's theta"},
       has_two_thetas,
       at(Stage::kQRope, 0),
       [](Site& site) {
         const Layers healthy = site.spec().layers;
         const auto theta = [&](AttentionKind kind) {
           return healthy[static_cast<std::size_t>(first_layer(site.spec(), kind))].attention.rope.theta;
         };
         const double full = theta(AttentionKind::kFull), sliding = theta(AttentionKind::kSliding);
         for (LayerSpec& l : site.spec().layers)
           l.attention.rope.theta = l.attention.kind == AttentionKind::kFull ? sliding : full;
       }},
      {{"rope_interleaved", FaultKind::kDescription, "rope_layout", "",
        "pairs are (2i, 2i + 1) instead of (i, i + d/2)"},
       [](const Subject& s) { return s.spec.layers.front().attention.rope.layout == RopeLayout::kHalf; },
       at(Stage::kQRope, 0),
       each_layer([](LayerSpec& l) { l.attention.rope.layout = RopeLayout::kInterleaved; })},
      {{"rope_scaling_missing", FaultKind::kDescription, "rope_scaling", "Llama 3",
        "the scaling of angles is left out"},
       [](const Subject& s) { return scaling(s) != RopeScalingKind::kNone; },
       at(Stage::kQRope, 0),
       each_layer([](LayerSpec& l) { l.attention.rope.scaling.kind = RopeScalingKind::kNone; })},
      {{"rope_scaling_linear", FaultKind::kDescription, "rope_scaling", "Llama 3",
        "the llama3 scaling is taken for a linear one"},
       [](const Subject& s) { return scaling(s) == RopeScalingKind::kLlama3; },
       at(Stage::kQRope, 0),
       each_layer([](LayerSpec& l) { l.attention.rope.scaling.kind = RopeScalingKind::kLinear; })},
      {{"rope_scaling_forced", FaultKind::kDescription, "rope_scaling", "models without scaling",
        "positions are divided by 8 where the model does not"},
       [](const Subject& s) { return scaling(s) == RopeScalingKind::kNone; },
       at(Stage::kQRope, 0),
       each_layer([](LayerSpec& l) {
         l.attention.rope.scaling.kind = RopeScalingKind::kLinear;
         l.attention.rope.scaling.factor = 8;
       })},
      {{"rope_half_of_head", FaultKind::kDescription, "rope_dims", "",
        "only the first half of each head rotates"},
       [](const Subject& s) { return s.spec.layers.front().attention.rope.rotary_dim % 4 == 0; },
       at(Stage::kQRope, 0),
       each_layer([](LayerSpec& l) { l.attention.rope.rotary_dim /= 2; })},
      {{"rope_missing", FaultKind::kDescription, "rope_missing", "", "queries and keys do not turn at all"},
       {},
       at(Stage::kQRope, 0),
       plan([](Plan& made) {
         for (RopeTable& table : made.rope_tables) std::ranges::fill(table.inverse_frequency, 0);
       })},
  };
}

std::vector<FaultRow> attention_faults() {
  const auto sliding = [](std::function<void(AttentionSpec&)> change) {
    return each_layer([change = std::move(change)](LayerSpec& l) {
      if (l.attention.kind == AttentionKind::kSliding) change(l.attention);
    });
  };
  const auto scale = [](std::function<double(const Subject&, const AttentionSpec&)> value) {
    return [value = std::move(value)](Site& site) {
      for (LayerSpec& l : site.spec().layers) l.attention.scale = value(site.subject(), l.attention);
    };
  };
  return {
      {{"attention_scale_missing", FaultKind::kDescription, "attention_scale", "", "scores are not scaled"},
       {},
       at(Stage::kAttnOut, 0),
       scale([](const Subject&, const AttentionSpec&) { return 1.0; })},
      {{"attention_scale_hidden", FaultKind::kDescription, "attention_scale",
        "models whose head size is not hidden / heads", "the scale is 1 / sqrt(hidden / heads)"},
       [](const Subject& s) {
         const AttentionSpec& a = s.spec.layers.front().attention;
         return std::abs(a.scale * a.scale * s.spec.hidden / a.heads - 1) > 0.01;
       },
       at(Stage::kAttnOut, 0),
       scale([](const Subject& s, const AttentionSpec& a) {
         return 1 / std::sqrt(double{1} * s.spec.hidden / a.heads);
       })},
      {{"attention_scale_twice", FaultKind::kDescription, "attention_scale", "",
        "the scale is taken as a query_pre_attn_scalar that is a root already"},
       {},
       at(Stage::kAttnOut, 0),
       scale([](const Subject&, const AttentionSpec& a) { return std::sqrt(a.scale); })},
      {{"attention_softcap_forced", FaultKind::kDescription, "attention_softcap", "models without softcaps",
        "scores are capped at 50 as in Gemma 2"},
       [](const Subject& s) { return s.spec.layers.front().attention.softcap == 0; },
       at(Stage::kAttnOut, 0),
       each_layer([](LayerSpec& l) { l.attention.softcap = 50; })},
      {{"attention_softcap_missing", FaultKind::kDescription, "attention_softcap", "Gemma 2",
        "scores are not capped"},
       [](const Subject& s) { return s.spec.layers.front().attention.softcap > 0; },
       at(Stage::kAttnOut, 0),
       each_layer([](LayerSpec& l) { l.attention.softcap = 0; })},
      {{"window_one_small", FaultKind::kDescription, "sliding_window", "models with windows",
        "a token sees one position less than the window"},
       has_windows,
       [](const Subject& s) {
         return FaultPlace{Stage::kAttnOut, first_layer(s.spec, AttentionKind::kSliding)};
       },
       sliding([](AttentionSpec& a) { --a.window; })},
      {{"window_one_large", FaultKind::kDescription, "sliding_window", "models with windows",
        "a token sees one position more than the window"},
       has_windows,
       [](const Subject& s) {
         return FaultPlace{Stage::kAttnOut, first_layer(s.spec, AttentionKind::kSliding)};
       },
       sliding([](AttentionSpec& a) { ++a.window; })},
      {{"window_missing", FaultKind::kDescription, "sliding_window", "models with windows",
        "layers of a window attend to everything"},
       has_windows,
       [](const Subject& s) {
         return FaultPlace{Stage::kAttnOut, first_layer(s.spec, AttentionKind::kSliding)};
       },
       sliding([](AttentionSpec& a) { a.window = 0; })},
      {{"window_forced", FaultKind::kDescription, "sliding_window", "models without windows",
        "every layer has a window of 8"},
       [](const Subject& s) { return !has_windows(s); },
       at(Stage::kAttnOut, 0),
       each_layer([](LayerSpec& l) {
         l.attention.kind = AttentionKind::kSliding;
         l.attention.window = 8;
       })},
      {{"window_on_full_layer", FaultKind::kDescription, "layer_types", "models with windows on some layers",
        "the layers of full attention have the window, too"},
       has_both_kinds,
       [](const Subject& s) {
         return FaultPlace{Stage::kAttnOut, first_layer(s.spec, AttentionKind::kFull)};
       },
       [](Site& site) {
         const auto window =
             site.spec()
                 .layers[static_cast<std::size_t>(first_layer(site.spec(), AttentionKind::kSliding))]
                 .attention.window;
         for (LayerSpec& l : site.spec().layers) {
           l.attention.kind = AttentionKind::kSliding;
           l.attention.window = window;
         }
       }},
      {{"layer_types_shifted", FaultKind::kDescription, "layer_types", "models with windows on some layers",
        "the pattern of local and global layers begins one layer later"},
       has_both_kinds,
       [](const Subject& s) {  // the first layer whose neighbour before it is of the other kind
         const Layers& layers = s.spec.layers;
         for (std::size_t i = 0; i < layers.size(); ++i) {
           const AttentionSpec& now = layers[(i + layers.size() - 1) % layers.size()].attention;
           if (now.kind == layers[i].attention.kind) continue;
           const bool turns = now.rope.theta != layers[i].attention.rope.theta;
           return FaultPlace{turns ? Stage::kQRope : Stage::kAttnOut, static_cast<int>(i)};
         }
         return FaultPlace{};
       },
       [](Site& site) {
         Layers& layers = site.spec().layers;
         const Layers healthy = layers;
         for (std::size_t i = 0; i < layers.size(); ++i)
           layers[i].attention = healthy[(i + layers.size() - 1) % layers.size()].attention;
       }},
  };
}

std::vector<FaultRow> other_faults() {
  return {
      {{"embedding_scale_missing", FaultKind::kDescription, "embedding_scale", "Gemma",
        "embeddings are not scaled"},
       [](const Subject& s) { return s.spec.embedding_scale != 1; },
       at(Stage::kEmbedOut, -1),
       [](Site& site) { site.spec().embedding_scale = 1; }},
      {{"embedding_scale_forced", FaultKind::kDescription, "embedding_scale", "all but Gemma",
        "embeddings are scaled by sqrt(hidden)"},
       [](const Subject& s) { return s.spec.embedding_scale == 1; },
       at(Stage::kEmbedOut, -1),
       [](Site& site) { site.spec().embedding_scale = std::sqrt(double{1} * site.spec().hidden); }},
      {{"activation_wrong", FaultKind::kDescription, "activation", "",
        "silu instead of gelu, or gelu instead of silu"},
       {},
       at(Stage::kFfnAct, 0),
       each_layer([](LayerSpec& l) {
         l.ffn.activation = l.ffn.activation == Activation::kSilu ? Activation::kGeluTanh : Activation::kSilu;
       })},
      {{"activation_erf", FaultKind::kDescription, "activation", "models with gelu_pytorch_tanh",
        "gelu exactly instead of by its tanh approximation"},
       [](const Subject& s) { return s.spec.layers.front().ffn.activation == Activation::kGeluTanh; },
       at(Stage::kFfnAct, 0),
       each_layer([](LayerSpec& l) { l.ffn.activation = Activation::kGeluErf; })},
      {{"activation_on_up", FaultKind::kDescription, "gate_up_swapped", "",
        "the activation stands on up instead of gate"},
       {},
       at(Stage::kFfnAct, 0),
       plan([](Plan& made) {
         for (Op& op : made.ops) {
           if (op.kind == OpKind::kGated && op.inputs.size() == 2) std::swap(op.inputs[0], op.inputs[1]);
         }
       })},
      {{"bias_missing", FaultKind::kDescription, "bias_missing", "Qwen 2",
        "the biases of q, k and v are left out"},
       [](const Subject& s) { return s.spec.layers.front().attention.qkv_bias; },
       at(Stage::kQProj, 0),
       plan([](Plan& made) {
         for (Op& op : made.ops) op.biases.clear();
       })},
      {{"final_softcap_forced", FaultKind::kDescription, "final_softcap", "models without softcaps",
        "logits are capped at 30 as in Gemma 2"},
       [](const Subject& s) { return s.spec.final_softcap == 0; },
       at(Stage::kLogitsFinal, -1),
       [](Site& site) { site.spec().final_softcap = 30; }},
      {{"final_softcap_missing", FaultKind::kDescription, "final_softcap", "Gemma 2",
        "logits are not capped"},
       [](const Subject& s) { return s.spec.final_softcap > 0; },
       at(Stage::kLogitsFinal, -1),
       [](Site& site) { site.spec().final_softcap = 0; }},
      {{"logit_scale_inverted", FaultKind::kDescription, "logit_scale", "Cohere, Granite",
        "logits are divided by the number that they should be multiplied by"},
       [](const Subject& s) { return s.spec.logit_scale != 1; },
       at(Stage::kLogitsFinal, -1),
       [](Site& site) { site.spec().logit_scale = 1 / site.spec().logit_scale; }},
      {{"head_tied", FaultKind::kDescription, "tied_head", "models with a head of their own",
        "the embedding serves as head"},
       [](const Subject& s) { return !s.spec.tied_head; },
       at(Stage::kLogits, -1),
       [](Site& site) {
         site.weights().alias(WeightRole::kHead, -1, site.weights().find(WeightRole::kTokenEmbedding));
       }},
      {{"head_not_tied", FaultKind::kDescription, "tied_head", "models whose head is the embedding",
        "the head is a matrix of its own that nobody trained"},
       [](const Subject& s) { return s.spec.tied_head; },
       at(Stage::kLogits, -1),
       [](Site& site) {  // values of the embedding's size, in an order that no row has
         site.spec().tied_head = false;
         site.alter(WeightRole::kHead, -1, [](TensorView& tensor, std::vector<std::byte>& bytes) {
           const std::size_t width = bytes.size() / (tensor.rows() * tensor.cols());
           const std::size_t count = bytes.size() / width;
           std::uint64_t state = 1;
           for (std::size_t i = count; i > 1 && width > 0; --i) {
             state = state * 6364136223846793005 + 1442695040888963407;
             const std::size_t j = (state >> 33) % i;
             std::swap_ranges(&bytes[(i - 1) * width], &bytes[(i - 1) * width] + width, &bytes[j * width]);
           }
         });
       }},
      {{"layer_left_out", FaultKind::kDescription, "layer_count", "", "the last layer is left out"},
       [](const Subject& s) { return has_layers(s, 2); },
       [](const Subject& s) { return FaultPlace{Stage::kAttnInput, last_layer(s)}; },
       [](Site& site) { site.spec().layers.pop_back(); }},
  };
}

}  // namespace

std::vector<FaultRow> description_faults() {
  std::vector<FaultRow> rows;
  for (const auto& part : {norm_faults(), rope_faults(), attention_faults(), other_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
