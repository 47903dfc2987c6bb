// Differences between a written file's spec and that of its source: GGUF cannot express all of a model.
#include <algorithm>
#include <array>
#include <cmath>

#include "convert/source.h"
#include "model/rope.h"

namespace doppler::convert {
namespace {

std::string_view gated_norm_name(GatedNorm norm) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "norm_then_gate", "gate_then_norm"};
  return kNames[static_cast<std::size_t>(norm)];
}

// Floats of GGUF metadata have 24 bits.
constexpr double kRounding = 1e-6;

bool near(double a, double b) {
  return a == b || std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
}

class Differences {
 public:
  void check_text(std::string_view what, std::string_view wanted, std::string_view got) {
    if (wanted != got) out_.push_back(fmt::format("{} is {}, not {}", what, got, wanted));
  }
  void check(std::string_view what, double wanted, double got) {
    if (!near(wanted, got)) out_.push_back(fmt::format("{} is {}, not {}", what, got, wanted));
  }
  void check_layer(const LayerSpec& wanted, const LayerSpec& got, double context) {
    const AttentionSpec &a = wanted.attention, &b = got.attention;
    check_text("attention.kind", name_of(a.kind), name_of(b.kind));
    if (a.kind != AttentionKind::kFull) check("attention.window", a.window, b.window);
    check("has_attention", wanted.has_attention, got.has_attention);
    check("has_ffn", wanted.has_ffn, got.has_ffn);
    check_recurrent(wanted.recurrent, got.recurrent);
    if (wanted.has_ffn && got.has_ffn) check_ffn(wanted.ffn, got.ffn);
    check("parallel", wanted.parallel, got.parallel);
    check("post_attn_norm", wanted.post_attn_norm, got.post_attn_norm);
    check("post_ffn_norm", wanted.post_ffn_norm, got.post_ffn_norm);
    check("attn_in_scale", wanted.attn_in_scale, got.attn_in_scale);
    check("attn_out_scale", wanted.attn_out_scale, got.attn_out_scale);
    if (!wanted.has_attention) return;
    check("attention.heads", a.heads, b.heads);
    check("attention.kv_heads", a.kv_heads, b.kv_heads);
    check("attention.head_dim", a.head_dim, b.head_dim);
    check("attention.scale", a.scale, b.scale);
    check("attention.softcap", a.softcap, b.softcap);
    check("attention.qk_norm", a.qk_norm, b.qk_norm);
    check("attention.qkv_bias", a.qkv_bias, b.qkv_bias);
    check("attention.o_bias", a.o_bias, b.o_bias);
    check("attention.query_scale.beta", a.query_scale.beta, b.query_scale.beta);
    check("attention.query_scale.every", a.query_scale.every, b.query_scale.every);
    check("attention.output_gate", a.output_gate, b.output_gate);
    check_rope(a.rope, b.rope, context);
  }
  bool empty() const { return out_.empty(); }
  std::vector<std::string> take() { return std::move(out_); }

 private:
  void check_ffn(const FfnSpec& a, const FfnSpec& b) {
    check_text("ffn.activation", name_of(a.activation), name_of(b.activation));
    check("ffn.width", a.width, b.width);
    check("ffn.gated", a.gated, b.gated);
    check("ffn.bias", a.bias, b.bias);
    check("ffn.expert_bias", a.expert_bias, b.expert_bias);
    check("ffn.xielu.alpha_p", a.xielu.alpha_p, b.xielu.alpha_p);
    check("ffn.xielu.alpha_n", a.xielu.alpha_n, b.xielu.alpha_n);
    check("ffn.gate_scale", a.gate_scale, b.gate_scale);
    check("ffn.out_scale", a.out_scale, b.out_scale);
    check("ffn.experts", a.experts, b.experts);
    if (a.experts == 0 || b.experts == 0) return;
    check("ffn.shared_width", a.shared_width, b.shared_width);
    check("ffn.latent_width", a.latent_width, b.latent_width);
    const RouterSpec &p = a.router, &q = b.router;
    check_text("ffn.router.score", name_of(p.score), name_of(q.score));
    check("ffn.router.top_k", p.top_k, q.top_k);
    check("ffn.router.groups", p.groups, q.groups);
    check("ffn.router.kept_groups", p.kept_groups, q.kept_groups);
    check("ffn.router.correction", p.correction, q.correction);
    check("ffn.router.normalise", p.normalise, q.normalise);
    check("ffn.router.scale", p.scale, q.scale);
    check("ffn.router.jitter", p.jitter, q.jitter);
  }

