// Suspects among the weights: what a converter may exchange, turn or read wrongly.
#include <algorithm>
#include <array>
#include <cmath>

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

// The rows of q, k and v one after the other, as a fused tensor holds them.
struct FusedRow {
  WeightRole role;
  std::uint64_t row;
};
FusedRow fused_row(const AttentionSpec& a, std::uint64_t i) {
  if (i < a.q_width()) return {kQ, i};
  i -= a.q_width();
  return i < a.kv_width() ? FusedRow{kK, i} : FusedRow{kV, i - a.kv_width()};
}

// A fused tensor whose rows are grouped otherwise: by key head (its queries, key, value), or by order of
// parts.
Status regroup_qkv(Trial& trial, int layer, std::array<WeightRole, 3> order, bool by_head) {
  const AttentionSpec a = trial.subject().spec.layers[static_cast<std::size_t>(layer)].attention;
  for (const WeightRole role : {kQ, kK, kV}) {
    if (!trial.has(role, layer)) return fail(ErrorCode::kNotFound, "The model lacks the weight.");
  }
  const std::array<TensorView, 3> now = {trial.weight(kQ, layer), trial.weight(kK, layer),
                                         trial.weight(kV, layer)};
  const auto tensor_of = [&](WeightRole role) -> const TensorView& {
    return now[role == kQ ? 0 : role == kK ? 1 : 2];
  };
  const std::uint64_t group = a.heads / a.kv_heads, dim = a.head_dim;
  for (const WeightRole role : {kQ, kK, kV}) {
    const auto place = [&](std::uint64_t row) -> std::uint64_t {
      if (!by_head) {
        std::uint64_t begin = 0;
        for (const WeightRole before : order) {
          if (before == role) break;
          begin += before == kQ ? a.q_width() : a.kv_width();
        }
        return begin + row;
      }
      const std::uint64_t head = row / dim, i = row % dim, block = (group + 2) * dim;
      if (role == kQ) return head / group * block + head % group * dim + i;
      return head * block + (group + (role == kK ? 0 : 1)) * dim + i;
    };
    DOPPLER_TRY(trial.read_anew(role, layer, [&](std::uint64_t row, std::span<float> values) {
      const FusedRow from = fused_row(a, place(row));
      const TensorView& tensor = tensor_of(from.role);
      return decode_f32(tensor, from.row * tensor.cols(), values);
    }));
  }
  return {};
}

// Rows of gate and up that lie in turn.
Status regroup_gate_up(Trial& trial, int layer) {
  if (!trial.has(kGate, layer) || !trial.has(kUp, layer))
    return fail(ErrorCode::kNotFound, "The model lacks the weight.");
  const TensorView gate = trial.weight(kGate, layer), up = trial.weight(kUp, layer);
  for (const WeightRole role : {kGate, kUp}) {
    DOPPLER_TRY(trial.read_anew(role, layer, [&](std::uint64_t row, std::span<float> values) {
      const std::uint64_t at = 2 * row + (role == kUp ? 1 : 0);
      const TensorView& from = at < gate.rows() ? gate : up;
      return decode_f32(from, at % gate.rows() * from.cols(), values);
    }));
  }
  return {};
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
  if (!has(s, role, layer) || weight(s, role, layer).shape.size() != 2) return;
  const std::uint64_t dim =
      role == kO ? s.spec.layers[static_cast<std::size_t>(layer)].attention.head_dim : 0;
  const std::vector<Relayout> all = relayouts(weight(s, role, layer), dim);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].search != searches || !all[i].same_size) continue;
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
  for (const auto& order : {std::array{kK, kQ, kV}, {kQ, kV, kK}, {kV, kK, kQ}, {kK, kV, kQ}, {kV, kQ, kK}})
    add("weight_permuted",
        fmt::format("the rows of q, k and v come in the order {}, {}, {}", label(order[0]), label(order[1]),
                    label(order[2])),
        Stage::kQProj,
        every_layer([order](Trial& trial, int layer) { return regroup_qkv(trial, layer, order, false); }));
  add("weight_permuted", "the rows of q, k and v are grouped by key head", Stage::kQProj,
      every_layer([](Trial& trial, int layer) { return regroup_qkv(trial, layer, {}, true); }));
  add("weight_permuted", "the rows of gate and up lie in turn", Stage::kFfnGate,
      every_layer([](Trial& trial, int layer) { return regroup_gate_up(trial, layer); }));
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
