// Repairs of embeddings, sums, activations and caps.
#include <algorithm>
#include <cmath>
#include <set>

#include "base/float16.h"
#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"
#include "model/activation.h"

namespace doppler::diagnosis::repairs {
namespace {

std::string exact_number(double x) {
  return fmt::format("{:.7g}", x);
}

using Scalar = double (*)(double);
struct ActivationRow {
  const char* name;
  const char* config;  // its name in config.json; null: no model uses it
  Scalar function;
};
constexpr ActivationRow kActivations[] = {
    {"silu", "silu", [](double x) { return activate(Activation::kSilu, x); }},
    {"gelu (tanh)", "gelu_pytorch_tanh", [](double x) { return activate(Activation::kGeluTanh, x); }},
    {"gelu (erf)", "gelu", [](double x) { return activate(Activation::kGeluErf, x); }},
    {"relu", "relu", [](double x) { return std::max(x, 0.0); }},
    {"quick gelu", "quick_gelu", [](double x) { return x / (1 + std::exp(-1.702 * x)); }},
    {"squared relu", "relu2", [](double x) { return x > 0 ? x * x : 0; }},
    {"sigmoid", "sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"tanh", "tanh", [](double x) { return std::tanh(x); }},
    {"no activation", nullptr, [](double x) { return x; }},
};

template <typename Function>
std::vector<float> each(const OpCase& c, Function function) {
  const auto& inputs = c.setup().inputs;
  const std::vector<float>& a = inputs[0].data;
  std::vector<float> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    // A gate alone is multiplied with nothing.
    out[i] = static_cast<float>(function(a[i], inputs.size() > 1 ? inputs[1].data[i] : 1.0f));
  }
  return out;
}

// The rows that tokens were given, wherever they lie: the same shift for all means a table that begins
// elsewhere.
void find_rows(OpCase& c, const TensorView& table, double scale) {
  const std::uint64_t rows = table.rows(), cols = table.cols();
  const std::vector<std::size_t> tokens = find_bad_places(c).tokens;
  constexpr std::uint64_t kBlock = 256;  // tells rows apart, and is whole blocks in every type
  const std::uint64_t first = cols % kBlock == 0 ? kBlock : cols;
  std::vector<float> row(cols);
  std::set<std::int64_t> shifts;
  std::size_t found = 0;
  const auto same = [&](std::size_t t, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!(std::abs(row[i] * scale - c.target()[t * cols + i]) <= c.allowed_at(t, i))) return false;
    }
    return true;
  };
  std::vector<bool> done(c.tokens(), false);
  for (std::uint64_t r = 0; r < rows; ++r) {
    if (!decode_f32(table, r * cols, std::span(row).first(first))) return;
    for (const std::size_t t : tokens) {
      if (done[t] || !same(t, first)) continue;
      if (!decode_f32(table, r * cols, row) || !same(t, cols)) continue;
      done[t] = true, ++found;
      const auto id = static_cast<std::uint64_t>(c.setup().ids[t]);
      shifts.insert(static_cast<std::int64_t>((r + rows - id) % rows));
    }
  }
  if (tokens.size() < 2 || found * 10 < tokens.size() * 9) return;
  if (shifts.size() == 1) {
    c.keep({"weight_shifted",
            fmt::format("the row of token i is row i + {} of {}", *shifts.begin(), table.name),
            {},
            0.3,
            1});
  } else {
    c.keep({"weight_permuted", fmt::format("the rows of {} change places", table.name), {}, 0.3, 0.95});
  }
}

}  // namespace

