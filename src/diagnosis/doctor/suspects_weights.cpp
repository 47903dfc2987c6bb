// Suspects among the weights: what a converter may exchange, turn or read wrongly.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "diagnosis/doctor/trial.h"
#include "model/gguf_rows.h"

namespace doppler::diagnosis {
namespace {

using enum WeightRole;
using Change = std::function<Status(Trial&)>;

struct Pair {
  WeightRole a, b;
  const char* cause;
};
// Weights of one shape that are taken for each other.
constexpr auto kPairs = std::to_array<Pair>({
    {kK, kV, "tensor_swapped"},
    {kQNorm, kKNorm, "tensor_swapped"},
    {kAttnNorm, kFfnNorm, "tensor_swapped"},
    {kPostAttnNorm, kFfnNorm, "tensor_swapped"},
    {kPostAttnNorm, kPostFfnNorm, "tensor_swapped"},
    {kAttnNorm, kPostAttnNorm, "tensor_swapped"},
    {kFfnNorm, kPostFfnNorm, "tensor_swapped"},
    {kQ, kO, "tensor_swapped"},
    {kUp, kDown, "tensor_swapped"},
    {kKBias, kVBias, "tensor_swapped"},
});

bool has(const Subject& s, WeightRole role, int layer) {
  return s.weights.find(role, layer) != kNoWeight;
}
const TensorView& weight(const Subject& s, WeightRole role, int layer) {
  return s.weights[s.weights.find(role, layer)];
}
bool same_shape(const Subject& s, WeightRole a, WeightRole b, int layer) {
  return has(s, a, layer) && has(s, b, layer) && weight(s, a, layer).shape == weight(s, b, layer).shape;
}
std::string label(WeightRole role) {
  return std::string(weight_info(role).label);
}
Stage earlier(WeightRole a, WeightRole b) {
  return std::min(weight_info(a).stage, weight_info(b).stage);
}

// The same change on every layer that takes it.
Change every_layer(std::function<Status(Trial&, int)> change) {
  return [change = std::move(change)](Trial& trial) -> Status {
    Status last;
    bool any = false;
    for (int layer = 0; layer < static_cast<int>(trial.layers().size()); ++layer) {
      const Status done = change(trial, layer);
      if (done)
        any = true;
      else
        last = done;
    }
    return any ? Status() : last;
  };
}

Status reorder_rows(Trial& trial, WeightRole role, int layer,
                    const std::function<std::size_t(std::size_t)>& source) {
  if (!trial.has(role, layer)) return fail(ErrorCode::kNotFound, "The model lacks the weight.");
  const TensorView tensor = trial.weight(role, layer);
  if (tensor.shape.size() == 1) {
    std::vector<float> values(tensor.cols());
    DOPPLER_TRY(decode_f32(tensor, 0, values));
    return trial.read_anew(role, layer, [&](std::uint64_t, std::span<float> row) -> Status {
      for (std::size_t i = 0; i < row.size(); ++i) row[i] = values[source(i)];
      return {};
    });
  }
  return trial.read_anew(role, layer, [&](std::uint64_t row, std::span<float> values) {
    return decode_f32(tensor, source(row) * tensor.cols(), values);
  });
}

std::size_t head_dim(const Trial& trial, int layer) {
  return trial.subject().spec.layers[static_cast<std::size_t>(layer)].attention.head_dim;
}

// Rows of q and k in the order of rotary pairs.
Status turn_pairs(Trial& trial, int layer, bool queries, bool keys, bool to_pairs) {
  const std::size_t dim = head_dim(trial, layer);
  if (dim % 2 != 0) return fail(ErrorCode::kMismatch, "Heads have an odd number of dims.");
  const auto order = [dim, to_pairs](std::size_t row) {
    return to_pairs ? paired(row, dim) : unpaired(row, dim);
  };
  if (queries) DOPPLER_TRY(reorder_rows(trial, kQ, layer, order));
  if (keys) DOPPLER_TRY(reorder_rows(trial, kK, layer, order));
  if (queries && trial.has(kQBias, layer)) DOPPLER_TRY(reorder_rows(trial, kQBias, layer, order));
  if (keys && trial.has(kKBias, layer)) DOPPLER_TRY(reorder_rows(trial, kKBias, layer, order));
  return {};
}

// A way in which a fused tensor's rows lie: `groups` pieces of each part in turn, the parts in this order.
struct Fusing {
  std::vector<WeightRole> parts;  // in the order of the file
  std::uint64_t groups = 1;
  bool read = false;  // the tensor was cut so, and holds one part after the other; else the reverse
};
struct FusedRow {
  WeightRole role;
  std::uint64_t row;
};
using Sizes = std::map<WeightRole, std::uint64_t>;  // rows of each part

std::vector<FusedRow> fused_rows(const std::vector<WeightRole>& parts, std::uint64_t groups,
                                 const Sizes& sizes) {
  std::vector<FusedRow> rows;
  for (std::uint64_t g = 0; g < groups; ++g) {
    for (const WeightRole role : parts) {
      const std::uint64_t piece = sizes.at(role) / groups;
      for (std::uint64_t r = 0; r < piece; ++r) rows.push_back({role, g * piece + r});
    }
  }
  return rows;
}

// The parts of a layer's fused tensor, cut as they should be; `usual`: in the order in which they are read.
Status cut_again(Trial& trial, int layer, const std::vector<WeightRole>& usual, const Fusing& how) {
  std::map<WeightRole, TensorView> now;
  Sizes sizes;
  for (const WeightRole role : usual) {
    if (!trial.has(role, layer)) return fail(ErrorCode::kNotFound, "The model lacks the weight.");
    now[role] = trial.weight(role, layer);
    sizes[role] = now[role].shape[0];
    if (now[role].shape.size() != 2 || sizes[role] % how.groups != 0 ||
        now[role].cols() != now.begin()->second.cols())
      return fail(ErrorCode::kMismatch, "The parts are of other shapes.");
  }
  const std::vector<FusedRow> other = fused_rows(how.parts, how.groups, sizes),
                              plain = fused_rows(usual, 1, sizes);
  const std::vector<FusedRow>&written = how.read ? plain : other, &cut = how.read ? other : plain;
  std::map<WeightRole, std::vector<FusedRow>> sources;
  for (const WeightRole role : usual) sources[role].resize(sizes[role], {role, 0});
  for (std::size_t i = 0; i < written.size(); ++i) sources[written[i].role][written[i].row] = cut[i];
  for (const WeightRole role : usual) {
    DOPPLER_TRY(trial.read_anew(role, layer, [&](std::uint64_t row, std::span<float> values) {
      const FusedRow& from = sources[role][row];
      return decode_f32(now[from.role], from.row * values.size(), values);
    }));
  }
  return {};
}

struct FusedSuspect {
  std::string says;
  std::vector<WeightRole> usual;
  Fusing how;
};
// What files are known to hold, and what readers are known to take them for.
std::vector<FusedSuspect> fused_suspects(const Subject& s, int layer, bool of_attention) {
  std::vector<FusedSuspect> all;
  if (!of_attention) {
    const std::vector<WeightRole> usual = {kGate, kUp};
    if (!same_shape(s, kGate, kUp, layer)) return all;
    const std::uint64_t rows = weight(s, kGate, layer).rows();
    for (const std::uint64_t groups : {rows, std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{8}}) {
      const std::string pieces = groups == rows ? "rows" : fmt::format("{} pieces", groups);
      all.push_back(
          {fmt::format("{} of gate and up lie in turn in the file", pieces), usual, {usual, groups, false}});
      all.push_back(
          {fmt::format("gate and up follow each other in the file, and not {} of them in turn", pieces),
           usual,
           {usual, groups, true}});
    }
    return all;
  }
  const std::vector<WeightRole> usual = {kQ, kK, kV};
  // But q, v, k: that is k and v exchanged.
  for (const auto& order : {std::array{kK, kQ, kV}, {kV, kK, kQ}, {kK, kV, kQ}, {kV, kQ, kK}}) {
    all.push_back({fmt::format("the file has {}, {} and {} in this order", label(order[0]), label(order[1]),
                               label(order[2])),
                   usual,
                   {{order.begin(), order.end()}, 1, false}});
    all.push_back({fmt::format("the file has q, k and v in this order, and not {}, {} and {}",
                               label(order[0]), label(order[1]), label(order[2])),
                   usual,
                   {{order.begin(), order.end()}, 1, true}});
  }
  const std::uint64_t heads = s.spec.layers[static_cast<std::size_t>(layer)].attention.kv_heads;
  for (const std::uint64_t groups : std::set<std::uint64_t>{heads, 2, 4}) {
    if (groups < 2) continue;
    const std::string pieces = groups == heads ? "by key head" : fmt::format("in {} pieces", groups);
    all.push_back({fmt::format("q, k and v lie {} in the file", pieces), usual, {usual, groups, false}});
    all.push_back({fmt::format("q, k and v follow each other in the file, and do not lie {}", pieces),
                   usual,
                   {usual, groups, true}});
  }
  return all;
}

// One of the weight's other layouts; `index` and `says` tell which.
Status relayout(Trial& trial, WeightRole role, int layer, std::size_t index) {
  if (!trial.has(role, layer)) return fail(ErrorCode::kNotFound, "The model lacks the weight.");
  const TensorView tensor = trial.weight(role, layer);
  const std::vector<Relayout> all = relayouts(tensor, role == kO ? head_dim(trial, layer) : 0);
  if (index >= all.size()) return fail(ErrorCode::kNotFound, "There is no such layout.");
  return trial.read_anew(role, layer, all[index].read);
}

void add_relayouts(const Subject& s, WeightRole role, int layer, std::vector<Suspect>& to,
                   bool searches = false) {
  if (!has(s, role, layer)) return;
  const bool vector = weight(s, role, layer).shape.size() == 1;  // whose type may be wrong
  const std::uint64_t dim =
      role == kO ? s.spec.layers[static_cast<std::size_t>(layer)].attention.head_dim : 0;
  const std::vector<Relayout> all = relayouts(weight(s, role, layer), dim);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].search != searches || !all[i].same_size) continue;
    if (vector && all[i].cause != std::string_view("wrong_dtype")) continue;
    to.push_back({all[i].cause, all[i].says, all[i].repair, weight_info(role).stage, layer,
                  [role, layer, i](Trial& trial) { return relayout(trial, role, layer, i); }});
  }
}

