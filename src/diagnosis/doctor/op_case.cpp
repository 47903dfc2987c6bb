#include "diagnosis/doctor/op_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace doppler::diagnosis {
namespace {

// The difference always allowed to an attempt, as a share of the largest value of a token's row: some
// roundings of float32; faults leave a thousand times as much.
constexpr float kLenient = 2e-6f;
// Attempts with a larger ratio are not excused by their own rounding.
constexpr double kNear = 1e4;
// The same along a chain, whose allowance costs several runs of it.
constexpr double kNearAlong = 100;

// Products beyond this many multiplications are judged on a few tokens: about a second of the oracle's time.
constexpr std::uint64_t kMostProducts = 1'000'000'000;
constexpr std::size_t kFewTokens = 8;  // as many as the oracle computes in one pass over a weight

std::vector<std::size_t> choose_tokens(const OpSetup& setup) {
  const std::size_t count = setup.tokens();
  std::size_t most = count;
  if (setup.kind == OpKind::kMatmul && setup.inputs[0].width * setup.width > kMostProducts / 1000)
    most = kFewTokens;
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < std::min(most, count); ++i) {
    rows.push_back(most >= count ? i : i * (count - 1) / (most - 1));  // evenly, with the first and the last
  }
  return rows;
}

std::vector<float> take_rows(const std::vector<float>& from, std::size_t width,
                             std::span<const std::size_t> rows) {
  std::vector<float> taken;
  taken.reserve(rows.size() * width);
  for (const std::size_t r : rows) {
    taken.insert(taken.end(), from.begin() + static_cast<std::ptrdiff_t>(r * width),
                 from.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
  }
  return taken;
}

template <typename T>
void keep_rows(std::vector<T>& values, std::span<const std::size_t> rows) {
  std::vector<T> kept;
  for (const std::size_t r : rows) kept.push_back(values[r]);
  values = std::move(kept);
}

}  // namespace

Result<OpCase> OpCase::open(const Context& context, std::size_t op, std::vector<float> target,
                            std::span<const std::size_t> only) {
  OpCase made(context);
  made.index_ = op;
  DOPPLER_ASSIGN(made.setup_, context.experiment.setup(op));
  OpSetup& setup = made.setup_;
  made.rows_.assign(only.begin(), only.end());
  if (only.empty()) made.rows_ = choose_tokens(setup);
  if (keeps_state(setup.kind) && !only.empty()) {  // a state is made of all tokens before
    made.rows_.resize(only.back() + 1);
    std::iota(made.rows_.begin(), made.rows_.end(), std::size_t{0});
  }
  if (made.rows_.size() < setup.tokens()) {
    for (std::size_t i = 0; i < setup.inputs.size(); ++i) {
      if (setup.kind == OpKind::kAttention && i > 0) {  // rows that the last token may attend to
        if (!only.empty()) setup.inputs[i].data.resize((only.back() + 1) * setup.inputs[i].width);
        continue;
      }
      setup.inputs[i].data = take_rows(setup.inputs[i].data, setup.inputs[i].width, made.rows_);
    }
    keep_rows(setup.ids, made.rows_);
    keep_rows(setup.positions, made.rows_);
    target = take_rows(target, setup.width, made.rows_);
  }
  made.target_ = std::move(target);
  DOPPLER_ASSIGN(made.output_, context.experiment.run(setup));
  DOPPLER_ASSIGN(made.allowed_, allowance_of(setup, made.target_, context.rounding, context.threads));
  made.judged_width_ = setup.width;
  made.be_lenient();
  return made;
}

