// Checks of weights without running the model.
#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "base/text.h"
#include "base/thread_pool.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

// A weight that is used; of weights of three dimensions, each matrix (an expert's) by itself.
struct Bound {
  const WeightInfo* info;
  int layer;
  TensorView tensor;
  std::string stage() const { return std::string(stage_name(info->stage)); }
};

// Every weight that is used, once.
std::vector<Bound> bound_weights(const Subject& subject) {
  std::vector<Bound> bound;
  for (int layer = -1; layer < static_cast<int>(subject.spec.layers.size()); ++layer) {
    for (const WeightInfo& info : weight_table()) {
      const WeightId id = subject.weights.find(info.role, layer);
      if (id == kNoWeight || (info.role == WeightRole::kHead && subject.spec.tied_head)) continue;
      for (std::uint32_t i = 0; i < subject.weights.count(id); ++i)
        bound.push_back({&info, layer, subject.weights[id + i]});
    }
  }
  return bound;
}

Result<std::vector<Bound>> bound_matrices(const Subject& subject) {
  std::vector<Bound> matrices;
  for (const Bound& b : bound_weights(subject)) {
    for (std::uint64_t i = 0; i < b.tensor.matrices(); ++i) {
      DOPPLER_ASSIGN(TensorView matrix, take_matrix(b.tensor, i));
      matrices.push_back({b.info, b.layer, std::move(matrix)});
    }
  }
  return matrices;
}

struct TensorLook {
  std::uint64_t elements = 0, bad = 0, zeros_at_end = 0, zero_columns = 0, zero_rows_at_end = 0;
  std::uint64_t zero_run = 0, zero_run_end = 0;  // the longest run of rows of zeros, and the row after it
  double squares = 0;
  double largest = 0;  // magnitude, and its place
  std::uint64_t first_bad = 0, largest_at = 0;
  bool looked = false;
};

TensorLook look_at(const TensorView& tensor) {
  TensorLook look;
  look.looked = true;
  const std::uint64_t rows = tensor.rows(), cols = tensor.cols();
  std::vector<float> row(cols);
  std::vector<bool> used(cols, false);
  std::uint64_t unused_tail = cols;  // columns at the end that are zero in every row so far
  for (std::uint64_t r = 0; r < rows; ++r) {
    if (!decode_f32(tensor, r * cols, row)) break;
    double squares = 0;
    std::uint64_t tail = 0;
    for (std::uint64_t i = 0; i < cols; ++i) {
      const float x = row[i];
      if (!std::isfinite(x)) {
        if (look.bad++ == 0) look.first_bad = r * cols + i;
        continue;
      }
      squares += static_cast<double>(x) * x;
      if (std::abs(static_cast<double>(x)) > look.largest)
        look.largest = std::abs(static_cast<double>(x)), look.largest_at = r * cols + i;
      tail = x == 0 ? tail + 1 : 0;
    }
    look.squares += squares;
    look.zeros_at_end = tail == cols ? look.zeros_at_end + cols : tail;
    look.zero_rows_at_end = tail == cols ? look.zero_rows_at_end + 1 : 0;
    if (look.zero_rows_at_end > look.zero_run)
      look.zero_run = look.zero_rows_at_end, look.zero_run_end = r + 1;
    if (tail < cols) unused_tail = std::min(unused_tail, tail);
  }
  look.elements = rows * cols;
  look.zero_columns = unused_tail == cols ? 0 : unused_tail;
  return look;
}

std::string place_of(const Bound& b) {
  return b.layer < 0 ? b.tensor.name : fmt::format("{} (layer {})", b.tensor.name, b.layer);
}