constexpr std::array kProjections = {kQ, kK, kV, kO, kGate, kUp, kDown};

}  // namespace

std::vector<Suspect> order_suspects(const Subject& s) {
  std::vector<Suspect> all;
  if (s.spec.layers.empty()) return all;
  const auto add = [&](const char* cause, std::string says, Stage stage, Change change) {
    all.push_back({cause, std::move(says), {}, stage, 0, std::move(change), 1});
  };
  const AttentionSpec& a = s.spec.layers.front().attention;
  if (a.rope.layout == RopeLayout::kHalf) {
    for (const bool to_pairs : {false, true}) {
      for (const auto& [queries, keys, what] :
           {std::tuple{true, true, "q and k"}, {true, false, "q"}, {false, true, "k"}}) {
        add("weight_permuted",
            fmt::format(
                "the rows of {} are put in the order of {}", what,
                to_pairs ? "neighbouring rotary pairs (GGUF's)" : "halves of a head (Hugging Face's)"),
            queries ? Stage::kQProj : Stage::kKProj,
            every_layer([queries, keys, to_pairs](Trial& trial, int layer) {
              return turn_pairs(trial, layer, queries, keys, to_pairs);
            }));
      }
    }
    all.front().turn = 0;  // GGUF's order, kept by a converter
  }
  for (const Pair& pair : kPairs) {
    if (!same_shape(s, pair.a, pair.b, 0)) continue;
    add(pair.cause, fmt::format("{} and {} change places on every layer", label(pair.a), label(pair.b)),
        earlier(pair.a, pair.b), every_layer([pair](Trial& trial, int layer) {
          return trial.exchange(pair.a, layer, pair.b, layer);
        }));
  }
  for (const bool of_attention : {true, false}) {
    for (const FusedSuspect& fused : fused_suspects(s, 0, of_attention)) {
      add("fused_split", fused.says + ", on every layer", of_attention ? Stage::kQProj : Stage::kFfnGate,
          every_layer(
              [fused](Trial& trial, int layer) { return cut_again(trial, layer, fused.usual, fused.how); }));
    }
  }
  for (const WeightRole role : kProjections) {
    if (!has(s, role, 0) || is_quantised(weight(s, role, 0).dtype)) continue;
    const std::vector<Relayout> layouts = relayouts(weight(s, role, 0), 0);
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (layouts[i].search || layouts[i].cause != std::string_view("weight_transposed")) continue;
      add("weight_transposed",
          fmt::format("{} are read on every layer as in \"{}\"", label(role), layouts[i].says),
          weight_info(role).stage,
          every_layer([role, i](Trial& trial, int layer) { return relayout(trial, role, layer, i); }));
    }
  }
  add_relayouts(s, kTokenEmbedding, -1, all);
  for (const std::int64_t by : {1, -1, 2, -2, 3, -3, 4, -4}) {
    all.push_back(
        {"weight_shifted",
         fmt::format("the embedding is read {} rows {}", std::abs(by), by > 0 ? "later" : "earlier"),
         {},
         Stage::kEmbedOut,
         -1,
         [by](Trial& trial) {
           const auto rows = static_cast<std::int64_t>(trial.weight(kTokenEmbedding, -1).rows());
           return reorder_rows(trial, kTokenEmbedding, -1, [rows, by](std::size_t row) {
             return static_cast<std::size_t>((static_cast<std::int64_t>(row) + by + rows) % rows);
           });
         },
         1});
  }
  if (s.weights.find(kHead) != s.weights.find(kTokenEmbedding)) add_relayouts(s, kHead, -1, all);
  return all;
}

