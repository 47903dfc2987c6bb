// Repairs of single experts: what is wrong with the weights of one shows at the tokens that chose it, and at
// no others.
#include <algorithm>
#include <set>

#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"

namespace doppler::diagnosis::repairs {
namespace {

// So many experts at most are tried in every way: with few tokens several may have seen the wrong ones.
constexpr std::size_t kMostExperts = 4;

using Tokens = std::set<std::size_t>;

bool is_gate(Stage stage) {
  return stage == Stage::kFfnGate || stage == Stage::kMoeGate;
}
bool is_up(Stage stage) {
  return stage == Stage::kFfnUp || stage == Stage::kMoeUp;
}

std::vector<Tokens> tokens_of_experts(const OpCase& c) {
  const OpSetup& s = c.setup();
  std::vector<Tokens> seen(s.weights.size());
  if (s.inputs.size() < 2) return seen;
  const OpSetup::Rows& ids = s.inputs[1];
  for (std::size_t i = 0; i < ids.data.size(); ++i) {
    if (ids.data[i] >= 0 && ids.data[i] < static_cast<float>(seen.size()))
      seen[static_cast<std::size_t>(ids.data[i])].insert(i / ids.width);
  }
  return seen;
}

bool within(const Tokens& some, const Tokens& all) {
  return std::ranges::includes(all, some);
}

// Whether what is wrong at `bad` may come of an expert that these tokens chose: where its share is small, a
// wrong result may go unseen.
bool may_cause(const Tokens& seen, const Tokens& bad) {
  return !bad.empty() && within(bad, seen) && 2 * bad.size() >= seen.size();
}

void read_as(OpCase& c, std::size_t expert, const char* cause, std::string says, std::string repair,
             const ReadRow& read, double weight = 0.95) {
  const TensorView& own = c.setup().weights[expert];
  std::vector<float> values(own.rows() * own.cols());
  for (std::uint64_t r = 0; r < own.rows(); ++r) {
    if (!read(r, std::span(values).subspan(r * own.cols(), own.cols()))) return;
  }
  c.attempt(
      cause, std::move(says), std::move(repair), [&](OpSetup& s) { s.replace(s.weights[expert], values); },
      weight);
  c.add_fix({Fix::Kind::kTensor, own.name, cause, {}, read});
}

void other_values(OpCase& c, std::size_t expert) {
  const TensorView own = c.setup().weights[expert];
  const std::uint64_t rows = own.rows(), cols = own.cols();
  for (const Relayout& layout : relayouts(own, 0)) {
    if (layout.search || c.explained()) break;
    if (layout.same_size)
      read_as(c, expert, layout.cause, layout.says, layout.repair, layout.read, layout.weight);
  }
  struct Order {
    const char *cause, *says;
    std::uint64_t (*from)(std::uint64_t r, std::uint64_t rows);
  };
  constexpr Order kOrders[] = {
      {"weight_permuted", "the rows of {} stand in reverse",
       [](std::uint64_t r, std::uint64_t n) { return n - 1 - r; }},
      {"weight_shifted", "row i of {} is row i + 1",
       [](std::uint64_t r, std::uint64_t n) { return (r + 1) % n; }},
      {"weight_shifted", "row i of {} is row i - 1",
       [](std::uint64_t r, std::uint64_t n) { return (r + n - 1) % n; }},
  };
  for (const Order& order : kOrders) {
    if (c.explained()) return;
    read_as(c, expert, order.cause, fmt::format(fmt::runtime(order.says), own.name), {},
            [own, rows, cols, from = order.from](std::uint64_t r, std::span<float> values) {
              return decode_f32(own, from(r, rows) * cols, values);
            });
  }
  const auto scaled = [&](double scale) -> OpChange {
    std::vector<float> values(rows * cols);
    if (!decode_f32(own, 0, values)) return {};
    for (float& x : values) x = static_cast<float>(x * scale);
    return [values = std::move(values), expert](OpSetup& s) { s.replace(s.weights[expert], values); };
  };
  if (c.explained()) return;
  std::vector<double> scales = {-1, 2, 0.5};
  if (const auto fitted = fitted_scale(c, scaled)) scales.push_back(*fitted);
  for (const double scale : scales) {
    if (c.explained()) return;
    read_as(c, expert, "weight_scaled", fmt::format("{} is multiplied by {}", own.name, scale), {},
            [own, cols, scale](std::uint64_t r, std::span<float> values) -> Status {
              DOPPLER_TRY(decode_f32(own, r * cols, values));
              for (float& x : values) x = static_cast<float>(x * scale);
              return {};
            });
  }
}

void other_bias(OpCase& c, std::size_t expert) {
  if (c.explained() || c.setup().biases.empty() || !c.setup().biases[expert]) return;
  const TensorView& own = *c.setup().biases[expert];
  std::vector<float> stored(element_count(own.shape).value_or(0));
  if (!decode_f32(own, 0, stored)) return;
  const auto attempt = [&](const char* cause, const char* says,
                           const std::function<float(std::size_t i)>& value) {
    std::vector<float> values(stored.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(i);
    c.attempt(
        cause, fmt::format(fmt::runtime(says), own.name, expert), {},
        [&](OpSetup& s) { s.replace(*s.biases[expert], values); }, 0.95);
  };
  const std::size_t n = stored.size();
  attempt("bias_missing", "{} is not added for expert {}", [](std::size_t) { return 0.0f; });
  attempt("weight_scaled", "{} of expert {} is multiplied by -1", [&](std::size_t i) { return -stored[i]; });
  attempt("weight_permuted", "{} of expert {} stands in reverse",
          [&](std::size_t i) { return stored[n - 1 - i]; });
}

// Another expert's matrix; where two have each other's, both are wrong.
void others_matrix(OpCase& c, std::size_t expert) {
  for (std::size_t other = 0; other < c.setup().weights.size() && !c.explained(); ++other) {
    if (other == expert) continue;
    c.attempt(
        "stale_weight",
        fmt::format("{} of expert {} is what is stored for expert {}", stage_name(c.stage()), expert, other),
        {}, [&](OpSetup& s) { s.weights[expert] = s.weights[other]; }, 0.95);
  }
}

void exchanged_pairs(OpCase& c, const std::vector<Tokens>& seen, const Tokens& bad) {
  for (std::size_t a = 0; a < seen.size(); ++a) {
    for (std::size_t b = a + 1; b < seen.size() && !c.explained(); ++b) {
      Tokens both = seen[a];
      both.insert(seen[b].begin(), seen[b].end());
      if (!may_cause(both, bad)) continue;
      c.attempt(
          "tensor_swapped",
          fmt::format("the matrices of experts {} and {} change places ({})", a, b, stage_name(c.stage())),
          {}, [&](OpSetup& s) { std::swap(s.weights[a], s.weights[b]); });
    }
  }
}

// Gate and up of one expert, each in the other's place: a change of two ops.
void gate_for_up(OpCase& c, std::size_t expert) {
  c.attempt("gate_up_swapped", fmt::format("gate and up of expert {} change places", expert), {},
            [&](OpSetup& s) {
              const bool gate = is_gate(s.stage);
              if (!gate && !is_up(s.stage)) return;
              const WeightId first =
                  c.context().weights.find(gate ? WeightRole::kUpExperts : WeightRole::kGateExperts, s.layer);
              if (first == kNoWeight) return;
              const TensorView& other = c.context().weights[static_cast<WeightId>(first + expert)];
              if (other.shape == s.weights[expert].shape) s.weights[expert] = other;
            });
}

}  // namespace

void one_expert(OpCase& c) {
  if (c.explained() || c.setup().weights.size() < 2) return;
  const BadPlaces places = find_bad_places(c);
  const Tokens bad(places.tokens.begin(), places.tokens.end());
  const std::vector<Tokens> seen = tokens_of_experts(c);
  std::vector<std::size_t> suspects;
  for (std::size_t e = 0; e < seen.size(); ++e) {
    if (may_cause(seen[e], bad)) suspects.push_back(e);
  }
  if (c.scope().size() > 1) {
    for (std::size_t i = 0; i < std::min(suspects.size(), kMostExperts); ++i) gate_for_up(c, suspects[i]);
    return;
  }
  for (std::size_t i = 0; i < std::min(suspects.size(), kMostExperts) && !c.explained(); ++i) {
    other_values(c, suspects[i]);
    other_bias(c, suspects[i]);
    others_matrix(c, suspects[i]);
  }
  exchanged_pairs(c, seen, bad);
  // What all tokens share is right: some are.
  if (c.explained() || is_gate(c.stage()) || is_up(c.stage()) || suspects.empty() ||
      suspects.size() > kMostExperts || bad.size() == c.tokens())
    return;
  std::string names;
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    names += fmt::format("{}{}", i == 0 ? "" : i + 1 == suspects.size() ? " or " : ", ", suspects[i]);
  }
  c.keep(
      {"weight_wrong",
       fmt::format(
           "gate, up or down of expert {} of layer {} hold other values: what differs are tokens that chose "
           "it, and no others",
           names, c.layer()),
       fmt::format(
           "Compare the tensors of expert {} of layer {} with their source, and download or convert them "
           "again.",
           names, c.layer()),
       0.6, suspects.size() == 1 ? 0.7 : 0.5});
}

}  // namespace doppler::diagnosis::repairs
