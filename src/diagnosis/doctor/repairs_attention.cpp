// Repairs of attention: scales, caps, windows, masks, heads, and errors of a cache.
#include <algorithm>
#include <cmath>
#include <set>

#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis::repairs {
namespace {

AttentionParams& attention_params(OpSetup& setup) {
  return std::get<AttentionParams>(setup.params);
}
const AttentionParams& attention_params(const OpCase& c) {
  return std::get<AttentionParams>(c.setup().params);
}

// Other numbers that models of this shape multiply scores by, each with its name.
std::vector<std::pair<double, std::string>> scales(const OpCase& c) {
  const AttentionParams& a = attention_params(c);
  const double d = a.head_dim, hidden = c.context().spec.hidden;
  std::vector<std::pair<double, std::string>> found = {
      {1 / std::sqrt(d), "1 / sqrt(head_dim)"},
      {1 / d, "1 / head_dim"},
      {1, "1"},
      {1 / std::sqrt(hidden / a.heads), "1 / sqrt(hidden_size / heads)"},
      {1 / std::sqrt(std::sqrt(d)), "1 / sqrt(sqrt(head_dim))"},
      {1 / std::sqrt(hidden), "1 / sqrt(hidden_size)"}};
  for (const LayerSpec& layer : c.context().spec.layers) {
    if (layer.attention.scale != a.scale)
      found.emplace_back(layer.attention.scale, "that of the description");
  }
  // query_pre_attn_scalar is a whole number.
  for (const int scalar :
       {8, 16, 24, 32, 48, 64, 80, 96, 100, 112, 120, 128, 144, 160, 168, 192, 224, 256, 512})
    found.emplace_back(1 / std::sqrt(scalar), fmt::format("1 / sqrt({})", scalar));
  return found;
}

}  // namespace

void attention_scale(OpCase& c) {
  const double own = attention_params(c).scale;
  std::set<double> seen = {own};
  for (const auto& [scale, name] : scales(c)) {
    if (!seen.insert(scale).second) continue;
    c.attempt("attention_scale", fmt::format("scores are multiplied by {}, {}", number(scale), name),
              fmt::format("Set query_pre_attn_scalar to {} (the scale is {}).", number(1 / (scale * scale)),
                          number(own)),
              [&](OpSetup& s) { attention_params(s).scale = scale; });
    c.add_setting("attention.query_pre_attn_scalar", number(1 / (scale * scale)));
  }
}

void attention_softcap(OpCase& c) {
  std::set<double> caps = {0, 15, 20, 30, 50, 100};
  for (const LayerSpec& layer : c.context().spec.layers) caps.insert(layer.attention.softcap);
  for (const double cap : caps) {
    if (cap == attention_params(c).softcap) continue;
    c.attempt("attention_softcap",
              cap == 0 ? "scores are not capped" : fmt::format("scores are capped at {}", cap),
              cap == 0 ? "Set attn_logit_softcapping to null."
                       : fmt::format("Set attn_logit_softcapping to {}.", cap),
              [&](OpSetup& s) { attention_params(s).softcap = cap; });
    c.add_setting("attention.softcap", cap == 0 ? "null" : number(cap));
  }
}

void attention_both(OpCase& c) {
  if (c.explained()) return;
  const AttentionParams own = attention_params(c);
  std::set<double> seen = {own.scale};
  for (const auto& [scale, name] : scales(c)) {
    if (!seen.insert(scale).second) continue;
    for (const double cap : {0.0, 15.0, 20.0, 30.0, 50.0, 100.0}) {
      if (cap == own.softcap) continue;
      const std::string capped = cap == 0 ? "not capped" : fmt::format("capped at {}", cap);
      c.attempt(
          "attention_scale",
          fmt::format("scores are multiplied by {}, {}, and {}", number(scale), name, capped),
          fmt::format("Set query_pre_attn_scalar to {} (the scale is {}) and attn_logit_softcapping to {}.",
                      number(1 / (scale * scale)), number(own.scale), cap == 0 ? "null" : number(cap)),
          [&](OpSetup& s) { attention_params(s).scale = scale, attention_params(s).softcap = cap; });
      c.add_setting("attention.query_pre_attn_scalar", number(1 / (scale * scale)));
      c.add_setting("attention.softcap", cap == 0 ? "null" : number(cap));
      if (c.explained()) return;
    }
  }
}