namespace {

std::vector<WeightRole> roles_of(Half half) {
  if (half == Half::kAttention) return {kQ, kK, kV, kO, kAttnNorm, kPostAttnNorm, kQNorm, kKNorm};
  return {kGate, kUp, kDown, kFfnNorm, kPostFfnNorm};
}

// Changes that a layer may need where its neighbours need none.
void add_of_one(const Subject& s, WeightRole role, int layer, std::vector<Suspect>& to) {
  const Stage stage = weight_info(role).stage;
  const std::string name = weight(s, role, layer).name;
  const auto add = [&](const char* cause, std::string says, Change change) {
    to.push_back({cause, std::move(says), {}, stage, layer, std::move(change)});
  };
  for (const int other : {layer - 1, layer + 1}) {
    if (!has(s, role, other) || weight(s, role, other).shape != weight(s, role, layer).shape || other < 0)
      continue;
    if (other < layer) continue;  // the pair is tried once
    add("tensor_swapped", fmt::format("{} and {} change places", name, weight(s, role, other).name),
        [role, layer, other](Trial& trial) { return trial.exchange(role, layer, role, other); });
  }
  for (const double scale : {0.5, 2.0}) {
    add("weight_scaled", fmt::format("{} is multiplied by {}", name, scale),
        [role, layer, scale](Trial& trial) -> Status {
          const TensorView tensor = trial.weight(role, layer);
          return trial.read_anew(role, layer, [&](std::uint64_t row, std::span<float> values) -> Status {
            DOPPLER_TRY(decode_f32(tensor, row * tensor.cols(), values));
            for (float& x : values) x = static_cast<float>(x * scale);
            return {};
          });
        });
  }
  const std::uint64_t rows = weight(s, role, layer).shape.size() == 2 ? weight(s, role, layer).rows()
                                                                      : weight(s, role, layer).cols();
  for (const std::int64_t by : {1, -1}) {
    add("weight_shifted", fmt::format("row i of {} is row i {} 1", name, by > 0 ? '+' : '-'),
        [role, layer, by, rows](Trial& trial) {
          const auto count = static_cast<std::int64_t>(rows);
          return reorder_rows(trial, role, layer, [count, by](std::size_t row) {
            return static_cast<std::size_t>((static_cast<std::int64_t>(row) + by + count) % count);
          });
        });
  }
}

}  // namespace