// Finds ends that are exactly zero, as weights never are. Vocabularies are padded: zero rows at the end of an
// embedding count only if the tokenizer has tokens there.
void judge_zeros(const Examination& e, const Bound& b, const TensorLook& look) {
  const WeightKind kind = b.info->kind;
  const bool vocabulary = kind == WeightKind::kEmbedding || kind == WeightKind::kHead;
  const std::uint64_t cols = b.tensor.cols(), rows = b.tensor.rows();
  const bool matrix = b.tensor.shape.size() == 2;
  std::uint64_t zeros = look.zeros_at_end;
  if (look.squares == 0 && look.bad == 0) {
    const bool norm = kind == WeightKind::kNorm;
    if (kind == WeightKind::kBias || (norm && e.subject.spec.norm.weight_offset != 0)) return;  // 1 + 0
    e.find({.cause = "truncated_weight",
            .stage = b.stage(),
            .layer = b.layer,
            .explanation = fmt::format("{} is zero throughout.", place_of(b)),
            .confidence = 0.9});
    return;
  }
  if (vocabulary) {
    const std::uint64_t known = e.subject.tokenizer != nullptr ? e.subject.tokenizer->vocab_size() : rows;
    const std::uint64_t padding = rows > known ? (rows - known) * cols : 0;
    if (zeros <= padding) return;
    zeros -= padding;
    // Tokens that were never seen in training may have zero rows; a lost end is longer than a few of them.
    if (zeros < 16 * cols) return;
  }
  // Rows in the middle of a projection: nobody trains a row to be nothing, and not so many side by side.
  const std::uint64_t many = std::max<std::uint64_t>(8, rows / 64);
  if (matrix && !vocabulary && look.zero_run >= many && look.zero_run_end < rows) {
    e.find({.cause = "truncated_weight",
            .stage = b.stage(),
            .layer = b.layer,
            .explanation =
                fmt::format("Rows {} to {} of the {} rows of {} are zero.", look.zero_run_end - look.zero_run,
                            look.zero_run_end - 1, rows, place_of(b)),
            .confidence = 0.9});
    return;
  }
  // Half a row of zeros, or a block of the coarsest types, does not happen.
  const std::uint64_t suspicious =
      matrix ? std::max<std::uint64_t>(cols / 2, 64) : std::max<std::uint64_t>(cols / 16, 4);
  const bool end = zeros >= suspicious;
  if (!end && !(matrix && look.zero_columns >= 8)) return;
  e.find({.cause = "truncated_weight",
          .stage = b.stage(),
          .layer = b.layer,
          .explanation = end ? fmt::format("The last {} of the {} values of {} are zero.", zeros,
                                           look.elements, place_of(b))
                             : fmt::format("The last {} of the {} columns of {} are zero in every row.",
                                           look.zero_columns, cols, place_of(b)),
          .confidence = 0.9});
}

// Trained weights reach some hundred times their size in single places; a flipped bit of an exponent, or
// bytes that are no numbers, reach much further.
constexpr double kOutlier = 2000;

void judge_outliers(const Examination& e, const Bound& b, const TensorLook& look) {
  if (b.info->kind == WeightKind::kBias || look.elements < 64) return;
  const double rest = std::sqrt(std::max(0.0, look.squares - look.largest * look.largest) /
                                static_cast<double>(look.elements - 1));
  // Beyond 1e18 the squares of the others are lost beside the largest's.
  if (look.largest < 1e18 && (rest == 0 || look.largest < kOutlier * rest)) return;
  const std::uint64_t cols = b.tensor.cols();
  e.find({.cause = "weight_wrong",
          .stage = b.stage(),
          .layer = b.layer,
          .explanation =
              look.largest < 1e18
                  ? fmt::format(
                        "The value in row {}, column {} of {} has the magnitude {:.3g}, the others {:.3g}.",
                        look.largest_at / cols, look.largest_at % cols, place_of(b), look.largest, rest)
                  : fmt::format("The value in row {}, column {} of {} has the magnitude {:.3g}.",
                                look.largest_at / cols, look.largest_at % cols, place_of(b), look.largest),
          .confidence = 0.9});
}

}  // namespace

