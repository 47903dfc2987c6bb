// The weights of a converted model beside those of its source, tensor by tensor; where one differs, which way
// of reading it would make it equal.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "base/thread_pool.h"
#include "diagnosis/doctor/latent_halves.h"
#include "diagnosis/doctor/relayouts.h"
#include "diagnosis/doctor/source_differences.h"
#include "model/family.h"
#include "model/gguf_recurrent.h"
#include "model/gguf_rows.h"
#include "quant/error.h"

namespace doppler::diagnosis::doctor {
namespace {

// Rows that are compared first; a difference that no sample shows is found by the whole comparison.
constexpr std::uint64_t kSampledRows = 48;
// Rows of the source that are looked for among all of ours, and values beyond which reading them again for
// each takes too long.
constexpr std::uint64_t kSearchedRows = 16, kMostSearched = std::uint64_t{1} << 24;

struct Pair {
  const WeightInfo* info;
  int layer;
  TensorView ours, source;
  double offset = 0;                        // what must be added to ours: norms are stored with and without 1
  std::vector<std::uint64_t> columns = {};  // ours, in the source's order; empty where they go alike
  std::shared_ptr<const ByteSource> computed = {};  // what `source` reads, where no tensor holds it,
  DType computed_of = DType::kF32;                  // and the type of the tensor that it is computed from
  DType source_type() const { return computed ? computed_of : source.dtype; }
  double error = 0;  // as a share of the source's size, of the sample; then of the whole
  bool whole = false;
  std::uint64_t worst_row = 0;