namespace {

// The two tensors that a file holds under each other's names, in every layer that the attempt is made to.
void exchange_gate_up(OpCase& c) {
  const Weights& weights = c.context().weights;
  for (const std::size_t op : c.scope().empty()
                                  ? std::vector<std::size_t>{c.index()}
                                  : std::vector<std::size_t>(c.scope().begin(), c.scope().end())) {
    const int layer = c.context().experiment.layer_of(op);
    const WeightId gate = weights.find(WeightRole::kGate, layer), up = weights.find(WeightRole::kUp, layer);
    if (gate == kNoWeight || up == kNoWeight || weights[gate].shape != weights[up].shape) continue;
    for (const auto& [to, from] : {std::pair(weights[gate], weights[up]), {weights[up], weights[gate]}})
      c.add_fix({Fix::Kind::kRename,
                 to.name,
                 from.name,
                 {},
                 [read = from](std::uint64_t row, std::span<float> values) {
                   return decode_f32(read, row * values.size(), values);
                 }});
  }
}

// The activations that the op itself has, which several layers may try at once.
void activations_along(OpCase& c, const char* swap_repair) {
  const Activation own = std::get<GatedParams>(c.setup().params).activation;
  for (const Activation other : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    if (other == own) continue;
    c.attempt("activation", fmt::format("the activation is {}", name_of(other)),
              fmt::format("Set hidden_act to {} (it is {}).", name_of(other), name_of(own)),
              [&](OpSetup& s) { std::get<GatedParams>(s.params).activation = other; });
  }
  if (c.setup().inputs.size() == 1) return;
  c.attempt("gate_up_swapped", "gate and up change places", swap_repair,
            [](OpSetup& s) { std::swap(s.inputs[0], s.inputs[1]); });
  exchange_gate_up(c);
}

}  // namespace

void embed_scale(OpCase& c) {
  const double own = std::get<EmbedParams>(c.setup().params).scale, root = std::sqrt(c.context().spec.hidden);
  const auto attempt = [&](double scale, const char* what, double weight) {
    c.attempt(
        "embedding_scale", fmt::format("embeddings are multiplied by {}{}", exact_number(scale), what),
        fmt::format("Set the embedding scale to {} (it is {}).", exact_number(scale), exact_number(own)),
        [&](OpSetup& s) { std::get<EmbedParams>(s.params).scale = scale; }, weight);
    c.add_setting("embedding_scale", exact_number(scale));
  };
  if (own != 1) attempt(1, "", 1);
  attempt(root, ", sqrt(hidden_size)", 1);
  attempt(bf16_to_f32(f32_to_bf16(static_cast<float>(root))), ", sqrt(hidden_size) rounded to bfloat16", 1);
  if (!c.direct()) return;
  // Any other number shows as one ratio of all values.
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    products += static_cast<double>(c.output()[i]) * c.target()[i];
    squares += static_cast<double>(c.output()[i]) * c.output()[i];
  }
  if (!(squares > 0) || c.explained()) return;
  const double ratio = products / squares;
  const double rounded_root = bf16_to_f32(f32_to_bf16(static_cast<float>(root)));
  if (own != 1 && own != root && own != rounded_root) {  // a number of the description, which may be any
    attempt(own * ratio, "", 0.9);
    return;
  }
  const std::string name = c.setup().weights[0].name;
  c.attempt(
      "weight_scaled", fmt::format("{} is multiplied by {}", name, number(tidy(ratio))), {},
      [&](OpSetup& s) { std::get<EmbedParams>(s.params).scale = own * ratio; }, 0.9);
  c.add_fix(
      {Fix::Kind::kTensor,
       name,
       fmt::format("times {}", number(tidy(ratio))),
       {},
       [w = c.setup().weights[0], scale = tidy(ratio)](std::uint64_t row, std::span<float> values) -> Status {
         DOPPLER_TRY(decode_f32(w, row * values.size(), values));
         for (float& x : values) x = static_cast<float>(x * scale);
         return {};
       }});
}