Result<Outcome> check_weights(const Examination& e) {
  DOPPLER_ASSIGN(const std::vector<Bound> bound, bound_matrices(e.subject));
  std::vector<TensorLook> looks(bound.size());
  ThreadPool pool(e.subject.options.threads);
  pool.parallel_for(bound.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (e.seconds_left() > 0.6 * e.options.seconds) looks[i] = look_at(bound[i].tensor);
    }
  });
  std::uint64_t values = 0, unseen = 0;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (!looks[i].looked) {
      ++unseen;
      continue;
    }
    values += looks[i].elements;
    if (looks[i].bad > 0) {
      const std::uint64_t cols = bound[i].tensor.cols();
      e.find(
          {.cause = "weight_nan",
           .stage = bound[i].stage(),
           .layer = bound[i].layer,
           .explanation = fmt::format(
               "{} of the {} values of {} are NaN or infinite, the first in row {}, column {}.", looks[i].bad,
               looks[i].elements, place_of(bound[i]), looks[i].first_bad / cols, looks[i].first_bad % cols)});
    } else {
      judge_zeros(e, bound[i], looks[i]);
      if (e.options.reference == nullptr) judge_outliers(e, bound[i], looks[i]);
    }
  }
  return Outcome::ok(
      fmt::format("{} tensors, {} values, all finite and whole{}", bound.size() - unseen, values,
                  unseen > 0 ? fmt::format("; {} not looked at for lack of time", unseen) : ""));
}

namespace {

// Bytes of layers' weights are never equal in a trained model; all ones of a norm, or zeros of a bias, are.
std::size_t find_equal_weights(const Examination& e, std::span<const Bound> bound) {
  std::map<std::string_view, const Bound*> seen;  // views of the bytes
  std::size_t compared = 0;
  for (const Bound& b : bound) {
    const std::string_view bytes(reinterpret_cast<const char*>(b.tensor.data.data()), b.tensor.data.size());
    const bool plain =
        bytes.size() < 64 || bytes.find_first_not_of(bytes.substr(0, 4)) == std::string_view::npos;
    if (plain) continue;
    ++compared;
    const auto [first, fresh] = seen.emplace(bytes, &b);
    if (fresh || e.options.reference != nullptr) continue;  // the recording shows which of the two is wrong
    const Bound& other = *first->second;
    const bool vector = b.tensor.shape.size() < 2;
    if (!vector && (b.layer < 0 || other.layer < 0)) continue;  // a head that is stored twice
    const Bound& blamed = vector && other.layer < 0 ? other : b;
    e.find(
        {.cause = "stale_weight",
         .stage = blamed.stage(),
         .layer = blamed.layer,
         .explanation = fmt::format("{} equals {} byte for byte{}.", place_of(b), place_of(other),
                                    other.layer == b.layer ? "" : ", so one of them has the other's values"),
         .confidence = 0.8});
  }
  return compared;
}

// A weight's size and lean, by some of its rows.
struct Sample {
  const Bound* bound;
  double size = 0;  // root of the mean square
  double lean = 0;  // the mean, as a share of the size: 0 as many signs of either kind, 1 only one kind
};

Sample sample_of(const Bound& b, DType type) {
  TensorView tensor = b.tensor;
  tensor.dtype = type;
  std::vector<float> values(std::min<std::uint64_t>(tensor.cols(), 4096));
  double squares = 0, sum = 0;
  for (std::uint64_t i = 0; i < 8; ++i) {
    if (!decode_f32(tensor, i * (tensor.rows() - 1) / 7 * tensor.cols(), values)) continue;
    for (const float x : values) squares += static_cast<double>(x) * x, sum += x;
  }
  const auto count = static_cast<double>(8 * values.size());
  Sample sample{&b, std::sqrt(squares / count)};
  if (sample.size > 0) sample.lean = std::abs(sum / count) / sample.size;
  return sample;
}

// Layers' sizes of one weight differ by a few times; more has a reason.
constexpr double kFarLarger = 30;
// Where reading the bytes as the other 16-bit type gives the size of the other layers, less will do.
constexpr double kLarger = 6, kAlike = 3;

void judge_size(const Examination& e, const Sample& sample, double middle) {
  const double times = sample.size > middle ? sample.size / middle : middle / sample.size;
  const Bound& b = *sample.bound;
  const bool bf16 = b.tensor.dtype == DType::kBF16, f16 = b.tensor.dtype == DType::kF16;
  if (times >= kLarger && (bf16 || f16)) {
    const double other = sample_of(b, bf16 ? DType::kF16 : DType::kBF16).size;
    if (other < kAlike * middle && other * kAlike > middle) {
      e.find({.cause = "wrong_dtype",
              .stage = b.stage(),
              .layer = b.layer,
              .explanation = fmt::format(
                  "The values of {} have the size {:.3g}, those of other layers {:.3g}; read as {}, {:.3g}.",
                  place_of(b), sample.size, middle, bf16 ? "F16" : "BF16", other),
              .repair = fmt::format("Correct the tensor's type to {} (it is {}), or convert it again.",
                                    bf16 ? "F16" : "BF16", dtype_name(b.tensor.dtype)),
              .confidence = 0.9});
      return;
    }
  }
  if (times < kFarLarger) return;
  e.find({.cause = "weight_scaled",
          .stage = b.stage(),
          .layer = b.layer,
          .explanation = fmt::format("The values of {} have the size {:.3g}, those of other layers {:.3g}.",
                                     place_of(b), sample.size, middle),
          .confidence = 0.6});
}

}  // namespace