  // Values of ours from the row on, as many rows as `values` holds, in the order of the source's columns.
  Status read_ours(std::uint64_t row, std::span<float> values) const {
    const std::size_t cols = ours.cols();
    DOPPLER_TRY(decode_f32(ours, row * cols, values));
    if (columns.empty()) return {};
    std::vector<float> stored(cols);
    for (std::size_t begin = 0; begin < values.size(); begin += cols) {
      std::ranges::copy(values.subspan(begin, cols), stored.begin());
      for (std::size_t c = 0; c < cols; ++c) values[begin + c] = stored[columns[c]];
    }
    return {};
  }
};

// A delta net's output reads its value heads in the order that the file stores them
// (RecurrentSpec::tiled_output).
std::vector<std::uint64_t> columns_of(const RecurrentSpec& ours, const RecurrentSpec& source) {
  if (ours.tiled_output == source.tiled_output) return {};
  const TiledHeads tiles{ours.groups, ours.heads / ours.groups};
  std::vector<std::uint64_t> columns(ours.inner());
  for (std::uint64_t i = 0; i < columns.size(); ++i) {
    const std::uint64_t head = i / ours.head_dim;
    columns[i] =
        (ours.tiled_output ? tiles.place_of(head) : tiles.head_at(head)) * ours.head_dim + i % ours.head_dim;
  }
  return columns;
}

// Twice what the types explain; what is stored as finely as its source differs by the last bit at most.
double explained(const Pair& p) {
  return std::max(2 * (storage_error(p.ours.dtype) + storage_error(p.source_type())), 1e-6);
}
// Floats that were copied are the same.
double allowed(const Pair& p) {
  const bool copied = p.offset == 0 && p.ours.dtype == p.source_type() && !is_quantised(p.ours.dtype);
  return copied ? 1e-6 : explained(p);
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

ReadRow rows_of(const Pair& p) {
  return [&p](std::uint64_t row, std::span<float> values) { return p.read_ours(row, values); };
}

// Every row; float tensors of one type are equal byte by byte.
void compare_whole(Pair& p) {
  p.whole = true;
  if (p.offset == 0 && p.columns.empty() && p.ours.dtype == p.source.dtype &&
      std::ranges::equal(p.ours.data, p.source.data)) {
    p.error = 0;
    return;
  }
  EncodingErrorSum sum;
  std::vector<float> was(p.source.cols()), is(p.ours.cols());
  for (std::uint64_t r = 0; r < p.source.rows(); ++r) {
    if (!decode_f32(p.source, r * was.size(), was) || !p.read_ours(r, is)) return;
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
    each([](Pair& p) { p.error = distance(p, rows_of(p)).value_or(INFINITY); });
    each([&](Pair& p) {
      if (p.error <= allowed(p) && e_.seconds_left() > 0.5 * e_.options.seconds) compare_whole(p);
    });
    double worst = 0;
    std::size_t whole = 0;
    for (const Pair& p : pairs_) {
      whole += p.whole;
      worst = std::max(worst, p.error / allowed(p));
      if (p.error > allowed(p))
        explain(p);
      else
        find_small_factor(p);
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
        if (ours != kNoWeight && theirs == kNoWeight) collect_latent(info, layer);
        if (ours == kNoWeight || theirs == kNoWeight) continue;
        const bool tied =
            info.role == WeightRole::kHead && e_.subject.spec.tied_head && source_.spec.tied_head;
        if (tied) continue;
        if (info.role == WeightRole::kHead && e_.subject.spec.tied_head) {
          head_is_not_tied(source_.weights[theirs]);
          continue;
        }
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
        if (info.takes_offset()) pair.offset = offset;
        if (info.role == WeightRole::kMixerOut)
          pair.columns = columns_of(e_.subject.spec.layers[static_cast<std::size_t>(layer)].recurrent,
                                    source_.spec.layers[static_cast<std::size_t>(layer)].recurrent);
        pairs_.push_back(std::move(pair));
      }
    }
  }

  // A file's half of what the source's folder holds as one matrix.
  void collect_latent(const WeightInfo& info, int layer) {
    const WeightId whole = source_.weights.find(WeightRole::kKvUp, layer);
    if (layer < 0 || whole == kNoWeight) return;
    const auto half = latent_half(info.role, source_.spec.layers[static_cast<std::size_t>(layer)].attention,
                                  source_.weights[whole]);
    const TensorView& ours = e_.subject.weights[e_.subject.weights.find(info.role, layer)];
    if (!half || ours.shape != half->view.shape)
      return;  // another shape is the description's fault, and told there
    pairs_.push_back({.info = &info,
                      .layer = layer,
                      .ours = ours,
                      .source = half->view,
                      .computed = half->bytes,
                      .computed_of = source_.weights[whole].dtype});
  }

  // Ours is the embedding; a source whose head equals its own embedding may say so or not.
  void head_is_not_tied(const TensorView& head) {
    const TensorView& embedding = source_.weights[source_.weights.find(WeightRole::kTokenEmbedding)];
    if (std::ranges::equal(head.data, embedding.data)) return;
    const FamilyRule* family = family_named(e_.subject.spec.family);
    const bool gguf = e_.subject.model->files.gguf.has_value();
    const std::string name =
        family == nullptr
            ? std::string()
            : weight_name(gguf ? family->gguf.weight_names : family->weight_names, WeightRole::kHead);
    Finding finding{.cause = "tied_head",
                    .stage = std::string(stage_name(Stage::kLogits)),
                    .explanation = fmt::format(
                        "The head is the embedding, and the source has the tensor {} for it.", head.name),
                    .repair = "Set tie_word_embeddings to false, and copy the head from the source.",
                    .confidence = 0.97};
    if (!name.empty()) {
      finding.fixes = {
          {.kind = Fix::Kind::kSetting, .target = "head.tied", .value = "false"},
          {.kind = Fix::Kind::kTensor,
           .target = name,
           .value = "the source's values",
           .read = [head](std::uint64_t row,
                          std::span<float> values) { return decode_f32(head, row * values.size(), values); },
           .type = is_quantised(head.dtype) ? DType::kF16 : head.dtype,
           .shape = head.shape}};
    }
    to_.add(std::move(finding));
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
             .confidence = confidence,
             .fixes = {as_source(p)}});
  }
  // The source's own values, in our type.
  static Fix as_source(const Pair& p) {
    return {Fix::Kind::kTensor,
            p.ours.name,
            "the source's values",
            {},
            [source = p.source, kept = p.computed, by = p.offset, columns = p.columns](
                std::uint64_t row, std::span<float> values) -> Status {
              DOPPLER_TRY(decode_f32(source, row * values.size(), values));
              if (!columns.empty()) {
                const std::vector<float> was(values.begin(), values.end());
                for (std::size_t c = 0; c < was.size(); ++c) values[columns[c]] = was[c];
              }
              for (float& x : values) x = static_cast<float>(x - by);
              return {};
            }};
  }
  void is(const Pair& p, const char* cause, std::string explanation, double confidence = 0.95) {
    to_.add({.cause = cause,
             .stage = std::string(stage_name(p.info->stage)),
             .layer = p.layer,
             .explanation = std::move(explanation),
             .confidence = confidence,
             .fixes = {as_source(p)}});
  }

  bool fits(const Pair& p, const ReadRow& read) const {
    const auto error = distance(p, read);
    return error && *error <= explained(p);
  }