// A scale and a window: the wrong scale hides which positions are seen.
void attention_scale_and_window(OpCase& c) {
  if (c.explained()) return;
  const AttentionParams own = attention_params(c);
  std::set<std::uint32_t> windows = {0};
  for (const LayerSpec& layer : c.context().spec.layers) windows.insert(layer.attention.window);
  if (own.window > 1) windows.insert({own.window - 1, own.window + 1, 2 * own.window, own.window / 2});
  std::set<double> seen = {own.scale};
  for (const auto& [scale, name] : scales(c)) {
    if (!seen.insert(scale).second) continue;
    for (const std::uint32_t window : windows) {
      if (window == own.window) continue;
      const std::string sees =
          window == 0 ? "the layer attends to everything" : fmt::format("the window is {}", window);
      c.attempt(
          "attention_scale",
          fmt::format("scores are multiplied by {}, {}, and {}", number(scale), name, sees),
          fmt::format(
              "Set query_pre_attn_scalar to {} (the scale is {}) and sliding_window to {} (it is {}).",
              number(1 / (scale * scale)), number(own.scale), window == 0 ? "null" : std::to_string(window),
              own.window == 0 ? "none" : std::to_string(own.window)),
          [&](OpSetup& s) { attention_params(s).scale = scale, attention_params(s).window = window; });
      c.add_setting("attention.query_pre_attn_scalar", number(1 / (scale * scale)));
      if (window > 0 && own.window > 0) c.add_setting("attention.window", std::to_string(window));
      if (c.explained()) return;
    }
  }
}

void attention_window(OpCase& c) {
  const std::uint32_t own = attention_params(c).window;
  const auto keys = static_cast<std::uint32_t>(c.setup().inputs[1].data.size() / c.setup().inputs[1].width);
  std::set<std::uint32_t> of_layers;
  for (const LayerSpec& layer : c.context().spec.layers) of_layers.insert(layer.attention.window);
  const auto attempt = [&](std::uint32_t window) {
    if (window == own) return;
    c.attempt(
        "sliding_window",
        window == 0 ? "the layer attends to everything" : fmt::format("the window is {}", window),
        window == 0
            ? fmt::format("Let layer {} attend to everything: set sliding_window or layer_types.", c.layer())
            : fmt::format("Set the window of layer {} to {} (it is {}): sliding_window, or layer_types.",
                          c.layer(), window, own == 0 ? "none" : std::to_string(own)),
        [&](OpSetup& s) { attention_params(s).window = window; }, 1, window);
    if (window > 0 && own > 0) c.add_setting("attention.window", std::to_string(window));
    const bool all_have = std::ranges::all_of(c.context().spec.layers,
                                              [](const LayerSpec& l) { return l.attention.window > 0; });
    if (window == 0 && all_have) c.add_setting("attention.window", "null");
  };
  for (const std::uint32_t window : of_layers) attempt(window);
  if (!of_layers.contains(0)) attempt(0);
  // Only the windows that the prompt fills can be told apart.
  if (c.explained()) return;
  for (const std::uint32_t window : {own - 1, own + 1}) {
    if (own > 1 && !of_layers.contains(window) && window < keys) attempt(window);
  }
  for (std::uint32_t window = 1; window < keys && keys <= 4096 && !c.explained();
       window += keys > 256 ? 16 : 1) {
    if (!of_layers.contains(window) && window + 1 != own && window != own + 1) attempt(window);
  }
}