Result<Outcome> check_layers_alike(const Examination& e) {
  DOPPLER_ASSIGN(const std::vector<Bound> bound, bound_matrices(e.subject));
  const std::size_t compared = find_equal_weights(e, bound);
  if (e.options.reference != nullptr)
    return Outcome::ok(fmt::format("{} weights compared; the recording tells of the rest", compared));
  for (const WeightInfo& info : weight_table()) {
    std::vector<Sample> samples;
    for (const Bound& b : bound) {
      if (b.info != &info || b.layer < 0 || b.tensor.shape.size() < 2) continue;
      const Sample sample = sample_of(b, b.tensor.dtype);
      if (sample.size > 0 && std::isfinite(sample.size))
        samples.push_back(sample);  // else check_weights says so
    }
    if (samples.size() < 3) continue;
    std::ranges::sort(samples, {}, &Sample::lean);
    const double usual = samples[samples.size() / 2].lean;
    for (const Sample& sample : samples) {
      if (sample.lean < 0.5 || usual > 0.2) continue;
      e.find({.cause = "weight_wrong",
              .stage = sample.bound->stage(),
              .layer = sample.bound->layer,
              .explanation = fmt::format("Nearly all values of {} have one sign, those of other layers both.",
                                         place_of(*sample.bound)),
              .repair = "Convert the tensor again: its signs are lost.",
              .confidence = 0.9});
    }
    std::ranges::sort(samples, {}, &Sample::size);
    const double middle = samples[samples.size() / 2].size;
    for (const Sample& sample : samples) judge_size(e, sample, middle);
  }
  return Outcome::ok(fmt::format("{} weights, none equal to another, all of their layers' scale", compared));
}

namespace {

// The head applied to an embedding, for a sample of tokens: the rank of the token itself.
std::size_t rank_of_itself(std::span<const float> scores, std::size_t own) {
  return static_cast<std::size_t>(std::ranges::count_if(scores, [&](float s) { return s > scores[own]; }));
}

}  // namespace