  void check_recurrent(const RecurrentSpec& a, const RecurrentSpec& b) {
    check_text("recurrent.kind", name_of(a.kind), name_of(b.kind));
    if (!a.exists() || !b.exists()) return;
    check("recurrent.taps", a.taps, b.taps);
    check("recurrent.heads", a.heads, b.heads);
    check("recurrent.head_dim", a.head_dim, b.head_dim);
    check("recurrent.groups", a.groups, b.groups);
    check("recurrent.state_dim", a.state_dim, b.state_dim);
    check("recurrent.rank", a.rank, b.rank);
    check("recurrent.in_bias", a.in_bias, b.in_bias);
    check("recurrent.conv_bias", a.conv_bias, b.conv_bias);
    check("recurrent.out_bias", a.out_bias, b.out_bias);
    check_text("recurrent.norm", gated_norm_name(a.norm), gated_norm_name(b.norm));
    check("recurrent.norm_groups", a.norm_groups, b.norm_groups);
    check("recurrent.min_step", a.min_step, b.min_step);
    check("recurrent.max_step", a.max_step, b.max_step);
    check("recurrent.in_scale", a.in_scale, b.in_scale);
    check("recurrent.out_scale", a.out_scale, b.out_scale);
  }

  // Scalings have several spellings: the angles decide, within and beyond the original context.
  void check_rope(const RopeSpec& wanted, const RopeSpec& got, double context) {
    check("rope.rotary_dim", wanted.rotary_dim, got.rotary_dim);
    if (wanted.rotary_dim == 0) return;
    check("rope.theta", wanted.theta, got.theta);
    if (!out_.empty()) return;
    for (const double at : {1.0, context}) {
      const RopeTable a = make_rope_table(wanted, static_cast<std::uint64_t>(at));
      const RopeTable b = make_rope_table(got, static_cast<std::uint64_t>(at));
      if (turn_alike(a, b, static_cast<std::uint64_t>(context), kRounding)) continue;
      out_.push_back(
          fmt::format("rope.scaling is {}, not {}", name_of(got.scaling.kind), name_of(wanted.scaling.kind)));
      return;
    }
  }

  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> spec_differences(const ModelSpec& wanted, const ModelSpec& got) {
  Differences all;
  all.check("vocab_size", wanted.vocab_size, got.vocab_size);
  all.check("hidden", wanted.hidden, got.hidden);
  all.check("context_length", wanted.context_length, got.context_length);
  all.check("norm.eps", wanted.norm.eps, got.norm.eps);
  all.check("embedding_scale", wanted.embedding_scale, got.embedding_scale);
  all.check("residual_scale", wanted.residual_scale, got.residual_scale);
  all.check("learned_positions", wanted.learned_positions, got.learned_positions);
  all.check("logit_scale", wanted.logit_scale, got.logit_scale);
  all.check("head.softcap", wanted.final_softcap, got.final_softcap);
  all.check("head.tied", wanted.tied_head, got.tied_head);
  all.check("layers", static_cast<double>(wanted.layers.size()), static_cast<double>(got.layers.size()));
  std::vector<std::string> out = all.take();
  const std::size_t layers = std::min(wanted.layers.size(), got.layers.size());
  std::vector<std::string> said;  // one layer is enough to say that all of its kind differ
  for (std::size_t i = 0; i < layers; ++i) {
    Differences layer;
    layer.check_layer(wanted.layers[i], got.layers[i], wanted.context_length);
    for (std::string& difference : layer.take()) {
      if (std::ranges::find(said, difference) != said.end()) continue;
      out.push_back(fmt::format("{} in layer {}", difference, i));
      said.push_back(std::move(difference));
    }
  }
  return out;
}

}  // namespace doppler::convert