Result<OpCase> OpCase::open_along(const Context& context, const OpChain& chain,
                                  std::span<const std::size_t> ops, const ChainEnd& end) {
  OpCase made(context);
  made.index_ = ops.front();
  made.chain_ = &chain;
  made.scope_.assign(ops.begin(), ops.end());
  DOPPLER_ASSIGN(made.setup_, chain.setup(made.index_));
  for (std::size_t i = 0; i < made.setup_.tokens(); ++i) made.rows_.push_back(i);
  made.target_ = end.target, made.output_ = end.output, made.allowed_ = end.allowed;
  made.judged_width_ = end.target.size() / std::max<std::size_t>(made.setup_.tokens(), 1);
  made.be_lenient();
  return made;
}

void OpCase::be_lenient() {
  misfit_ = judge(output_);
  lenient_ = allowed_;
  for (std::size_t begin = 0; begin < target_.size(); begin += judged_width_) {
    float largest = 0;
    for (std::size_t i = begin; i < begin + judged_width_; ++i) {
      if (std::isfinite(target_[i])) largest = std::max(largest, std::abs(target_[i]));
    }
    for (std::size_t i = begin; i < begin + judged_width_; ++i)
      lenient_[i] = std::max(lenient_[i], kLenient * largest);
  }
  // With that leniency the op as it is may agree, too: then only what comes far nearer is an explanation.
  constexpr double kNearer = 0.3;
  most_ = std::min(1.0, kNearer * judge(output_, lenient_).ratio);
}

Misfit OpCase::judge(std::span<const float> output, std::span<const float> allowed) const {
  Misfit worst;
  if (output.size() != target_.size()) return {INFINITY, 0, 0};
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] == target_[i] || (std::isnan(output[i]) && std::isnan(target_[i]))) continue;
    const double difference = std::abs(static_cast<double>(output[i]) - target_[i]);
    double ratio = difference / (allowed.empty() ? allowed_[i] : std::max(allowed[i], lenient_[i]));
    if (std::isnan(ratio)) ratio = INFINITY;
    if (ratio > worst.ratio) worst = {ratio, i / judged_width_, i % judged_width_};
  }
  return worst;
}

std::optional<std::vector<float>> OpCase::other(Stage stage, int layer) const {
  const StageRows& rows = context_.experiment.rows();
  if (const auto read = rows.read(plan(), stage, layer); read && !read->empty())
    return take_rows(*read, read->size() / rows.ids().size(), rows_);
  // Also a recorded stage that the plan does not compute.
  const TensorView* tensor = rows.find(stage_key(stage, layer));
  if (tensor == nullptr || tensor->shape.size() < 2 || tensor->shape[0] != rows.ids().size())
    return std::nullopt;
  std::vector<float> all(element_count(tensor->shape).value_or(0));
  if (all.empty() || !decode_f32(*tensor, 0, all)) return std::nullopt;
  return take_rows(all, all.size() / rows.ids().size(), rows_);
}

std::vector<OpCase::Other> OpCase::others(std::size_t width) const {
  std::vector<Other> found;
  const auto look = [&](Stage stage, int layer) {
    if (stage == this->stage() && layer == this->layer()) return;
    if (auto rows = other(stage, layer); rows && rows->size() == width * tokens())
      found.push_back({stage, layer, std::move(*rows)});
  };
  look(Stage::kEmbedOut, -1);
  for (const int layer : {this->layer(), this->layer() - 1}) {
    for (const StageInfo& info : all_stages()) {
      if (info.per_layer ? layer >= 0 : layer == -1 && info.stage != Stage::kEmbedOut)
        look(info.stage, layer);
    }
  }
  return found;
}

bool OpCase::attempt(std::string cause, std::string says, std::string repair, const OpChange& change,
                     double weight, double value) {
  if (hook_ && attempts_.size() == watched_) hook_(change);
  return keep(
      {std::move(cause), std::move(says), std::move(repair), measured(ratio_with(change)), weight, value});
}

bool OpCase::consider(std::string cause, std::string says, std::string repair, std::span<const float> output,
                      double weight) {
  double ratio = INFINITY;
  if (chain_ == nullptr) {
    ratio = judge(output, lenient_).ratio;
  } else if (scope_.size() == 1) {
    if (const auto rows = chain_->finish(index_, {output.begin(), output.end()}))
      ratio = judge(*rows, lenient_).ratio;
  }
  return keep({std::move(cause), std::move(says), std::move(repair), measured(ratio), weight});
}

