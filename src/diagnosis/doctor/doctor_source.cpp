// A converted model beside the one that it was made of: the description value by value, the weights tensor by
// tensor, and where one differs, which way of reading it would make it equal. Texts are compared in
// doctor_texts.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "base/thread_pool.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/relayouts.h"
#include "model/gguf_rows.h"
#include "model/rope.h"
#include "quant/error.h"

namespace doppler::diagnosis::doctor {
namespace {

// Findings of one cause are one, which names the first place and tells the others.
class Differences {
 public:
  explicit Differences(const Examination& e) : e_(e) {}
  ~Differences() = default;

  void add(Finding finding) {
    for (Finding& other : found_) {
      if (other.cause != finding.cause) continue;
      ++other.places;
      return;
    }
    found_.push_back(std::move(finding));
  }
  void report() {
    for (Finding& finding : found_) e_.find(std::move(finding));
  }
  std::size_t count() const { return found_.size(); }

 private:
  const Examination& e_;
  std::vector<Finding> found_;
};

// ---- the description

bool alike(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

struct Value {
  const char* cause;
  const char* what;  // "the window"
  Stage stage;
  double ours, source;
};

void compare_values(const std::vector<Value>& values, int layer, Differences& to) {
  for (const Value& v : values) {
    if (alike(v.ours, v.source)) continue;
    const std::string where = layer < 0 ? std::string() : fmt::format(" of layer {}", layer);
    to.add(
        {.cause = v.cause,
         .stage = std::string(stage_name(v.stage)),
         .layer = layer,
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
  bool same = alike(a.magnitude, b.magnitude);
  for (std::size_t i = 0; i < std::min(a.inverse_frequency.size(), b.inverse_frequency.size()); ++i)
    same = same && alike(a.inverse_frequency[i], b.inverse_frequency[i]);
  if (same) return;  // GGUF files may hold divisors where config.json has a rule
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
  compare_rope(at.rope, bt.rope, source.context_length, layer, to);
  // A file without any window has lost them; else layers may have changed their kinds.
  const bool windows =
      std::ranges::any_of(ours.layers, [](const LayerSpec& l) { return l.attention.window > 0; });
  if (windows && at.kind != bt.kind) {
    compare_values({{"layer_types", "The kind of attention (1: a window)", Stage::kAttnOut,
                     flag(at.kind == AttentionKind::kSliding), flag(bt.kind == AttentionKind::kSliding)}},
                   layer, to);
  } else {
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
        double(source.layers.size())}},
      -1, to);
  for (std::size_t i = 0; i < std::min(ours.layers.size(), source.layers.size()); ++i)
    compare_layers(ours, source, i, to);
}

// ---- the weights

// Rows that are compared first; a difference that no sample shows is found by the whole comparison.
constexpr std::uint64_t kSampledRows = 48;

struct Pair {
  const WeightInfo* info;
  int layer;
  TensorView ours, source;
  double offset = 0;  // what must be added to ours: norms are stored with and without 1
  double error = 0;   // as a share of the source's size, of the sample; then of the whole
  bool whole = false;
  std::uint64_t worst_row = 0;
};

double allowed(const Pair& p) {
  // Twice what the types explain; what is stored as finely as its source differs by the last bit at most.
  return std::max(2 * (storage_error(p.ours.dtype) + storage_error(p.source.dtype)), 1e-6);
}

using ReadRow = std::function<Status(std::uint64_t row, std::span<float> values)>;

// The relative distance of rows read in some way from the source's; nothing where they cannot be read.
std::optional<double> distance(const Pair& p, const ReadRow& read) {
  const std::uint64_t rows = p.source.rows(), cols = p.source.cols(), count = std::min(rows, kSampledRows);
  EncodingErrorSum sum;
  std::uint64_t lost = 0;
  std::vector<float> was(cols), is(cols);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t row = count < 2 ? 0 : i * (rows - 1) / (count - 1);
    if (!read(row, is)) {
      ++lost;
      continue;
    }
    if (!decode_f32(p.source, row * cols, was)) return std::nullopt;
    for (float& x : is) x += static_cast<float>(p.offset);
    sum.add_row(row, was, is);
  }
  if (2 * lost > count) return std::nullopt;  // too few rows to tell by
  const double error = sum.get().relative_rms;
  return std::isfinite(error) ? std::optional(error) : std::nullopt;
}

ReadRow rows_of(const TensorView& tensor) {
  return [&tensor](std::uint64_t row, std::span<float> values) {
    return decode_f32(tensor, row * tensor.cols(), values);
  };
}

// Every row; float tensors of one type are equal byte by byte.
void compare_whole(Pair& p) {
  p.whole = true;
  if (p.offset == 0 && p.ours.dtype == p.source.dtype && std::ranges::equal(p.ours.data, p.source.data)) {
    p.error = 0;
    return;
  }
  EncodingErrorSum sum;
  std::vector<float> was(p.source.cols()), is(p.ours.cols());
  for (std::uint64_t r = 0; r < p.source.rows(); ++r) {
    if (!decode_f32(p.source, r * was.size(), was) || !decode_f32(p.ours, r * is.size(), is)) return;
    for (float& x : is) x += static_cast<float>(p.offset);
    sum.add_row(r, was, is);
  }
  const EncodingError error = sum.get();
  p.error = std::isfinite(error.relative_rms) ? error.relative_rms : INFINITY;
  p.worst_row = error.worst_row;
}

std::string place_of_pair(const Pair& p) {
  return p.layer < 0 ? p.ours.name : fmt::format("{} (layer {})", p.ours.name, p.layer);
}

class WeightComparison {
 public:
  WeightComparison(const Examination& e, Differences& to)
      : e_(e), source_(*e.options.source->model), to_(to) {}

  Outcome run() {
    collect();
    sort();
    ThreadPool pool(e_.subject.options.threads);
    const auto each = [&](auto work) {
      pool.parallel_for(pairs_.size(), 1, [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) work(pairs_[i]);
      });
    };
    each([](Pair& p) { p.error = distance(p, rows_of(p.ours)).value_or(INFINITY); });
    each([&](Pair& p) {
      if (p.error <= allowed(p) && e_.seconds_left() > 0.5 * e_.options.seconds) compare_whole(p);
    });
    double worst = 0;
    std::size_t whole = 0;
    for (const Pair& p : pairs_) {
      whole += p.whole;
      worst = std::max(worst, p.error / allowed(p));
      if (p.error > allowed(p)) explain(p);
    }
    std::string text = fmt::format("{} weights compared, {} of them whole", pairs_.size(), whole);
    if (worst <= 1) text += fmt::format("; the worst uses {:.0f} % of what its type may lose", 100 * worst);
    return Outcome::ok(std::move(text));
  }

 private:
  void collect() {
    const auto offset = e_.subject.spec.norm.weight_offset - source_.spec.norm.weight_offset;
    for (int layer = -1; layer < static_cast<int>(e_.subject.spec.layers.size()); ++layer) {
      for (const WeightInfo& info : weight_table()) {
        const WeightId ours = e_.subject.weights.find(info.role, layer),
                       theirs = source_.weights.find(info.role, layer);
        if (ours == kNoWeight || theirs == kNoWeight) continue;
        const bool tied =
            info.role == WeightRole::kHead && e_.subject.spec.tied_head && source_.spec.tied_head;
        if (tied) continue;
        Pair pair{&info, layer, e_.subject.weights[ours], source_.weights[theirs]};
        if (pair.ours.shape != pair.source.shape) {
          to_.add({.cause = "tensor_shape",
                   .stage = std::string(stage_name(info.stage)),
                   .layer = layer,
                   .explanation =
                       fmt::format("{} has the shape {}, the source's {}.", place_of_pair(pair),
                                   describe_shape(pair.ours.shape), describe_shape(pair.source.shape))});
          continue;
        }
        if (info.kind == WeightKind::kNorm) pair.offset = offset;
        pairs_.push_back(std::move(pair));
      }
    }
  }

  void found(const Pair& p, const char* cause, std::string says, std::string repair = {},
             double confidence = 0.97) {
    to_.add({.cause = cause,
             .stage = std::string(stage_name(p.info->stage)),
             .layer = p.layer,
             .explanation = fmt::format(
                 "{} equals its source when {}; as it is, it differs by {} of its size.", place_of_pair(p),
                 says, p.error < 10 ? fmt::format("{:.2g}", p.error) : "many times"),
             .repair = std::move(repair),
             .confidence = confidence});
  }
  void is(const Pair& p, const char* cause, std::string explanation, double confidence = 0.95) {
    to_.add({.cause = cause,
             .stage = std::string(stage_name(p.info->stage)),
             .layer = p.layer,
             .explanation = std::move(explanation),
             .confidence = confidence});
  }

  bool fits(const Pair& p, const ReadRow& read) const {
    const auto error = distance(p, read);
    return error && *error <= allowed(p);
  }

  void explain(const Pair& p) {
    // Where most rows are right, no other way of reading the whole tensor is.
    const bool in_places = p.whole;
    if (not_finite(p) || by_end(p)) return;
    if (!in_places && (by_offset(p) || by_scale(p) || by_others(p) || by_row_order(p) || by_layout(p)))
      return;
    if (p.error < 0.5 && is_quantised(p.ours.dtype)) {
      is(p, "quantisation_error",
         fmt::format("{} ({}) has lost {:.2g} of its source, where the type explains {:.2g}.",
                     place_of_pair(p), dtype_name(p.ours.dtype), p.error, allowed(p) / 2));
      return;
    }
    is(p, "weight_wrong",
       fmt::format("{} differs from its source by {:.2g} of its size, where {:.2g} is explained{}; no "
                   "permutation, scale or type of it explains that.",
                   place_of_pair(p), std::isfinite(p.error) ? p.error : 1e9, allowed(p),
                   p.whole ? fmt::format(", most in row {}", p.worst_row) : ""));
  }

  // In the order of a step, so that the first place is the first that is wrong.
  void sort() {
    std::ranges::stable_sort(pairs_, {}, [](const Pair& p) {
      return p.layer >= 0 ? p.layer : p.info->role == WeightRole::kTokenEmbedding ? -1 : INT32_MAX;
    });
  }

  bool not_finite(const Pair& p) {
    std::vector<float> row(p.ours.cols());
    for (std::uint64_t r = 0; r < p.ours.rows(); ++r) {
      if (!decode_f32(p.ours, r * row.size(), row)) return false;
      if (std::ranges::all_of(row, [](float x) { return std::isfinite(x); })) continue;
      if (by_layout(p)) return true;
      is(p, "weight_nan",
         fmt::format("{} holds NaN or infinity in row {}; its source does not.", place_of_pair(p), r));
      return true;
    }
    return false;
  }

  bool by_offset(const Pair& p) {
    if (p.info->kind != WeightKind::kNorm) return false;
    for (const double by : {1.0, -1.0}) {
      Pair moved = p;
      moved.offset += by;
      // With 1 in it a weight was rounded more coarsely than its own size explains.
      const auto error = distance(moved, rows_of(p.ours));
      if (!error || *error > allowed(p) * (1 + p.error)) continue;
      found(p, "norm_weight_offset",
            fmt::format("{} is {} every value", 1, by > 0 ? "added to" : "subtracted from"),
            "Convert the norms again: they are stored as w or as 1 + w; or set rms_norm_weight_offset "
            "accordingly.");
      return true;
    }
    return false;
  }

  bool by_scale(const Pair& p) {
    std::vector<float> was(p.source.cols()), is_now(p.ours.cols());
    double products = 0, squares = 0;
    for (std::uint64_t i = 0; i < 8; ++i) {
      const std::uint64_t row = i * (p.ours.rows() - 1) / 7;
      if (!decode_f32(p.source, row * was.size(), was) || !decode_f32(p.ours, row * was.size(), is_now))
        return false;
      for (std::size_t c = 0; c < was.size(); ++c)
        products += was[c] * (is_now[c] + p.offset),
            squares += (is_now[c] + p.offset) * (is_now[c] + p.offset);
    }
    const double scale = squares > 0 ? products / squares : 0;
    if (!(std::abs(scale) > 1e-6)) return false;
    Pair plain = p;
    plain.offset = 0;
    const auto scaled = [&](std::uint64_t row, std::span<float> values) -> Status {
      DOPPLER_TRY(decode_f32(p.ours, row * values.size(), values));
      for (float& x : values) x = static_cast<float>((x + p.offset) * scale);
      return {};
    };
    if (!fits(plain, scaled)) return false;
    found(p, "weight_scaled", fmt::format("it is multiplied by {:.4g}", scale));
    return true;
  }

  bool by_row_order(const Pair& p) {
    if (p.layer < 0 || p.source.shape.size() != 2) return false;
    const std::uint64_t dim = e_.subject.spec.layers[static_cast<std::size_t>(p.layer)].attention.head_dim;
    const std::uint64_t rows = p.ours.rows(), cols = p.ours.cols();
    const auto ordered = [&](auto source) {
      return [&p, source, cols](std::uint64_t row, std::span<float> values) {
        return decode_f32(p.ours, source(row) * cols, values);
      };
    };
    if (dim > 1 && dim % 2 == 0 && rows % dim == 0) {
      if (fits(p, ordered([dim](std::uint64_t r) { return paired(r, dim); }))) {
        found(p, "weight_permuted", "its rows are put in the order of neighbouring rotary pairs (GGUF's)");
        return true;
      }
      if (fits(p, ordered([dim](std::uint64_t r) { return unpaired(r, dim); }))) {
        found(p, "weight_permuted", "its rows are put in the order of halves of a head (Hugging Face's)");
        return true;
      }
    }
    return by_matched_rows(p);
  }

  // Looks for each sampled source row among all of ours.
  bool by_matched_rows(const Pair& p) {
    const std::uint64_t rows = p.ours.rows(), cols = p.ours.cols();
    if (rows * cols > (std::uint64_t{1} << 24))
      return false;  // reading it again for every row would take too long
    std::vector<float> all(rows * cols), wanted(cols);
    if (!decode_f32(p.ours, 0, all)) return false;
    std::size_t matched = 0, tried = 0;
    std::map<std::int64_t, std::size_t> shifts;
    for (std::uint64_t i = 0; i < 16; ++i) {
      const std::uint64_t row = i * (rows - 1) / 15;
      if (!decode_f32(p.source, row * cols, wanted)) return false;
      ++tried;
      for (std::uint64_t r = 0; r < rows; ++r) {
        double error = 0, size = 0;
        for (std::uint64_t c = 0; c < cols; ++c) {
          const double d = all[r * cols + c] - wanted[c];
          error += d * d, size += double{wanted[c]} * wanted[c];
        }
        if (error > allowed(p) * allowed(p) * size) continue;
        ++matched;
        ++shifts[static_cast<std::int64_t>((r + rows - row) % rows)];
        break;
      }
    }
    if (matched * 10 < tried * 9) return false;
    for (const auto& [shift, count] : shifts) {
      if (count * 10 < tried * 9 || shift == 0) continue;
      const auto n = static_cast<std::int64_t>(rows);
      found(
          p, "weight_shifted",
          fmt::format("row i is row i {} {}", shift > n / 2 ? '-' : '+', shift > n / 2 ? n - shift : shift));
      return true;
    }
    found(p, "weight_permuted", "its rows are put in another order", {}, 0.9);
    return true;
  }

  bool by_layout(const Pair& p) {
    if (p.ours.shape.size() != 2) return false;
    const std::uint64_t dim =
        p.layer < 0 ? 0 : e_.subject.spec.layers[static_cast<std::size_t>(p.layer)].attention.head_dim;
    for (const Relayout& layout : relayouts(p.ours, p.info->role == WeightRole::kO ? dim : 0)) {
      if (!fits(p, layout.read)) continue;
      found(p, layout.cause, layout.says, layout.repair);
      return true;
    }
    return false;
  }

  // Is ours another tensor of the source?
  bool by_others(const Pair& p) {
    for (const Pair& other : pairs_) {
      if (&other == &p || other.source.shape != p.source.shape) continue;
      if (std::abs(other.layer - p.layer) > 1 && other.info != p.info) continue;
      Pair ours_as_other = p;
      ours_as_other.source = other.source;
      if (!fits(ours_as_other, rows_of(p.ours))) continue;
      const bool both = other.error > allowed(other);
      const bool gate_up = p.layer == other.layer && std::set{p.info->role, other.info->role} ==
                                                         std::set{WeightRole::kGate, WeightRole::kUp};
      is(p,
         gate_up ? "gate_up_swapped"
         : both  ? "tensor_swapped"
                 : "stale_weight",
         fmt::format("{} is the source's {}{}.", place_of_pair(p), other.source.name,
                     both ? fmt::format(", whose place {} has", other.ours.name) : ""));
      return true;
    }
    return false;
  }

  // Does it only lack its end?
  bool by_end(const Pair& p) {
    std::vector<float> row(p.ours.cols()), was(p.ours.cols());
    std::uint64_t zeros = 0, first = 0;
    for (std::uint64_t r = 0; r < p.ours.rows(); ++r) {
      if (!decode_f32(p.ours, r * row.size(), row) || !decode_f32(p.source, r * row.size(), was))
        return false;
      const bool empty = std::ranges::all_of(row, [](float x) { return x == 0; });
      if (!empty || std::ranges::all_of(was, [](float x) { return x == 0; })) continue;
      if (zeros++ == 0) first = r;
    }
    if (zeros == 0) return false;
    is(p, "truncated_weight",
       fmt::format("{} of the {} rows of {} are zero, the first is {}; the source's are not.", zeros,
                   p.ours.rows(), place_of_pair(p), first));
    return true;
  }

  const Examination& e_;
  const Model& source_;
  Differences& to_;
  std::vector<Pair> pairs_;
};

}  // namespace

Result<Outcome> check_source(const Examination& e) {
  if (e.options.source == nullptr) return Outcome::skip("no --source is given");
  Differences differences(e);
  compare_specs(e.subject.spec, e.options.source->model->spec, differences);
  Outcome outcome = WeightComparison(e, differences).run();
  differences.report();
  return outcome;
}

}  // namespace doppler::diagnosis::doctor