// A layer as those of the other kind are: with their window, and turned or not as theirs are.
void attention_kind(OpCase& c) {
  const auto& layers = c.context().spec.layers;
  if (c.explained() || !c.direct() || c.layer() < 0) return;
  const AttentionSpec& own = layers[static_cast<std::size_t>(c.layer())].attention;
  const auto like = std::ranges::find_if(layers, [&](const LayerSpec& other) {
    return other.attention.kind != own.kind && other.attention.head_dim == own.head_dim;
  });
  if (like == layers.end() || c.setup().inputs.size() < 2) return;
  const auto& experiment = c.context().experiment;
  const int other = static_cast<int>(like - layers.begin());
  const auto theirs = experiment.find(c.stage(), other);
  if (!theirs || c.plan().ops[*theirs].kind != OpKind::kAttention) return;
  const auto& params = std::get<AttentionParams>(c.plan().ops[*theirs].params);
  const bool turns = experiment.find(Stage::kQRope, other).has_value();
  const auto rows_of = [&](Stage stage) { return c.other(stage, c.layer()); };
  const bool normed = experiment.find(Stage::kQNorm, other).has_value();
  const auto q = rows_of(turns ? Stage::kQRope : normed ? Stage::kQNorm : Stage::kQProj);
  const auto k = rows_of(turns ? Stage::kKRope : normed ? Stage::kKNorm : Stage::kKProj);
  const bool sliding = like->attention.window > 0;
  c.attempt("layer_types",
            fmt::format("layer {} is of the other kind ({})", c.layer(), sliding ? "sliding" : "full"),
            fmt::format("Set layer_types (or sliding_window_pattern): layer {} should be of the other kind.",
                        c.layer()),
            [&](OpSetup& s) {
              auto& mine = std::get<AttentionParams>(s.params);
              mine.window = params.window, mine.chunked = params.chunked;
              if (q && q->size() == s.inputs[0].data.size()) s.inputs[0].data = *q;
              if (k && k->size() == s.inputs[1].data.size()) s.inputs[1].data = *k;
            });
}

void attention_heads(OpCase& c) {
  const AttentionParams& a = attention_params(c);
  const auto attempt = [&](const char* cause, std::string says,
                           const std::function<std::uint32_t(std::uint32_t)>& head) {
    c.attempt(cause, std::move(says), {}, [&](OpSetup& s) {
      s.head_map.resize(a.heads);
      for (std::uint32_t h = 0; h < a.heads; ++h) s.head_map[h] = head(h) % a.kv_heads;
    });
  };
  if (a.kv_heads > 1) {
    attempt("head_grouping", "query head h reads key head h mod kv_heads", [](std::uint32_t h) { return h; });
    attempt("head_grouping", "every query head reads key head 0", [](std::uint32_t) { return 0u; });
    attempt("head_grouping", "key heads count backwards",
            [&](std::uint32_t h) { return a.kv_heads - 1 - h / (a.heads / a.kv_heads); });
    attempt("head_grouping", "key heads are one further",
            [&](std::uint32_t h) { return h / (a.heads / a.kv_heads) + 1; });
  }
  c.attempt("tensor_swapped", "keys and values change places", "Exchange the key and value projections.",
            [](OpSetup& s) { std::swap(s.inputs[1], s.inputs[2]); });
  // Other queries and keys than the plan's.
  const auto rows_of = [&](Stage stage) {
    return c.context().experiment.rows().read(c.plan(), stage, c.layer());
  };
  const bool all = c.tokens() == c.context().experiment.rows().ids().size();
  for (const auto& [query, key] : {std::pair{Stage::kQRope, Stage::kKRope},
                                   {Stage::kQNorm, Stage::kKNorm},
                                   {Stage::kQProj, Stage::kKProj}}) {
    const auto q = rows_of(query), k = rows_of(key);
    if (!q || !k || !all || (*q == c.setup().inputs[0].data && *k == c.setup().inputs[1].data)) continue;
    c.attempt("rope_missing", fmt::format("it reads {} and {}", stage_name(query), stage_name(key)), {},
              [&](OpSetup& s) {
                s.inputs[0].data = *q;
                s.inputs[1].data = *k;
              });
  }
}