double OpCase::measured(double ratio) const {
  return ratio <= 1 && ratio > most_ ? std::nextafter(1.0, 2.0) : ratio;
}

bool OpCase::keep(Attempt attempt) {
  attempts_.push_back(std::move(attempt));
  return attempts_.back().ratio <= 1;
}

double OpCase::judge_columns(std::span<const std::size_t> columns, std::span<const float> output) const {
  double worst = 0;
  for (std::size_t t = 0; t < tokens(); ++t) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const double difference =
          std::abs(static_cast<double>(output[t * columns.size() + i]) - target_[t * width() + columns[i]]);
      if (difference == 0) continue;
      const double ratio = difference / lenient_[t * width() + columns[i]];
      worst = std::isnan(ratio) ? INFINITY : std::max(worst, ratio);
    }
  }
  return worst;
}

std::optional<std::vector<float>> OpCase::output_with(const OpChange& change) const {
  if (stop_ && stop_()) return std::nullopt;
  if (chain_ != nullptr) {
    auto rows = chain_->run(scope_, change);
    return rows ? std::optional(std::move(*rows)) : std::nullopt;
  }
  OpSetup changed = setup_;
  change(changed);
  auto output = context_.experiment.run(changed);
  return output ? std::optional(std::move(*output)) : std::nullopt;  // a change that does not fit the op
}

std::size_t OpCase::ops_on() const {
  if (chain_ == nullptr) return 1;
  const auto& ops = chain_->ops();
  return static_cast<std::size_t>(ops.end() - std::ranges::find(ops, index_));
}

double OpCase::ratio_along(const OpChange& change, bool rough) const {
  const auto rows = output_with(change);
  if (!rows) return INFINITY;
  const double ratio = judge(*rows, lenient_).ratio;
  if (rough || ratio <= 1 || ratio > kNearAlong) return ratio;
  const auto allowed = chain_->allowance(context_.rounding, context_.threads, scope_, change);
  return allowed ? judge(*rows, *allowed).ratio : ratio;
}

double OpCase::ratio_with(const OpChange& change, bool rough) {
  if (chain_ != nullptr) return ratio_along(change, rough);
  const auto output = output_with(change);
  if (!output) return INFINITY;
  const double ratio = judge(*output, lenient_).ratio;
  if (rough || ratio <= 1 || ratio > kNear) return ratio;
  // The difference may be the change's own rounding.
  OpSetup changed = setup_;
  change(changed);
  const auto allowed = allowance(changed, context_.rounding.arithmetic, context_.threads);
  return allowed ? judge(*output, *allowed).ratio : ratio;
}

bool OpCase::explained() const {
  return std::ranges::any_of(attempts_, [](const Attempt& a) { return a.ratio <= 1; });
}

BadPlaces find_bad_places(const OpCase& c) {
  BadPlaces places;
  const std::size_t width = c.judged_width();
  std::vector<bool> column(width, false), token(c.tokens(), false);
  for (std::size_t t = 0; t < c.tokens(); ++t) {
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = t * width + i;
      const double difference = std::abs(static_cast<double>(c.output()[at]) - c.target()[at]);
      ++places.all;
      const bool both_nan = std::isnan(c.output()[at]) && std::isnan(c.target()[at]);
      if (difference <= c.allowed_at(t, i) || both_nan || c.output()[at] == c.target()[at]) continue;
      ++places.bad;
      column[i] = token[t] = true;
    }
  }
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (column[i]) places.columns.push_back(i);
  }
  for (std::size_t t = 0; t < token.size(); ++t) {
    if (token[t]) places.tokens.push_back(t);
  }
  return places;
}

}  // namespace doppler::diagnosis