Result<Outcome> check_tied_head(const Examination& e) {
  if (e.options.reference != nullptr) return Outcome::skip("the recording tells more");
  if (!e.subject.spec.tied_head) return Outcome::skip("the head is not tied to the embedding");
  if (std::ranges::any_of(e.findings, [](const Finding& f) { return f.check == "neighbours"; }))
    return Outcome::skip("what is wrong with the embedding explains it");
  const TensorView& table = e.subject.weights[e.subject.weights.find(WeightRole::kTokenEmbedding)];
  const TensorView& head = e.subject.weights[e.subject.weights.find(WeightRole::kHead)];
  constexpr std::size_t kTokens = 8;
  const std::uint64_t rows = table.rows(), cols = table.cols();
  std::vector<std::size_t> ids;
  std::vector<float> x(kTokens * cols);
  for (std::size_t i = 0; i < kTokens; ++i) {
    ids.push_back((2 * i + 1) * rows / (2 * kTokens));
    DOPPLER_TRY(decode_f32(table, ids[i] * cols, std::span(x).subspan(i * cols, cols)));
  }
  std::vector<std::vector<float>> scores(kTokens, std::vector<float>(rows));
  ThreadPool pool(e.subject.options.threads);
  pool.parallel_for(rows, 64, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(cols);
    for (std::size_t r = begin; r < end; ++r) {
      if (!decode_f32(head, r * cols, row)) return;
      for (std::size_t t = 0; t < kTokens; ++t) {
        float sum = 0, squares = 0;
        for (std::size_t i = 0; i < cols; ++i) sum += row[i] * x[t * cols + i], squares += row[i] * row[i];
        scores[t][r] = squares > 0 ? sum / std::sqrt(squares) : 0;  // long rows do not win by their length
      }
    }
  });
  std::size_t first = 0;
  for (std::size_t t = 0; t < kTokens; ++t) first += rank_of_itself(scores[t], ids[t]) == 0;
  if (first * 2 < kTokens) {
    e.find({.cause = "tied_head",
            .stage = "logits",
            .explanation = fmt::format(
                "The head finds only {} of {} tokens by their own embeddings, though they share a tensor.",
                first, kTokens),
            .confidence = 0.8});
  }
  return Outcome::ok(fmt::format("{} of {} tokens come first", first, kTokens));
}

namespace {

// Pairs of tokens that mean nearly the same: with and without a space before, or a capital.
std::vector<std::pair<TokenId, TokenId>> related_pairs(const tokenizer::Tokenizer& tokenizer,
                                                       std::size_t most) {
  std::vector<std::pair<TokenId, TokenId>> pairs;
  const std::size_t size = tokenizer.vocab_size();
  for (std::size_t id = 0; id < size && pairs.size() < most; ++id) {
    const auto piece = tokenizer.spec().vocabulary.piece(static_cast<TokenId>(id));
    if (!piece || piece->size() < 3) continue;
    const bool letters = std::ranges::all_of(*piece, [](char c) { return (c >= 'a' && c <= 'z'); });
    if (!letters) continue;
    for (const std::string_view space : {"\xe2\x96\x81", "\xc4\xa0"}) {
      if (const auto other = tokenizer.find(std::string(space) + std::string(*piece)))
        pairs.emplace_back(static_cast<TokenId>(id), *other);
    }
    std::string capital(*piece);
    capital[0] = static_cast<char>(capital[0] - 'a' + 'A');
    if (const auto other = tokenizer.find(capital)) pairs.emplace_back(static_cast<TokenId>(id), *other);
  }
  return pairs;
}

using ReadToken = std::function<Status(std::uint64_t id, std::span<float> row)>;

Result<double> mean_cosine(std::span<const std::pair<TokenId, TokenId>> pairs, std::uint64_t cols,
                           const ReadToken& read) {
  std::vector<float> a(cols), b(cols);
  double sum = 0;
  for (const auto& [first, second] : pairs) {
    DOPPLER_TRY(read(static_cast<std::uint64_t>(first), a));
    DOPPLER_TRY(read(static_cast<std::uint64_t>(second), b));
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t i = 0; i < cols; ++i) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    if (aa > 0 && bb > 0) sum += ab / std::sqrt(aa * bb);
  }
  return sum / static_cast<double>(pairs.size());
}

}  // namespace

