// Repairs of a product's weight within a chain of ops. Its own output is not known, so that nothing can be
// read from it: whole weights are tried.
#include <algorithm>
#include <array>
#include <cmath>

#include "diagnosis/doctor/head_rows.h"
#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/repairs.h"
#include "diagnosis/doctor/weight_probe.h"

namespace doppler::diagnosis::repairs {
namespace {

// Beyond this many values a weight is not decoded and tried in every other way: each takes seconds.
constexpr std::uint64_t kMostValues = 1 << 26;

// Any multiple is searched for where a run takes no time.
constexpr std::size_t kShort = 6;
constexpr std::uint64_t kFewValues = 1 << 22;

using ReadRow = std::function<Status(std::uint64_t row, std::span<float> values)>;

void attempt_weight(OpCase& c, std::string cause, std::string says, std::string repair, double weight,
                    const ReadRow& read) {
  const TensorView& own = c.setup().weights[0];
  std::vector<float> values(own.rows() * own.cols());
  for (std::uint64_t r = 0; r < own.rows(); ++r) {
    if (!read(r, std::span(values).subspan(r * own.cols(), own.cols()))) return;  // values that are lost
  }
  c.attempt(
      std::move(cause), std::move(says), std::move(repair),
      [&](OpSetup& s) { s.set_weight(own.shape, values); }, weight);
}

// What the weight itself shows: values that no trained weight has.
void unlikely_values(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  std::vector<float> row(own.cols());
  std::uint64_t zero_rows = 0, negative = 0;
  bool zero_end = false;
  for (std::uint64_t r = 0; r < own.rows(); ++r) {
    if (!decode_f32(own, r * own.cols(), row)) return;
    const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
    if (bad != row.end()) {
      c.keep({"weight_nan",
              fmt::format("{} holds a number, not {}, in row {}, column {}", own.name, *bad, r,
                          bad - row.begin()),
              {},
              0,
              1});
      return;
    }
    zero_end = std::ranges::all_of(row, [](float x) { return x == 0; });
    zero_rows += zero_end;
    negative += static_cast<std::uint64_t>(std::ranges::count_if(row, [](float x) { return x < 0; }));
  }
  if (zero_end && zero_rows * 8 >= own.rows()) {
    c.keep(
        {"truncated_weight", fmt::format("{} rows of {} are not zero", zero_rows, own.name), {}, 0.5, 0.9});
  }
  if (negative == 0 && zero_rows < own.rows()) {
    c.keep({"weight_wrong", fmt::format("{} has negative values, too", own.name),
            "Convert the tensor again: its signs are lost.", 0.6, 0.9});
  }
  if (const std::string other = same_bytes_as(c); !other.empty())
    c.keep({"stale_weight", fmt::format("{} is another than {}", own.name, other), {}, 0.5, 0.9});
}

// The same product's weight in other layers, nearest first, and the embedding as head.
void other_weights(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  std::vector<const Op*> others;
  for (const Op& op : c.plan().ops) {
    const bool same = op.kind == OpKind::kMatmul && op.layer != c.layer() && op.layer >= 0 &&
                      c.plan().values[op.outputs[0]].stage == c.stage();
    if (same && c.context().weights[op.weights[0]].shape == own.shape) others.push_back(&op);
  }
  std::ranges::stable_sort(others, {}, [&](const Op* op) { return std::abs(op->layer - c.layer()); });
  for (const Op* op : others) {
    const TensorView& weight = c.context().weights[op->weights[0]];
    c.attempt("stale_weight", fmt::format("the weight is {}", weight.name), {},
              [&](OpSetup& s) { s.weights[0] = weight; });
    if (c.explained()) return;
  }
  const WeightId embedding = c.context().weights.find(WeightRole::kTokenEmbedding);
  if (c.stage() != Stage::kLogits || embedding == kNoWeight) return;
  const TensorView& table = c.context().weights[embedding];
  if (table.shape != own.shape || table.data.data() == own.data.data()) return;
  c.attempt("tied_head", fmt::format("the head is {}", table.name), "Set tie_word_embeddings to true.",
            [&](OpSetup& s) { s.weights[0] = table; });
}

void row_orders(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  const std::uint64_t rows = own.rows(), cols = own.cols();
  const auto attempt = [&](const char* cause, std::string says,
                           const std::function<std::uint64_t(std::uint64_t)>& from) {
    attempt_weight(c, cause, std::move(says), {}, 1, [&](std::uint64_t r, std::span<float> values) {
      return decode_f32(own, from(r) * cols, values);
    });
  };
  if (const std::size_t dim = head_dim(c); rows_may_be_paired(c)) {
    attempt(
        "weight_permuted",
        fmt::format("the rows of {} are put in the order of neighbouring rotary pairs (GGUF's)", own.name),
        [dim](std::uint64_t r) { return unpaired(r, dim); });
    attempt("weight_permuted",
            fmt::format("the rows of {} are put in the order of halves of a head (Hugging Face's)", own.name),
            [dim](std::uint64_t r) { return paired(r, dim); });
  }
  attempt("weight_permuted", fmt::format("the rows of {} stand in reverse", own.name),
          [rows](std::uint64_t r) { return rows - 1 - r; });
  for (const bool further : {true, false}) {
    attempt("weight_shifted", fmt::format("row i of {} is row i {} 1", own.name, further ? '+' : '-'),
            [rows, further](std::uint64_t r) { return (r + (further ? 1 : rows - 1)) % rows; });
  }
}

void scales_along(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  const double root = std::sqrt(static_cast<double>(c.context().spec.hidden));
  const auto scaled = [&](double scale) -> OpChange {
    std::vector<float> values(own.rows() * own.cols());
    if (!decode_f32(own, 0, values)) return {};
    for (float& x : values) x = static_cast<float>(x * scale);
    return [values = std::move(values), shape = own.shape](OpSetup& s) { s.set_weight(shape, values); };
  };
  if (c.ops_on() <= kShort && own.rows() * own.cols() <= kFewValues) {
    const auto scale = fitted_scale(c, scaled);
    if (scale && c.attempt("weight_scaled", fmt::format("{} is multiplied by {}", own.name, number(*scale)),
                           {}, scaled(*scale), 0.95))
      return;
  }
  for (const double scale : {2.0, 0.5, -1.0, 4.0, 0.25, 8.0, 0.125, 16.0, 0.0625, root, 1 / root}) {
    attempt_weight(c, "weight_scaled", fmt::format("{} is multiplied by {}", own.name, number(scale)), {},
                   0.95, [&](std::uint64_t r, std::span<float> values) -> Status {
                     DOPPLER_TRY(decode_f32(own, r * own.cols(), values));
                     for (float& x : values) x = static_cast<float>(x * scale);
                     return {};
                   });
    if (c.explained()) return;
  }
}

}  // namespace

void weight_along(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  if (own.rows() * own.cols() > kMostValues) {
    c.leave_out(fmt::format("other readings of {}", own.name));
    return;
  }
  unlikely_values(c);
  if (c.explained()) return;
  row_orders(c);
  for (const Relayout& layout : relayouts(own, head_dim(c))) {
    if (layout.search || c.explained()) break;
    if (!layout.same_size) continue;  // along a chain chance is nearer than a file of another size
    attempt_weight(c, layout.cause, layout.says, layout.repair, layout.weight, layout.read);
  }
  if (!c.explained()) other_weights(c);
  if (!c.explained()) scales_along(c);
}

// Of products by heads, also alone: their rows belong to queries, keys or values of a latent, not to columns.
void head_weight(OpCase& c) {
  if (c.scope().size() <= 1) weight_along(c);
}

// Rows of queries' and keys' weights together, which a converter leaves in the order of the other format:
// with norms in between, no other order of pairs in the rotation does the same.
void rows_along(OpCase& c) {
  const TensorView& own = c.setup().weights[0];
  if (c.direct() || c.scope().size() < 2 || !rows_may_be_paired(c)) return;
  if (own.rows() * own.cols() > kMostValues) {
    c.leave_out(fmt::format("other orders of the rows of {}", own.name));
    return;
  }
  const std::size_t dim = head_dim(c);
  for (const bool pairs : {true, false}) {
    c.attempt("weight_permuted",
              fmt::format("the rows of both weights are put in the order of {}",
                          pairs ? "neighbouring rotary pairs (GGUF's)" : "halves of a head (Hugging Face's)"),
              {}, [&](OpSetup& s) {
                const TensorView weight = s.weights[0];
                const std::uint64_t cols = weight.cols();
                std::vector<float> values(weight.rows() * cols);
                for (std::uint64_t r = 0; r < weight.rows(); ++r) {
                  const std::uint64_t from = pairs ? unpaired(r, dim) : paired(r, dim);
                  if (!decode_f32(weight, from * cols, std::span(values).subspan(r * cols, cols))) return;
                }
                s.set_weight(weight.shape, values);
              });
  }
}

}  // namespace doppler::diagnosis::repairs