// The rows that tokens were given, searched in other readings of the table.
void embed_rows(OpCase& c) {
  if (c.explained()) return;
  const TensorView table = c.setup().weights[0];
  const double scale = std::get<EmbedParams>(c.setup().params).scale;
  const std::uint64_t rows = table.rows(), cols = table.cols();
  const auto attempt_rows = [&](const char* cause, std::string says, double weight,
                                const std::function<Status(std::uint64_t id, std::span<float> row)>& read,
                                std::string repair = {}, std::optional<DType> type = {}) {
    std::vector<float> out(c.tokens() * cols);
    std::size_t lost = 0;
    for (std::size_t t = 0; t < c.tokens(); ++t) {
      const auto row = std::span(out).subspan(t * cols, cols);
      const Status status = read(static_cast<std::uint64_t>(c.setup().ids[t]), row);
      if (!status && !c.direct()) return false;
      if (!status && (status.error().code != ErrorCode::kNotFound || ++lost * 2 > c.tokens())) return false;
      if (!status) {  // the row's values are lost
        std::copy_n(c.target().begin() + static_cast<std::ptrdiff_t>(t * cols), cols, row.begin());
        continue;
      }
      for (float& x : row) x = static_cast<float>(x * scale);
    }
    const bool agrees = c.consider(cause, says, std::move(repair), out, weight);
    c.add_fix({Fix::Kind::kTensor, table.name, std::move(says), {}, read, type});
    return agrees;
  };
  for (const std::int64_t by : {1, -1, 2, -2, 3, -3, 4, -4, 8, -8, 16, -16, 32, -32, 64, -64}) {
    attempt_rows(
        "weight_shifted",
        fmt::format("the row of token i is row i {} {} of {}", by < 0 ? '-' : '+', std::abs(by), table.name),
        1,
        [=](std::uint64_t id, std::span<float> row) {
          const auto from = static_cast<std::uint64_t>(static_cast<std::int64_t>(id + rows) + by) % rows;
          return decode_f32(table, from * cols, row);
        },
        "Check the tensor's offset in its file, and convert it again. If it is right, the ids that the "
        "recording gives to its rows are that far off.");
  }
  for (const Relayout& layout : relayouts(table, 0)) {
    if (layout.search && (c.explained() || !c.direct())) break;
    if (!c.direct() && !layout.same_size) continue;
    attempt_rows(layout.cause, layout.says, layout.weight, layout.read, layout.repair, layout.type);
  }
  const WeightId head = c.context().weights.find(WeightRole::kHead);
  if (head != kNoWeight && !c.context().spec.tied_head && c.context().weights[head].shape == table.shape) {
    const TensorView other = c.context().weights[head];
    attempt_rows(
        "tensor_swapped", fmt::format("the table is {}", other.name), 1,
        [=](std::uint64_t id, std::span<float> row) { return decode_f32(other, id * cols, row); },
        fmt::format("Exchange {} and {}.", table.name, other.name));
    c.add_fix(
        {Fix::Kind::kRename, other.name, table.name, {}, [table](std::uint64_t row, std::span<float> values) {
           return decode_f32(table, row * values.size(), values);
         }});
  }
  if (!c.direct()) return;
  if (!c.explained()) find_rows(c, table, scale);
  // Which tokens are wrong at all?
  const BadPlaces places = find_bad_places(c);
  std::vector<float> row(cols);
  std::set<std::int32_t> zero, wrong;
  for (const std::size_t t : places.tokens) {
    wrong.insert(c.setup().ids[t]);
    if (decode_f32(table, static_cast<std::uint64_t>(c.setup().ids[t]) * cols, row) &&
        std::ranges::all_of(row, [](float x) { return x == 0; }))
      zero.insert(c.setup().ids[t]);
  }
  if (!zero.empty() && zero.size() == wrong.size())
    c.keep({"truncated_weight",
            fmt::format("the row of token {} in {} is not zero", *zero.begin(), table.name),
            {},
            0.9,
            0.95});
  // A token that the recording embeds as another: ids that were shifted by a second BOS.
  std::size_t moved = 0;
  for (std::size_t t = 1; t < c.tokens(); ++t) {
    if (!decode_f32(table, static_cast<std::uint64_t>(c.setup().ids[t - 1]) * cols, row)) return;
    double worst = 0;
    for (std::size_t i = 0; i < cols; ++i) {
      worst = std::max(worst, std::abs(row[i] * scale - c.target()[t * cols + i]) / c.allowed_at(t, i));
    }
    moved += worst <= 1;
  }
  if (moved + 2 >= c.tokens() && c.tokens() > 3)
    c.keep({"double_bos", "every token stands one place later", {}, 0.9, 0.95});
  if (c.explained() || wrong.size() * 2 > c.tokens()) return;
  c.keep({"weight_wrong",
          fmt::format("the rows of {} of the prompt's tokens, such as {}, are others", wrong.size(),
                      *wrong.begin()),
          "Compare the tensor with its source, and download or convert it again. If it is right, the "
          "recording's prompt_ids are not those of its rows.",
          0.9, 0.6});
}

