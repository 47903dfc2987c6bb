// A converted model beside the one that it was made of: the description value by value, and the weights
// (doctor_source_weights.cpp). Texts are compared in doctor_texts.cpp.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "diagnosis/doctor/source_differences.h"
#include "model/rope.h"

namespace doppler::diagnosis::doctor {
namespace {

bool alike(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

struct Value {
  const char* cause;
  const char* what;  // "the window"
  Stage stage;
  double ours, source;
  int first = 0;  // of what all layers have: the first layer where it shows
};

void compare_values(const std::vector<Value>& values, int layer, Differences& to) {
  for (const Value& v : values) {
    if (alike(v.ours, v.source)) continue;
    const std::string where = layer < 0 ? std::string() : fmt::format(" of layer {}", layer);
    to.add(
        {.cause = v.cause,
         .stage = std::string(stage_name(v.stage)),
         .layer = layer < 0 && stage_info(v.stage).per_layer ? v.first : layer,
         .explanation = fmt::format("{}{} is {:.9g}, the source's {:.9g}.", v.what, where, v.ours, v.source),
         .repair = fmt::format("Set {} to {:.9g}.",
                               v.what[0] == 'T' ? std::string("t") + (v.what + 1) : v.what, v.source)});
  }
}

void compare_rope(const RopeSpec& ours, const RopeSpec& source, std::uint64_t context, int layer,
                  Differences& to) {
  if (ours.layout != source.layout) {
    to.add({.cause = "rope_layout",
            .stage = "q_rope",
            .layer = layer,
            .explanation = fmt::format("Rotary pairs of layer {} are {}, the source's {}.", layer,
                                       name_of(ours.layout), name_of(source.layout))});
  }
  if (ours.rotary_dim != source.rotary_dim)
    return compare_values({{"rope_dims", "The number of rotating dims", Stage::kQRope,
                            double{1} * ours.rotary_dim, double{1} * source.rotary_dim}},
                          layer, to);
  const RopeTable a = make_rope_table(ours, context), b = make_rope_table(source, context);
  if (turn_alike(a, b, context, 1e-6)) return;  // GGUF files may hold divisors where config.json has a rule
  if (!alike(ours.theta, source.theta))
    return compare_values({{"rope_theta", "The rotary base", Stage::kQRope, ours.theta, source.theta}}, layer,
                          to);
  to.add({.cause = "rope_scaling",
          .stage = "q_rope",
          .layer = layer,
          .explanation = fmt::format(
              "The angles of layer {} are scaled by the kind {} (factor {:.6g}), the source's by {} "
              "({:.6g}).",
              layer, name_of(ours.scaling.kind), ours.scaling.factor, name_of(source.scaling.kind),
              source.scaling.factor)});
}

void compare_layers(const ModelSpec& ours, const ModelSpec& source, std::size_t i, Differences& to) {
  const LayerSpec &a = ours.layers[i], &b = source.layers[i];
  const AttentionSpec &at = a.attention, &bt = b.attention;
  const int layer = static_cast<int>(i);
  const auto flag = [](bool on) { return on ? 1.0 : 0.0; };
  compare_values({{"qk_norm_missing", "The flag for norms of queries and keys", Stage::kQNorm,
                   flag(at.qk_norm), flag(bt.qk_norm)},
                  {"bias_missing", "The flag for biases of q, k and v", Stage::kQProj, flag(at.qkv_bias),
                   flag(bt.qkv_bias)}},
                 layer, to);
  // A file without any window has lost them; else layers may have changed their kinds, and with them their
  // rotation.
  const bool windows =
      std::ranges::any_of(ours.layers, [](const LayerSpec& l) { return l.attention.window > 0; });
  if (windows && at.kind != bt.kind) {
    const bool turns = at.rope.theta != bt.rope.theta;
    compare_values(
        {{"layer_types", "The kind of attention (1: a window)", turns ? Stage::kQRope : Stage::kAttnOut,
          flag(at.kind == AttentionKind::kSliding), flag(bt.kind == AttentionKind::kSliding)}},
        layer, to);
  } else {
    compare_rope(at.rope, bt.rope, source.context_length, layer, to);
    compare_values(
        {{"sliding_window", "The window", Stage::kAttnOut, double{1} * at.window, double{1} * bt.window}},
        layer, to);
  }
  compare_values(
      {{"head_grouping", "The number of heads", Stage::kQProj, double{1} * at.heads, double{1} * bt.heads},
       {"head_grouping", "The number of key heads", Stage::kQProj, double{1} * at.kv_heads,
        double{1} * bt.kv_heads},
       {"attention_scale", "The scale of attention scores", Stage::kAttnOut, at.scale, bt.scale},
       {"attention_softcap", "The cap of attention scores", Stage::kAttnOut, at.softcap, bt.softcap},
       {"post_norm_missing", "The flag for the norm after attention", Stage::kPostAttnNorm,
        flag(a.post_attn_norm), flag(b.post_attn_norm)},
       {"post_norm_missing", "The flag for the norm after the feed-forward", Stage::kPostFfnNorm,
        flag(a.post_ffn_norm), flag(b.post_ffn_norm)}},
      layer, to);
  if (a.ffn.activation != b.ffn.activation) {
    to.add({.cause = "activation",
            .stage = "ffn_act",
            .layer = layer,
            .explanation = fmt::format("The activation is {}, the source's {}.", name_of(a.ffn.activation),
                                       name_of(b.ffn.activation)),
            .repair = fmt::format("Set hidden_act to {}.", name_of(b.ffn.activation))});
  }
}

void compare_specs(const ModelSpec& ours, const ModelSpec& source, Differences& to) {
  compare_values(
      {{"embedding_scale", "The scale of embeddings", Stage::kEmbedOut, ours.embedding_scale,
        source.embedding_scale},
       {"norm_eps", "The epsilon of norms", Stage::kAttnNormed, ours.norm.eps, source.norm.eps},
       {"final_softcap", "The cap of logits", Stage::kLogitsFinal, ours.final_softcap, source.final_softcap},
       {"layer_count", "The number of layers", Stage::kAttnInput, double(ours.layers.size()),
        double(source.layers.size()), static_cast<int>(std::min(ours.layers.size(), source.layers.size()))}},
      -1, to);
  for (std::size_t i = 0; i < std::min(ours.layers.size(), source.layers.size()); ++i)
    compare_layers(ours, source, i, to);
}

}  // namespace

Result<Outcome> check_source(const Examination& e) {
  if (e.options.source == nullptr) return Outcome::skip("no --source is given");
  Differences differences(e);
  compare_specs(e.subject.spec, e.options.source->model->spec, differences);
  differences.set_values(settings_between(e.subject.spec, e.options.source->model->spec));
  Outcome outcome = compare_weights(e, differences);
  differences.report();
  return outcome;
}

}  // namespace doppler::diagnosis::doctor
