// Description faults of latent attention, of heads that rotate in part, of multipliers, of YaRN and of gates.
#include <algorithm>

#include "diagnosis/faults/faults_table.h"

namespace doppler::diagnosis::faults {
namespace {

constexpr auto kDescription = FaultKind::kDescription;

std::function<void(Site&)> replan(std::function<void(Plan&, Op&)> change) {
  return [change = std::move(change)](Site& site) {
    site.change_plan([change](Plan& made) {
      for (Op& op : made.ops) change(made, op);
    });
  };
}

// The op's value goes on as its last input is.
void pass_through(Op& op) {
  op.kind = OpKind::kSoftcap;
  op.inputs = {op.inputs.back()};
  op.weights.clear();
  op.biases.clear();
  op.params = SoftcapParams{};
}
std::function<void(Site&)> leave_out(Stage stage) {
  return replan([stage](Plan& made, Op& op) {
    if (made.values[op.outputs[0]].stage == stage) pass_through(op);
  });
}

int first_where(const Subject& s, const std::function<bool(const LayerSpec&)>& is) {
  const auto found = std::ranges::find_if(s.spec.layers, is);
  return found == s.spec.layers.end() ? -1 : static_cast<int>(found - s.spec.layers.begin());
}
struct Part {
  std::function<bool(const LayerSpec&)> is;
  Stage stage;
};
auto exists(const Part& part) {
  return [=](const Subject& s) { return first_where(s, part.is) >= 0; };
}
auto at_part(const Part& part) {
  return [=](const Subject& s) { return FaultPlace{part.stage, first_where(s, part.is)}; };
}

const Part kLatent = {[](const LayerSpec& l) { return l.has_attention && l.attention.is_latent(); },
                      Stage::kKvANorm};
const Part kQueryLatent = {
    [](const LayerSpec& l) { return l.has_attention && l.attention.latent.q_rank > 0; }, Stage::kQANorm};
const Part kLatentRope = {kLatent.is, Stage::kQRope};
// A part of each head rotates, the first.
const Part kPartialRope = {[](const LayerSpec& l) {
                             const AttentionSpec& a = l.attention;
                             return l.has_attention && !a.is_latent() && a.rope.rotary_dim > 0 &&
                                    a.rope.rotary_dim < a.head_dim;
                           },
                           Stage::kQRope};
const Part kYarn = {[](const LayerSpec& l) {
                      return l.has_attention && l.attention.rope.scaling.kind == RopeScalingKind::kYarn;
                    },
                    Stage::kQRope};
const Part kSharedGate = {[](const LayerSpec& l) { return l.has_ffn && l.ffn.shared_gate; },
                          Stage::kFfnShared};
const Part kConvolutionBias = {
    [](const LayerSpec& l) { return l.recurrent.exists() && l.recurrent.conv_bias; }, Stage::kConvOut};

std::function<void(Site&)> each_scaling(std::function<void(RopeScaling&)> change) {
  return [change = std::move(change)](Site& site) {
    for (LayerSpec& layer : site.spec().layers) change(layer.attention.rope.scaling);
  };
}

// Rounding the range outwards changes nothing where it is whole already.
bool rounding_shows(const Subject& s) {
  const int layer = first_where(s, kYarn.is);
  if (layer < 0) return false;
  RopeSpec rope = s.spec.layers[static_cast<std::size_t>(layer)].attention.rope;
  const RopeTable as_it_is = make_rope_table(rope, s.spec.context_length);
  rope.scaling.truncate = !rope.scaling.truncate;
  return make_rope_table(rope, s.spec.context_length).inverse_frequency != as_it_is.inverse_frequency;
}

std::vector<FaultRow> rotation_faults() {
  return {
      {{"latent_rope_on_first_dims", kDescription, "rope_dims", "latent attention",
        "the first dims of queries rotate, not those behind what the latent gives"},
       exists(kLatentRope),
       at_part(kLatentRope),
       replan([](Plan& made, Op& op) {
         if (auto* rope = std::get_if<RopeParams>(&op.params);
             rope != nullptr && made.values[op.outputs[0]].stage == Stage::kQRope)
           rope->begin = 0;
       })},
      {{"rope_on_last_dims", kDescription, "rope_dims", "models of whose heads a part rotates",
        "the last dims of each head rotate instead of the first"},
       exists(kPartialRope),
       at_part(kPartialRope),
       replan([](Plan& made, Op& op) {
         auto* rope = std::get_if<RopeParams>(&op.params);
         if (rope == nullptr) return;
         const Value& out = made.values[op.outputs[0]];
         const auto turning =
             2 * static_cast<std::uint32_t>(made.rope_tables[rope->table].inverse_frequency.size());
         rope->begin = out.width / out.heads - turning;
       })},
      {{"yarn_attention_factor_missing", kDescription, "rope_scaling", "YaRN with an attention factor",
        "queries and keys are not multiplied by YaRN's attention factor"},
       [](const Subject& s) {
         const int layer = first_where(s, kYarn.is);
         return layer >= 0 &&
                s.spec.layers[static_cast<std::size_t>(layer)].attention.rope.scaling.attention_factor != 1;
       },
       at_part(kYarn),
       each_scaling([](RopeScaling& scaling) { scaling.attention_factor = 1; })},
      {{"yarn_range_rounded", kDescription, "rope_scaling", "YaRN",
        "the range of pairs that YaRN corrects is rounded where the model does not, or not where it does"},
       rounding_shows,
       at_part(kYarn),
       each_scaling([](RopeScaling& scaling) { scaling.truncate = !scaling.truncate; })},
  };
}

std::vector<FaultRow> multiplier_faults() {
  return {
      {{"residual_scale_missing", kDescription, "residual_scale", "Granite, MiniCPM",
        "what attention and feed-forward give is added as it is, without its multiplier"},
       [](const Subject& s) { return s.spec.residual_scale != 1; },
       [](const Subject& s) {
         const LayerSpec& first = s.spec.layers.front();
         return FaultPlace{first.has_ffn ? Stage::kPostAttn : Stage::kLayerOut, 0};
       },
       [](Site& site) { site.spec().residual_scale = 1; }},
      {{"logit_scale_missing", kDescription, "logit_scale", "Cohere, Granite", "logits are not multiplied"},
       [](const Subject& s) { return s.spec.logit_scale != 1; },
       at(Stage::kLogitsFinal, -1),
       [](Site& site) { site.spec().logit_scale = 1; }},
  };
}

}  // namespace

std::vector<FaultRow> latent_faults() {
  std::vector<FaultRow> rows = {
      {{"latent_norm_missing", kDescription, "latent_norm_missing", "latent attention",
        "the latent of keys and values is not normalised"},
       exists(kLatent),
       at_part(kLatent),
       leave_out(Stage::kKvANorm)},
      {{"query_latent_norm_missing", kDescription, "latent_norm_missing",
        "latent attention with one of queries", "the latent of queries is not normalised"},
       exists(kQueryLatent),
       at_part(kQueryLatent),
       leave_out(Stage::kQANorm)},
      {{"shared_expert_ungated", kDescription, "shared_expert_gate", "shared experts with a gate",
        "the shared expert's result is added whole"},
       exists(kSharedGate),
       at_part(kSharedGate),
       leave_out(Stage::kFfnShared)},
      {{"convolution_bias_missing", kDescription, "bias_missing", "convolutions with a bias",
        "the biases of convolutions are left out"},
       exists(kConvolutionBias),
       at_part(kConvolutionBias),
       replan([](Plan&, Op& op) {
         if (op.kind == OpKind::kConvolution) op.biases.clear();
       })},
  };
  for (const auto& part : {rotation_faults(), multiplier_faults()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace doppler::diagnosis::faults