void activation(OpCase& c) {
  const std::string_view own = name_of(std::get<GatedParams>(c.setup().params).activation);
  const auto swap_repair = "Exchange the gate and up projections.";
  if (!c.direct()) activations_along(c, swap_repair);
  if (c.scope().size() > 1) return;
  for (const ActivationRow& row : kActivations) {
    c.consider("activation", fmt::format("the activation is {}", row.name),
               row.config != nullptr ? fmt::format("Set hidden_act to {} (it is {}).", row.config, own)
                                     : std::string("Apply no activation."),
               each(c, [&](double gate, double up) { return row.function(gate) * up; }));
    if (row.config != nullptr) c.add_setting("ffn.activation", fmt::format("\"{}\"", row.config));
  }
  if (c.setup().inputs.size() == 1) return;
  for (const ActivationRow& row : kActivations) {
    c.consider("gate_up_swapped", fmt::format("the activation ({}) stands on up", row.name), swap_repair,
               each(c, [&](double gate, double up) { return gate * row.function(up); }));
    exchange_gate_up(c);
  }
  for (const ActivationRow& row : kActivations) {
    c.consider("activation", fmt::format("the activation ({}) stands on both halves", row.name), {},
               each(c, [&](double gate, double up) { return row.function(gate) * row.function(up); }));
  }
  c.consider("activation", "up is not multiplied in", {},
             each(c, [&](double gate, double) { return kActivations[0].function(gate); }));
}

namespace {

// A block's result that goes through a norm before it is added, where the plan lacks it.
void lacking_post_norm(OpCase& c) {
  const bool attention = c.stage() == Stage::kPostAttn;
  const Stage stage = attention ? Stage::kPostAttnNorm : Stage::kPostFfnNorm;
  const Weights& weights = c.context().weights;
  const WeightId id =
      weights.find(attention ? WeightRole::kPostAttnNorm : WeightRole::kPostFfnNorm, c.layer());
  const auto planned = [&](const Value& v) { return v.stage == stage && v.layer == c.layer(); };
  if (id == kNoWeight || std::ranges::any_of(c.plan().values, planned)) return;
  const NormSpec& norm = c.context().spec.norm;
  c.attempt("post_norm_missing", fmt::format("{} is computed", stage_name(stage)), {}, [&](OpSetup& s) {
    OpSetup before = s;
    before.kind = OpKind::kRmsNorm;
    before.params = NormParams{norm.eps, norm.weight_offset};
    before.weights = {weights[id]};
    before.inputs.erase(before.inputs.begin());
    if (auto rows = c.context().experiment.run(before)) s.inputs[1].data = std::move(*rows);
  });
  c.say_what_lacks(stage);
}

}  // namespace

void residual(OpCase& c) {
  if (!c.direct()) lacking_post_norm(c);
  const auto& in = c.setup().inputs;
  c.consider("residual_missing", "only the stream passes", {}, in[0].data);
  c.consider("residual_missing", "only the block's result passes", {}, in[1].data);
  // A norm between, or none: other values of the layer in the place of either.
  const std::vector<OpCase::Other> others = c.others(c.width());
  for (std::size_t i = 0; i < 2; ++i) {
    for (const OpCase::Other& other : others) {
      if (other.rows == in[i].data) continue;
      const bool norm = other.stage == Stage::kPostAttnNorm || other.stage == Stage::kPostFfnNorm;
      const bool plain = i == 1 && (other.stage == Stage::kOProj || other.stage == Stage::kFfnOut);
      c.attempt(norm    ? "post_norm_missing"
                : plain ? "post_norm_extra"
                        : "residual_missing",
                fmt::format("it adds {}", stage_key(other.stage, other.layer)), {},
                [&](OpSetup& s) { s.inputs[i].data = other.rows; });
    }
  }
  for (const double factor : {0.5, 2.0, -1.0}) {
    c.consider("residual_missing", fmt::format("the block's result is multiplied by {}", factor), {},
               each(c, [&](double a, double b) { return a + factor * b; }));
  }
}

