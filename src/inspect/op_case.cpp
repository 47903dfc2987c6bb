#include "inspect/op_case.h"

#include <algorithm>
#include <cmath>

namespace doppler {
namespace {

// Products beyond this many multiplications are judged on a few tokens: about a second of the oracle's time.
constexpr std::uint64_t kMostWork = 1'000'000'000;
constexpr std::size_t kFewTokens = 8;  // as many as the oracle computes in one pass over a weight

std::vector<std::size_t> choose_tokens(const OpSetup& setup, bool all) {
  const std::size_t count = setup.tokens();
  std::size_t most = count;
  if (setup.kind == OpKind::kMatmul && !all && setup.inputs[0].width * setup.width > kMostWork / 1000)
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
                            bool all_tokens) {
  OpCase made(context);
  made.index_ = op;
  DOPPLER_ASSIGN(made.setup_, context.experiment.setup(op));
  OpSetup& setup = made.setup_;
  made.rows_ = choose_tokens(setup, all_tokens);
  if (made.rows_.size() < setup.tokens()) {
    for (std::size_t i = 0; i < setup.inputs.size(); ++i) {
      if (setup.kind == OpKind::kAttention && i > 0) continue;  // keys and values stay whole
      setup.inputs[i].data = take_rows(setup.inputs[i].data, setup.inputs[i].width, made.rows_);
    }
    keep_rows(setup.ids, made.rows_);
    keep_rows(setup.positions, made.rows_);
    target = take_rows(target, setup.width, made.rows_);
  }
  made.target_ = std::move(target);
  DOPPLER_ASSIGN(made.output_, context.experiment.run(setup));
  DOPPLER_ASSIGN(made.allowed_, allowance(setup, context.arithmetic, context.threads));
  if (context.noise > 0) {
    // Six deviations of the noise, which is as likely as one value in 500 million.
    for (std::size_t t = 0; t < setup.tokens(); ++t) {
      double squares = 0;
      for (std::size_t i = 0; i < setup.width; ++i) squares += std::pow(made.target_[t * setup.width + i], 2);
      const double noise = 6 * context.noise * std::sqrt(squares / static_cast<double>(setup.width));
      for (std::size_t i = 0; i < setup.width; ++i)
        made.allowed_[t * setup.width + i] += static_cast<float>(noise);
    }
  }
  made.misfit_ = made.judge(made.output_);
  return made;
}

Misfit OpCase::judge(std::span<const float> output) const {
  Misfit worst;
  if (output.size() != target_.size()) return {INFINITY, 0, 0};
  for (std::size_t i = 0; i < output.size(); ++i) {
    const double difference = std::abs(static_cast<double>(output[i]) - target_[i]);
    double ratio = difference == 0 ? 0 : difference / allowed_[i];
    if (std::isnan(ratio)) ratio = INFINITY;
    if (ratio > worst.ratio) worst = {ratio, i / setup_.width, i % setup_.width};
  }
  return worst;
}

std::optional<std::vector<float>> OpCase::other(Stage stage, int layer) const {
  const auto read = context_.experiment.rows().read(plan(), stage, layer);
  if (!read || read->empty()) return std::nullopt;
  const std::size_t width = read->size() / context_.experiment.rows().ids().size();
  return take_rows(*read, width, rows_);
}

bool OpCase::attempt(std::string cause, std::string says, std::string repair, const OpChange& change,
                     double weight, double value) {
  return keep({std::move(cause), std::move(says), std::move(repair), ratio_with(change), weight, value});
}

bool OpCase::consider(std::string cause, std::string says, std::string repair, std::span<const float> output,
                      double weight) {
  return keep({std::move(cause), std::move(says), std::move(repair), judge(output).ratio, weight});
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
      const double ratio = difference / allowed_at(t, columns[i]);
      worst = std::isnan(ratio) ? INFINITY : std::max(worst, ratio);
    }
  }
  return worst;
}

double OpCase::ratio_with(const OpChange& change) {
  OpSetup changed = setup_;
  change(changed);
  const auto output = context_.experiment.run(changed);
  return output ? judge(*output).ratio : INFINITY;  // a change that does not fit the op is no explanation
}

bool OpCase::explained() const {
  return std::ranges::any_of(attempts_, [](const Attempt& a) { return a.ratio <= 1; });
}

BadPlaces find_bad_places(const OpCase& c) {
  BadPlaces places;
  std::vector<bool> column(c.width(), false), token(c.tokens(), false);
  for (std::size_t t = 0; t < c.tokens(); ++t) {
    for (std::size_t i = 0; i < c.width(); ++i) {
      const std::size_t at = t * c.width() + i;
      const double difference = std::abs(static_cast<double>(c.output()[at]) - c.target()[at]);
      ++places.all;
      if (difference <= c.allowed_at(t, i)) continue;
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

}  // namespace doppler
