// Differences between a written file's spec and that of its source: GGUF cannot express all of a model.
#include <algorithm>
#include <cmath>

#include "convert/source.h"
#include "model/rope.h"

namespace doppler::convert {
namespace {

// Floats of GGUF metadata have 24 bits.
constexpr double kRounding = 1e-6;

bool near(double a, double b) {
  return std::abs(a - b) <= kRounding * std::max(std::abs(a), std::abs(b));
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
    check_rope(a.rope, b.rope, context);
    check_text("ffn.activation", name_of(wanted.ffn.activation), name_of(got.ffn.activation));
    check("ffn.width", wanted.ffn.width, got.ffn.width);
    check("ffn.bias", wanted.ffn.bias, got.ffn.bias);
    check("ffn.expert_bias", wanted.ffn.expert_bias, got.ffn.expert_bias);
    check("ffn.xielu.alpha_p", wanted.ffn.xielu.alpha_p, got.ffn.xielu.alpha_p);
    check("ffn.xielu.alpha_n", wanted.ffn.xielu.alpha_n, got.ffn.xielu.alpha_n);
    check("parallel", wanted.parallel, got.parallel);
    check("post_attn_norm", wanted.post_attn_norm, got.post_attn_norm);
    check("post_ffn_norm", wanted.post_ffn_norm, got.post_ffn_norm);
  }
  bool empty() const { return out_.empty(); }
  std::vector<std::string> take() { return std::move(out_); }

 private:
  // Scalings have several spellings: the angles decide, within and beyond the original context.
  void check_rope(const RopeSpec& wanted, const RopeSpec& got, double context) {
    check("rope.theta", wanted.theta, got.theta);
    check("rope.rotary_dim", wanted.rotary_dim, got.rotary_dim);
    if (!out_.empty()) return;
    for (const double at : {1.0, context}) {
      const RopeTable a = make_rope_table(wanted, static_cast<std::uint64_t>(at));
      const RopeTable b = make_rope_table(got, static_cast<std::uint64_t>(at));
      const bool same = near(a.magnitude, b.magnitude) &&
                        std::ranges::equal(a.inverse_frequency, b.inverse_frequency, near);
      if (same) continue;
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