namespace {

// A single query, of a step of its own: its key and value may have been stored at a wrong place, and some
// places may be masked wrongly.
void one_query(OpCase& c) {
  const auto own = static_cast<std::size_t>(c.setup().positions[0]);
  const auto stored_at = [&](OpSetup& s, std::size_t place) {
    for (const std::size_t i : {1u, 2u}) {
      auto& rows = s.inputs[i];
      const auto at = [&](std::size_t p) {
        return rows.data.begin() + static_cast<std::ptrdiff_t>(p * rows.width);
      };
      if (place < own) std::copy_n(at(own), rows.width, at(place));
      std::fill_n(at(own), rows.width, 0.0f);
    }
  };
  // More positions than a doctor's own runs have cost too many attempts.
  if (own > 256) return;
  for (std::size_t place = 0; place < own && !c.explained(); ++place) {
    c.attempt("kv_counter", fmt::format("the key of position {} is stored at {}", own, place), {},
              [&](OpSetup& s) { stored_at(s, place); });
  }
  c.attempt("kv_append_offset", "a token's key and value are not where they are read", {},
            [&](OpSetup& s) { stored_at(s, own); });
  for (std::size_t seen = 1; seen < own && !c.explained(); ++seen) {
    c.attempt("kv_counter", fmt::format("only {} positions are seen", seen), {},
              [&](OpSetup& s) { s.sees = [seen](std::size_t, std::size_t p) { return p < seen; }; });
  }
}

}  // namespace

void attention_cache(OpCase& c) {
  const auto keys = c.setup().inputs[1].data.size() / c.setup().inputs[1].width;
  const std::vector<std::int32_t> positions = c.setup().positions;
  c.attempt("causal_mask_missing", "every token sees the whole prompt", {},
            [&](OpSetup& s) { s.sees = [](std::size_t, std::size_t) { return true; }; });
  const std::size_t window = attention_params(c).window;
  if (window > 0) {
    c.attempt("causal_mask_missing", "every token sees what comes after it, too", {}, [&](OpSetup& s) {
      s.sees = [&](std::size_t t, std::size_t p) {
        return p + window > static_cast<std::size_t>(positions[t]);
      };
    });
  }
  c.attempt("causal_mask_missing", "every token sees one token after it, too", {}, [&](OpSetup& s) {
    s.sees = [&](std::size_t t, std::size_t p) { return p <= static_cast<std::size_t>(positions[t]) + 1; };
  });
  c.attempt("kv_counter", "every token sees all but itself", {}, [&](OpSetup& s) {
    s.sees = [&](std::size_t t, std::size_t p) {
      return p < std::max<std::size_t>(1, static_cast<std::size_t>(positions[t]));
    };
  });
  c.attempt("kv_counter", "every token sees only itself", {}, [&](OpSetup& s) {
    s.sees = [&](std::size_t t, std::size_t p) { return p == static_cast<std::size_t>(positions[t]); };
  });
  c.attempt("kv_counter", "every token sees only the first", {},
            [&](OpSetup& s) { s.sees = [](std::size_t, std::size_t p) { return p == 0; }; });
  // The cache holds what was stored one place further, or earlier; places never written are zero.
  const auto shifted = [&](OpSetup& s, std::ptrdiff_t by, bool repeat) {
    for (const std::size_t i : {1u, 2u}) {
      auto& rows = s.inputs[i];
      std::vector<float> moved(rows.data.size(), 0.0f);
      for (std::ptrdiff_t p = 0; p < static_cast<std::ptrdiff_t>(keys); ++p) {
        std::ptrdiff_t from = p - by;
        if (repeat) from = std::clamp<std::ptrdiff_t>(from, 0, static_cast<std::ptrdiff_t>(keys) - 1);
        if (from < 0 || from >= static_cast<std::ptrdiff_t>(keys)) continue;
        std::copy_n(rows.data.begin() + from * static_cast<std::ptrdiff_t>(rows.width), rows.width,
                    moved.begin() + p * static_cast<std::ptrdiff_t>(rows.width));
      }
      rows.data = std::move(moved);
    }
  };
  c.attempt("kv_append_offset", "keys and values lie one position further, and zeros before them", {},
            [&](OpSetup& s) { shifted(s, 1, false); });
  c.attempt("kv_append_offset", "keys and values lie one position earlier", {},
            [&](OpSetup& s) { shifted(s, -1, false); });
  c.attempt("kv_append_offset", "keys and values lie one position further, and the first twice", {},
            [&](OpSetup& s) { shifted(s, 1, true); });
  c.attempt("kv_append_offset", "keys and values lie one position earlier, and the last twice", {},
            [&](OpSetup& s) { shifted(s, -1, true); });
  // Empty places of the capacity take part with a score of 0. There may be thousands: their rounding is only
  // computed if the remaining error is small.
  const auto empty_places = [&](std::uint64_t capacity, const char* which, auto sees) {
    constexpr double kLittle = 30;
    const OpChange change = [&](OpSetup& s) {
      for (const std::size_t i : {1u, 2u}) s.inputs[i].data.resize(capacity * s.inputs[i].width, 0.0f);
      s.sees = sees;
    };
    double ratio = c.ratio_with(change, true);
    if (ratio > 1 && ratio < kLittle) ratio = c.ratio_with(change);
    c.keep({"whole_cache_attended", fmt::format("{} places take part, {}", capacity, which), {}, ratio, 1});
  };
  for (std::uint64_t capacity = 64; capacity <= 4096 && !c.explained(); capacity *= 2) {
    if (capacity <= keys) continue;
    empty_places(capacity, "empty ones too", [&](std::size_t t, std::size_t p) {
      return p <= static_cast<std::size_t>(positions[t]) || p >= keys;
    });
    empty_places(capacity, "empty and later ones too", [](std::size_t, std::size_t) { return true; });
  }
  if (c.tokens() == 1 && !c.explained()) one_query(c);
}