namespace {

void logit_scale(OpCase& c) {
  const auto own = std::get<SoftcapParams>(c.setup().params);
  const auto attempt = [&](double scale, double weight) {
    if (scale == own.scale || !(scale > 0)) return;
    const std::string divisor = c.context().spec.family.starts_with("granite")
                                    ? fmt::format("logits_scaling to {}", exact_number(1 / scale))
                                    : fmt::format("logit_scale to {}", exact_number(scale));
    c.attempt(
        "logit_scale", fmt::format("logits are multiplied by {}", exact_number(scale)),
        fmt::format("Set {} (logits are multiplied by {}).", divisor, exact_number(own.scale)),
        [&](OpSetup& s) { std::get<SoftcapParams>(s.params).scale = scale; }, weight);
    c.add_setting("head.scale", exact_number(scale));
    c.add_setting("head.divisor", exact_number(1 / scale));
  };
  attempt(1 / own.scale, 1);  // one divides where the other multiplies
  if (own.scale != 1) attempt(1, 1);
  if (own.cap != 0 || !c.direct() || c.explained()) return;
  double products = 0, squares = 0;  // any other number shows as one ratio of all values
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    products += static_cast<double>(c.output()[i]) * c.target()[i];
    squares += static_cast<double>(c.output()[i]) * c.output()[i];
  }
  if (squares <= 0) return;
  // Multipliers and divisors are published with few digits.
  const double measured = own.scale * products / squares;
  for (const double digits : {1.0, 1e2, 1e4}) {
    const double scale = std::round(measured * digits) / digits,
                 divisor = std::round(digits / measured) / digits;
    if (std::abs(scale - measured) < 1e-5 * measured) attempt(scale, 0.97);
    if (!c.explained() && divisor > 0 && std::abs(1 / divisor - measured) < 1e-5 * measured)
      attempt(1 / divisor, 0.97);
    if (c.explained()) return;
  }
  attempt(measured, 0.95);
}

}  // namespace

void softcap(OpCase& c) {
  if (c.stage() != Stage::kLogitsFinal) {  // multiplies within a layer, and caps nothing
    multiplier(c);
    return;
  }
  logit_scale(c);
  const auto attempt = [&](double cap, double weight) {
    c.attempt(
        "final_softcap",
        cap == 0 ? "logits are not capped" : fmt::format("logits are capped at {}", exact_number(cap)),
        cap == 0 ? "Set final_logit_softcapping to null."
                 : fmt::format("Set final_logit_softcapping to {}.", exact_number(cap)),
        [&](OpSetup& s) { std::get<SoftcapParams>(s.params).cap = cap; }, weight);
    c.add_setting("head.softcap", cap == 0 ? "null" : exact_number(cap));
  };
  for (const double cap : {0.0, 30.0, 15.0, 20.0, 50.0, 100.0}) attempt(cap, 1);
  if (c.explained() || !c.direct()) return;
  double low = 0.1, high = 1e4;  // the misfit of a cap too low or too high grows steadily
  for (int i = 0; i < 80 && high / low > 1 + 1e-7; ++i) {
    const double u = low * std::cbrt(high / low), v = high / std::cbrt(high / low);
    const auto misfit = [&](double cap) {
      return c.ratio_with([&](OpSetup& s) { std::get<SoftcapParams>(s.params).cap = cap; });
    };
    (misfit(u) < misfit(v) ? high : low) = misfit(u) < misfit(v) ? v : u;
  }
  attempt(std::sqrt(low * high), 0.9);
}

}  // namespace doppler::diagnosis::repairs