Result<Outcome> check_neighbours(const Examination& e) {
  if (e.options.reference != nullptr) return Outcome::skip("the recording tells more");
  if (e.subject.tokenizer == nullptr) return Outcome::skip("the model has no tokenizer");
  const TensorView& table = e.subject.weights[e.subject.weights.find(WeightRole::kTokenEmbedding)];
  const std::uint64_t rows = table.rows(), cols = table.cols();
  auto related = related_pairs(*e.subject.tokenizer, 200);
  std::erase_if(related, [&](const auto& p) {
    return static_cast<std::uint64_t>(std::max(p.first, p.second)) >= rows;
  });
  if (related.size() < 20) return Outcome::skip("the vocabulary has too few pairs of related words");
  // The same first halves with each other's second halves.
  auto unrelated = related;
  for (std::size_t i = 0; i < unrelated.size(); ++i)
    unrelated[i].second = related[(i + related.size() / 2 + 1) % related.size()].second;
  const auto margin = [&](const ReadToken& read) -> Result<double> {
    DOPPLER_ASSIGN(const double near, mean_cosine(related, cols, read));
    DOPPLER_ASSIGN(const double far, mean_cosine(unrelated, cols, read));
    return near - far;
  };
  // Cosines of unrelated rows spread by 1 / sqrt(width); their mean over the pairs by as much less.
  const double chance = 4 / std::sqrt(static_cast<double>(cols * related.size()));
  const ReadToken as_is = [&](std::uint64_t id, std::span<float> row) {
    return decode_f32(table, id * cols, row);
  };
  DOPPLER_ASSIGN(const double own, margin(as_is));
  const std::string text =
      fmt::format("{} pairs of related tokens lie {:.3f} nearer than others (chance: {:.3f})", related.size(),
                  own, chance);
  if (own > chance) return Outcome::ok(text);
  if (is_quantised(table.dtype)) return Outcome::ok(text + "; too little to tell");
  struct Reading {
    const char* cause;
    std::string says;
    ReadToken read;
  };
  std::vector<Reading> readings = {
      {"weight_transposed", "is read with rows and columns exchanged",
       [&](std::uint64_t id, std::span<float> row) -> Status {
         for (std::uint64_t i = 0; i < cols; ++i)
           DOPPLER_TRY(decode_f32(table, i * rows + id, row.subspan(i, 1)));
         return {};
       }},
      {"weight_transposed", "is not transposed", [&](std::uint64_t id, std::span<float> row) -> Status {
         for (std::uint64_t i = 0; i < cols; ++i) {
           const std::uint64_t flat = id * cols + i;
           DOPPLER_TRY(decode_f32(table, (flat % rows) * cols + flat / rows, row.subspan(i, 1)));
         }
         return {};
       }}};
  for (const std::int64_t by : {1, -1, 2, -2, 3, -3, 4, -4}) {
    readings.push_back(
        {"weight_shifted", fmt::format("is read {} rows {}", std::abs(by), by > 0 ? "later" : "earlier"),
         [&, by](std::uint64_t id, std::span<float> row) {
           const auto from = static_cast<std::uint64_t>(static_cast<std::int64_t>(id + rows) + by) % rows;
           return decode_f32(table, from * cols, row);
         }});
  }
  for (const Reading& reading : readings) {
    DOPPLER_ASSIGN(const double other, margin(reading.read));
    if (other < 2 * chance || other < 4 * std::abs(own)) continue;
    e.find({.cause = reading.cause,
            .stage = "embed_out",
            .explanation =
                fmt::format("Related tokens lie {:.3f} nearer than others when {} {}; as it is, {:.3f}.",
                            other, table.name, reading.says, own),
            .confidence = 0.85});
    return Outcome::found(text);
  }
  return Outcome::ok(text + "; too little to tell");
}

}  // namespace doppler::diagnosis::doctor