// Searches a number that is not in the lists: a ternary search on a logarithmic scale, since the misfit has
// one minimum near the true value.
void attention_search(OpCase& c) {
  if (c.explained() || !c.direct()) return;
  const auto valley = [&](const std::function<void(OpSetup&, double)>& set, double low, double high) {
    constexpr int kPoints = 48;
    double best = low, least = INFINITY;
    const double step = std::log(high / low) / kPoints;
    for (int i = 0; i <= kPoints; ++i) {
      const double x = low * std::exp(step * i);
      const double ratio = c.ratio_with([&](OpSetup& s) { set(s, x); }, true);
      if (ratio < least) least = ratio, best = x;
    }
    double a = best * std::exp(-step), b = best * std::exp(step);
    for (int i = 0; i < 60 && b / a > 1 + 1e-7; ++i) {
      const double u = a * std::cbrt(b / a), v = b / std::cbrt(b / a);
      const double left = c.ratio_with([&](OpSetup& s) { set(s, u); }, true),
                   right = c.ratio_with([&](OpSetup& s) { set(s, v); }, true);
      (left < right ? b : a) = left < right ? v : u;
    }
    return std::sqrt(a * b);
  };
  // Each point costs a run of the op: not for prompts of thousands of tokens.
  if (c.setup().inputs[0].data.size() * c.tokens() > 50'000'000) return;
  const double scale = valley([](OpSetup& s, double x) { attention_params(s).scale = x; }, 1e-3, 10);
  c.attempt(
      "attention_scale", fmt::format("scores are multiplied by {}", number(scale)),
      fmt::format("Set query_pre_attn_scalar to {} (the scale is {}).", number(1 / (scale * scale)),
                  number(attention_params(c).scale)),
      [&](OpSetup& s) { attention_params(s).scale = scale; }, 0.9);
  if (c.explained()) return;
  const double cap = valley([](OpSetup& s, double x) { attention_params(s).softcap = x; }, 0.1, 1000);
  c.attempt(
      "attention_softcap", fmt::format("scores are capped at {}", number(cap)),
      fmt::format("Set attn_logit_softcapping to {}.", number(cap)),
      [&](OpSetup& s) { attention_params(s).softcap = cap; }, 0.9);
}

}  // namespace doppler::diagnosis::repairs