  void explain(const Pair& p) {
    // Where most rows are right, no other way of reading the whole tensor is.
    const bool in_places = p.whole;
    if (not_finite(p) || by_end(p)) return;
    if (!in_places && (by_offset(p) || by_scale(p) || by_others(p) || by_siblings(p) || by_row_order(p) ||
                       by_layout(p) || by_transposed(p) || by_scales(p) || by_column_order(p)))
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
      if (!p.read_ours(r, row)) return false;
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
      const auto error = distance(moved, rows_of(p));
      if (!error || *error > explained(p) * (1 + p.error)) continue;
      found(p, "norm_weight_offset",
            fmt::format("{} is {} every value", 1, by > 0 ? "added to" : "subtracted from"),
            "Convert the norms again: they are stored as w or as 1 + w; or set rms_norm_weight_offset "
            "accordingly.");
      return true;
    }
    return false;
  }

  // The factor that brings some rows of ours nearest to the source's; 0 where they cannot be read.
  static double best_factor(const Pair& p, std::uint64_t rows) {
    std::vector<float> was(p.source.cols()), is_now(p.ours.cols());
    double products = 0, squares = 0;
    for (std::uint64_t i = 0; i < rows; ++i) {
      const std::uint64_t row = i * (p.ours.rows() - 1) / (rows - 1);
      if (!decode_f32(p.source, row * was.size(), was) || !p.read_ours(row, is_now)) return 0;
      for (std::size_t c = 0; c < was.size(); ++c)
        products += was[c] * (is_now[c] + p.offset),
            squares += (is_now[c] + p.offset) * (is_now[c] + p.offset);
    }
    return squares > 0 ? products / squares : 0;
  }

  // Blocks lose more than a few per cent of a value, but rounding goes both ways: over many values a factor
  // shows beneath it.
  void find_small_factor(const Pair& p) {
    constexpr std::uint64_t kFewest = 1024;  // values: an error of 10 % moves their factor by 0.3 % then
    const std::uint64_t rows = std::min(p.source.rows(), kSampledRows);
    if (!is_quantised(p.ours.dtype) || is_quantised(p.source.dtype) || rows < 2 ||
        rows * p.source.cols() < kFewest)
      return;
    const double factor = best_factor(p, rows);
    // Rounding to the nearest moves the factor by the square of its error, searched scales by less: twice
    // that, and four times what the fewest values may move it.
    const double allowed_off = 0.012 + 2 * p.error * p.error;
    if (factor <= 0 || std::abs(factor - 1) <= allowed_off) return;
    found(p, "weight_scaled", fmt::format("it is multiplied by {:.4g}", factor), {}, 0.85);
  }

  bool by_scale(const Pair& p) {
    const double scale = best_factor(p, 8);
    if (!(std::abs(scale) > 1e-6)) return false;
    Pair plain = p;
    plain.offset = 0;
    const auto scaled = [&](std::uint64_t row, std::span<float> values) -> Status {
      DOPPLER_TRY(p.read_ours(row, values));
      for (float& x : values) x = static_cast<float>((x + p.offset) * scale);
      return {};
    };
    if (!fits(plain, scaled)) return false;
    found(p, "weight_scaled", fmt::format("it is multiplied by {:.4g}", scale));
    return true;
  }

  bool by_row_order(const Pair& p) {
    if (p.source.shape.size() != 2) return false;
    return by_rotary_rows(p) || by_matched_rows(p);
  }

  bool by_rotary_rows(const Pair& p) {
    if (p.layer < 0) return false;
    const std::uint64_t dim = e_.subject.spec.layers[static_cast<std::size_t>(p.layer)].attention.head_dim;
    if (dim < 2 || dim % 2 != 0 || p.ours.rows() % dim != 0) return false;
    const auto fits_with = [&](auto source) {
      return fits(p, [&p, source](std::uint64_t row, std::span<float> values) {
        return p.read_ours(source(row), values);
      });
    };
    if (fits_with([dim](std::uint64_t r) { return paired(r, dim); })) {
      found(p, "weight_permuted", "its rows are put in the order of neighbouring rotary pairs (GGUF's)");
      return true;
    }
    if (fits_with([dim](std::uint64_t r) { return unpaired(r, dim); })) {
      found(p, "weight_permuted", "its rows are put in the order of halves of a head (Hugging Face's)");
      return true;
    }
    return false;
  }

  // Looks for each sampled source row among all of ours.
  bool by_matched_rows(const Pair& p) {
    const std::uint64_t rows = p.ours.rows(), cols = p.ours.cols();
    if (rows * cols > kMostSearched) return false;
    std::vector<float> all(rows * cols), wanted(cols);
    if (!p.read_ours(0, all)) return false;
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
        if (error > explained(p) * explained(p) * size) continue;
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

  // Tensors that a converter cuts out of one fused tensor.
  static bool are_siblings(WeightRole a, WeightRole b) {
    const auto heads = [](WeightRole r) {
      return r == WeightRole::kQ || r == WeightRole::kK || r == WeightRole::kV;
    };
    const auto halves = [](WeightRole r) { return r == WeightRole::kGate || r == WeightRole::kUp; };
    return (heads(a) && heads(b)) || (halves(a) && halves(b));
  }

  // Do the source's rows lie in other parts of a fused tensor?
  bool by_siblings(const Pair& p) {
    std::vector<const Pair*> parts;
    std::uint64_t values = 0;
    for (const Pair& other : pairs_) {
      if (other.layer != p.layer || !are_siblings(p.info->role, other.info->role)) continue;
      parts.push_back(&other);
      values += other.ours.rows() * other.ours.cols();
    }
    if (parts.size() < 2 || values > kMostSearched) return false;
    const std::uint64_t cols = p.source.cols();
    std::vector<float> wanted(cols), row(cols);
    std::size_t elsewhere = 0, here = 0, tried = 0;
    for (std::uint64_t i = 0; i < kSearchedRows; ++i) {
      const std::uint64_t at = std::min(i * (p.source.rows() - 1) / (kSearchedRows - 1) + i % 2,
                                        p.source.rows() - 1);  // even ones and odd ones
      if (!decode_f32(p.source, at * cols, wanted)) return false;
      ++tried;
      const auto holds = [&](const Pair& part) {
        for (std::uint64_t r = 0; r < part.ours.rows(); ++r) {
          if (part.ours.cols() != cols || !part.read_ours(r, row)) return false;
          if (are_near(p, row, wanted)) return true;
        }
        return false;
      };
      if (holds(p))
        ++here;
      else
        elsewhere += std::ranges::any_of(parts, [&](const Pair* part) { return part != &p && holds(*part); });
    }
    if (elsewhere == 0 || (here + elsewhere) * 10 < tried * 9) return false;
    found(p, "fused_split",
          "rows of it change places with rows of the tensors that the fused one is cut into", {}, 0.9);
    return true;
  }

  static bool are_near(const Pair& p, std::span<const float> a, std::span<const float> b) {
    const double most = explained(p) * explained(p);
    double error = 0, size = 0;
    for (const float x : b) size += double{x} * x;
    for (std::size_t c = 0; c < a.size(); ++c) {
      error += (double{a[c]} - b[c]) * (double{a[c]} - b[c]);
      if (error > most * size) return false;
    }
    return true;
  }

  // One factor for each row, or for each column, each tried on all sampled values.
  bool by_scales(const Pair& p) {
    if (p.ours.shape.size() != 2) return false;
    const std::uint64_t rows = p.source.rows(), cols = p.source.cols();
    std::vector<float> was(cols);
    const auto of_row = [&](std::uint64_t row, std::span<float> values) -> Status {
      DOPPLER_TRY(p.read_ours(row, values));
      DOPPLER_TRY(decode_f32(p.source, row * cols, was));
      double products = 0, squares = 0;
      for (std::size_t c = 0; c < cols; ++c)
        products += double{was[c]} * values[c], squares += double{values[c]} * values[c];
      for (float& x : values) x = static_cast<float>(x * (squares > 0 ? products / squares : 1));
      return {};
    };
    if (cols > 1 && fits(p, of_row)) {
      found(p, "scales_lost", "each row is multiplied by a scale of its own", {}, 0.9);
      return true;
    }
    std::vector<double> products(cols), squares(cols);
    std::vector<float> is_now(cols);
    for (std::uint64_t i = 0; i < std::min(rows, kSampledRows); ++i) {
      const std::uint64_t row = i * (rows - 1) / std::max<std::uint64_t>(std::min(rows, kSampledRows) - 1, 1);
      if (!p.read_ours(row, is_now) || !decode_f32(p.source, row * cols, was)) return false;
      for (std::size_t c = 0; c < cols; ++c)
        products[c] += double{was[c]} * is_now[c], squares[c] += double{is_now[c]} * is_now[c];
    }
    const auto of_column = [&](std::uint64_t row, std::span<float> values) -> Status {
      DOPPLER_TRY(p.read_ours(row, values));
      for (std::size_t c = 0; c < cols; ++c)
        values[c] = static_cast<float>(values[c] * (squares[c] > 0 ? products[c] / squares[c] : 1));
      return {};
    };
    if (rows < 8 || !fits(p, of_column)) return false;  // few rows fit by chance
    found(p, "scales_lost", "each column is multiplied by a scale of its own", {}, 0.9);
    return true;
  }

  // Looks for each of the source's columns among all of ours, by what some rows hold there.
  bool by_column_order(const Pair& p) {
    const std::uint64_t rows = p.source.rows(), cols = p.source.cols(), count = std::min(rows, kSearchedRows);
    if (p.ours.shape.size() != 2 || count < 8 || cols * cols * 2 > kMostSearched) return false;
    std::vector<float> ours(count * cols), source(count * cols);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t row = i * (rows - 1) / (count - 1);
      if (!p.read_ours(row, std::span(ours).subspan(i * cols, cols)) ||
          !decode_f32(p.source, row * cols, std::span(source).subspan(i * cols, cols)))
        return false;
    }
    std::vector<std::uint64_t> order(cols, cols);
    std::uint64_t moved = 0;
    for (std::uint64_t to = 0; to < cols; ++to) {
      double nearest = INFINITY;
      for (std::uint64_t from = 0; from < cols; ++from) {
        double error = 0;
        for (std::uint64_t i = 0; i < count && error < nearest; ++i)
          error += std::pow(double{ours[i * cols + from]} - source[i * cols + to], 2);
        if (error < nearest) nearest = error, order[to] = from;
      }
      if (order[to] == cols) return false;
      moved += order[to] != to;
    }
    std::vector<float> row(cols);
    const auto ordered = [&](std::uint64_t r, std::span<float> values) -> Status {
      DOPPLER_TRY(p.read_ours(r, row));
      for (std::size_t c = 0; c < cols; ++c) values[c] = row[order[c]];
      return {};
    };
    if (moved == 0 || !fits(p, ordered)) return false;
    found(p, "weight_permuted", fmt::format("{} of its {} columns change places", moved, cols),
          "Undo the permutation of the columns: act-order's, or that of tensor-parallel shards.");
    return true;
  }

  bool by_layout(const Pair& p) {
    const bool vector = p.ours.shape.size() == 1;
    if (!vector && p.ours.shape.size() != 2) return false;
    const std::uint64_t dim =
        p.layer < 0 ? 0 : e_.subject.spec.layers[static_cast<std::size_t>(p.layer)].attention.head_dim;
    for (const Relayout& layout : relayouts(p.ours, p.info->role == WeightRole::kO ? dim : 0)) {
      if (vector && std::string_view(layout.cause) != "wrong_dtype") continue;
      if (!fits(p, layout.read)) continue;
      found(p, layout.cause, layout.says, layout.repair);
      return true;
    }
    return false;
  }

  // Blocks cannot be read along the other axis; their values can.
  bool by_transposed(const Pair& p) {
    const std::uint64_t rows = p.ours.rows(), cols = p.ours.cols();
    if (!is_quantised(p.ours.dtype) || p.ours.shape.size() != 2 || rows * cols > kMostSearched) return false;
    std::vector<float> all(rows * cols);
    if (!p.read_ours(0, all)) return false;
    // Either ours was written along the other axis, or it was to be and was not.
    const auto across = [&](std::uint64_t row, std::span<float> values) -> Status {
      for (std::uint64_t c = 0; c < cols; ++c) values[c] = all[c * rows + row];
      return {};
    };
    const auto back = [&](std::uint64_t row, std::span<float> values) -> Status {
      for (std::uint64_t c = 0; c < cols; ++c) {
        const std::uint64_t flat = row * cols + c;
        values[c] = all[flat % rows * cols + flat / rows];
      }
      return {};
    };
    if (!fits(p, across) && !fits(p, back)) return false;
    found(p, "weight_transposed", "its rows and columns are exchanged");
    return true;
  }

  // Is ours another tensor of the source?
  bool by_others(const Pair& p) {
    for (const Pair& other : pairs_) {
      if (&other == &p || other.source.shape != p.source.shape) continue;
      if (std::abs(other.layer - p.layer) > 1 && other.info != p.info) continue;
      Pair ours_as_other = p;
      ours_as_other.source = other.source;
      if (!fits(ours_as_other, rows_of(p))) continue;
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
      if (!p.read_ours(r, row) || !decode_f32(p.source, r * row.size(), was)) return false;
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

Outcome compare_weights(const Examination& e, Differences& to) {
  return WeightComparison(e, to).run();
}

}  // namespace doppler::diagnosis::doctor