std::vector<Suspect> layer_suspects(const Subject& s, int layer, Half half) {
  std::vector<Suspect> all;
  const std::vector<WeightRole> roles = roles_of(half);
  const auto ours = [&](WeightRole role) { return std::ranges::find(roles, role) != roles.end(); };
  for (const Pair& pair : kPairs) {
    if (!ours(pair.a) || !same_shape(s, pair.a, pair.b, layer)) continue;
    all.push_back(
        {pair.cause,
         fmt::format("{} and {} change places", weight(s, pair.a, layer).name, weight(s, pair.b, layer).name),
         {},
         earlier(pair.a, pair.b),
         layer,
         [pair, layer](Trial& trial) { return trial.exchange(pair.a, layer, pair.b, layer); }});
  }
  if (half == Half::kFeedForward && same_shape(s, kGate, kUp, layer)) {
    all.push_back(
        {"gate_up_swapped",
         fmt::format("{} and {} change places", weight(s, kGate, layer).name, weight(s, kUp, layer).name),
         {},
         Stage::kFfnGate,
         layer,
         [layer](Trial& trial) { return trial.exchange(kGate, layer, kUp, layer); }});
  }
  for (const FusedSuspect& fused : fused_suspects(s, layer, half == Half::kAttention)) {
    all.push_back({"fused_split",
                   fmt::format("{}, in layer {}", fused.says, layer),
                   {},
                   half == Half::kAttention ? Stage::kQProj : Stage::kFfnGate,
                   layer,
                   [fused, layer](Trial& trial) { return cut_again(trial, layer, fused.usual, fused.how); }});
  }
  if (half == Half::kAttention &&
      s.spec.layers[static_cast<std::size_t>(layer)].attention.rope.layout == RopeLayout::kHalf) {
    for (const bool to_pairs : {false, true}) {
      for (const auto& [queries, keys] : {std::pair{true, true}, {true, false}, {false, true}}) {
        all.push_back({"weight_permuted",
                       fmt::format("the rows of {}{}{} of layer {} are put in the order of {}",
                                   queries ? "q" : "", queries && keys ? " and " : "", keys ? "k" : "", layer,
                                   to_pairs ? "neighbouring rotary pairs (GGUF's)"
                                            : "halves of a head (Hugging Face's)"),
                       {},
                       queries ? Stage::kQProj : Stage::kKProj,
                       layer,
                       [=](Trial& trial) { return turn_pairs(trial, layer, queries, keys, to_pairs); }});
      }
    }
  }
  for (const WeightRole role : roles) {
    if (!has(s, role, layer)) continue;
    add_relayouts(s, role, layer, all);
    add_of_one(s, role, layer, all);
  }
  return all;
}

std::vector<Suspect> layer_searches(const Subject& s, int layer, Half half) {
  std::vector<Suspect> all;
  for (const WeightRole role : roles_of(half)) add_relayouts(s, role, layer, all, true);
  return all;
}

Suspect without(const Subject& s, int layer, Half half) {
  const bool attention = half == Half::kAttention;
  const WeightRole last = attention ? kO : kDown;
  Suspect suspect{
      "unknown",
      fmt::format("{} of layer {} adds nothing", attention ? "attention" : "the feed-forward", layer),
      {},
      weight_info(last).stage,
      layer,
      [last, layer](Trial& trial) {
        return trial.read_anew(last, layer, [](std::uint64_t, std::span<float> row) -> Status {
          std::ranges::fill(row, 0);
          return {};
        });
      }};
  suspect.control = true;
  (void)s;
  return suspect;
}

}  // namespace doppler::diagnosis
