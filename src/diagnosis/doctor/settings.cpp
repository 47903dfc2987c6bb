#include "diagnosis/doctor/settings.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace doppler::diagnosis {
namespace {

Fix setting(std::string path, std::string json) {
  return {.kind = Fix::Kind::kSetting, .target = std::move(path), .value = std::move(json)};
}

bool same_number(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

std::string cap_text(double cap) {
  return cap == 0 ? "null" : exact_text(cap);
}

// config.json's words; others are not written.
std::string activation_text(Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return "\"silu\"";
    case Activation::kGeluTanh:
      return "\"gelu_pytorch_tanh\"";
    case Activation::kGeluErf:
      return "\"gelu\"";
    case Activation::kRelu:
      return "\"relu\"";
    default:
      return {};
  }
}

class Between {
 public:
  Between(const ModelSpec& ours, const ModelSpec& right) : ours_(ours), right_(right) {}

  std::vector<SettingBetween> list() {
    if (!same_number(ours_.norm.eps, right_.norm.eps))
      add("norm_eps", setting("norm.eps", exact_text(right_.norm.eps)));
    if (!same_number(ours_.final_softcap, right_.final_softcap))
      add("final_softcap", setting("head.softcap", cap_text(right_.final_softcap)));
    if (!same_number(ours_.embedding_scale, right_.embedding_scale))
      add("embedding_scale", setting("embedding_scale", exact_text(right_.embedding_scale)));
    if (ours_.norm.weight_offset != right_.norm.weight_offset)
      add("norm_weight_offset", setting("norm.weight_offset", exact_text(right_.norm.weight_offset)));
    const std::size_t count = std::min(ours_.layers.size(), right_.layers.size());
    for (std::size_t i = 0; i < count; ++i) layer(i);
    return std::move(all_);
  }

 private:
  void add(const char* cause, Fix fix) {
    const auto same = [&](const SettingBetween& s) { return s.cause == cause && s.fix.same_as(fix); };
    if (std::ranges::none_of(all_, same)) all_.push_back({cause, std::move(fix)});
  }
  void add_rope(const char* cause, AttentionKind kind, const char* value, const std::string& json) {
    for (Fix& fix : rope_setting(kind, value, json)) add(cause, std::move(fix));
  }

  void layer(std::size_t i) {
    const LayerSpec &a = ours_.layers[i], &b = right_.layers[i];
    const AttentionSpec &x = a.attention, &y = b.attention;
    if (x.kind != y.kind) {
      // Where no layer has a window any more, both the number and the list may be lost.
      const bool lost =
          std::ranges::all_of(ours_.layers, [](const LayerSpec& l) { return l.attention.window == 0; });
      if (lost) add("sliding_window", setting("attention.window", std::to_string(y.window)));
      add(lost ? "sliding_window" : "layer_types",
          setting(fmt::format("layers[{}].attention.kind", i),
                  y.kind == AttentionKind::kSliding ? "\"sliding_attention\"" : "\"full_attention\""));
    } else {  // a layer of the other kind has the other kind's values
      if (x.window != y.window && y.window > 0)
        add("sliding_window", setting("attention.window", std::to_string(y.window)));
      if (!same_number(x.rope.theta, y.rope.theta))
        add_rope("rope_theta", y.kind, "theta", exact_text(y.rope.theta));
      if (x.rope.rotary_dim != y.rope.rotary_dim)
        add_rope("rope_dims", y.kind, "rotary_dim", std::to_string(y.rope.rotary_dim));
      if (const std::string scaling = scaling_text(y.rope);
          !(x.rope.scaling == y.rope.scaling) && !scaling.empty())
        add_rope("rope_scaling", y.kind, "scaling", scaling);
    }
    if (!same_number(x.scale, y.scale))
      add("attention_scale", setting("attention.query_pre_attn_scalar", exact_text(1 / (y.scale * y.scale))));
    if (!same_number(x.softcap, y.softcap))
      add("attention_softcap", setting("attention.softcap", cap_text(y.softcap)));
    if (const std::string word = activation_text(b.ffn.activation);
        a.ffn.activation != b.ffn.activation && !word.empty())
      add("activation", setting("ffn.activation", word));
  }

  const ModelSpec &ours_, &right_;
  std::vector<SettingBetween> all_;
};

}  // namespace

std::string exact_text(double number) {
  const std::string text = fmt::format("{:.9g}", number);
  return std::strtod(text.c_str(), nullptr) == number ? text : fmt::format("{:.17g}", number);
}

std::vector<Fix> rope_setting(AttentionKind kind, const std::string& value, const std::string& json) {
  const char* of = kind == AttentionKind::kSliding ? "sliding" : "full";
  return {setting(fmt::format("attention.rope.{}", value), json),
          setting(fmt::format("attention.rope[{}].{}", of, value), json)};
}

std::string scaling_text(const RopeSpec& rope) {
  const RopeScaling& s = rope.scaling;
  Json words = {{"rope_theta", rope.theta}};
  switch (s.kind) {
    case RopeScalingKind::kNone:
      words["rope_type"] = "default";
      break;
    case RopeScalingKind::kLinear:
      words["rope_type"] = "linear", words["factor"] = s.factor;
      break;
    case RopeScalingKind::kLlama3:
      words["rope_type"] = "llama3", words["factor"] = s.factor;
      words["low_freq_factor"] = s.low_freq_factor, words["high_freq_factor"] = s.high_freq_factor;
      words["original_max_position_embeddings"] = s.original_context;
      break;
    case RopeScalingKind::kYarn:
      words["rope_type"] = "yarn", words["factor"] = s.factor;
      words["original_max_position_embeddings"] = s.original_context;
      words["beta_fast"] = s.beta_fast, words["beta_slow"] = s.beta_slow;
      words["attention_factor"] = s.attention_factor, words["truncate"] = s.truncate;
      break;
    default:
      return {};
  }
  return words.dump();
}

std::vector<SettingBetween> settings_between(const ModelSpec& ours, const ModelSpec& right) {
  return Between(ours, right).list();
}

}  // namespace doppler::diagnosis
