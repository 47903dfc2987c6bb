#include "diagnosis/doctor/text_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/shared_weights.h"
#include "diagnosis/compare/recording.h"

namespace doppler::diagnosis {

std::string_view loss_paragraph() {
  return "In the meadow lived a lonely girl called Amanda. Her home was between wild flowers and long grass. Amanda "
         "often played with a gentle deer named Ivan. One cold morning, everything was white with snow. Amanda and "
         "Ivan ran outside and built a snowman. They gave him a carrot for a nose, two stones for eyes, and a black "
         "hat. \"He is our friend,\" said Ivan. They played with him every day. But then the days grew warmer, and the "
         "snowman grew smaller. Amanda was sad and asked why. \"When it gets warm, snow turns into water,\" said the "
         "deer. One day there was only a puddle. \"Next winter we will build a new one,\" said the deer. In spring a "
         "white flower grew in that place. Amanda smiled again. Moral: Every end is a beginning.";
}

LossMeter::LossMeter(const Subject& subject, std::vector<TokenId> ids)
    : ids_(std::move(ids)), layers_(subject.spec.layers.size()) {
  options_.threads = subject.options.threads;
  options_.slots = 1;
  options_.shared = std::make_shared<SharedWeights>();
}

Result<std::vector<float>> LossMeter::measure(const Subject& subject, std::size_t tokens) {
  const std::span<const TokenId> ids = std::span(ids_).first(tokens == 0 ? ids_.size() : std::min(tokens, ids_.size()));
  BackendOptions options = options_;
  options.context = ids.size() + 1;
  options.max_step_tokens = static_cast<std::uint32_t>(std::min<std::size_t>(ids.size(), 256));
  options.change_plan = subject.alter_plan;
  if (subject.spec.layers.size() != layers_) options.shared.reset();  // other layers than were laid out
  DOPPLER_ASSIGN(auto backend, make_backend("cpu", subject.spec, subject.weights, options));
  std::vector<float> losses;
  const std::size_t vocab = subject.spec.vocab_size, step = *options.max_step_tokens;
  for (std::size_t begin = 0; begin < ids.size(); begin += step) {
    const std::size_t count = std::min(step, ids.size() - begin);
    DOPPLER_ASSIGN(const auto logits,
                   feed(*backend, 0, ids.subspan(begin, count), 0, true, nullptr));
    for (std::size_t t = 0; t < count && begin + t + 1 < ids.size(); ++t) {
      const std::span<const float> row = logits.subspan(t * vocab, vocab);
      const float largest = *std::ranges::max_element(row);
      double sum = 0;
      for (const float x : row) sum += std::exp(static_cast<double>(x) - largest);
      const double loss =
          largest + std::log(sum) - row[static_cast<std::size_t>(ids[begin + t + 1])];
      losses.push_back(std::isfinite(loss) ? static_cast<float>(loss) : INFINITY);
    }
  }
  if (!keeper_ && options.shared) keeper_ = std::move(backend);
  return losses;
}

double mean_of(std::span<const float> losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(std::max<std::size_t>(losses.size(), 1));
}

Gain gain_of(std::span<const float> before, std::span<const float> after) {
  const std::size_t n = std::min(before.size(), after.size());
  if (n < 2) return {};
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    // Beyond this a token's loss says only that it is wrong, and a single one must not decide.
    constexpr double kMost = 30;
    const double d = std::min<double>(before[i], kMost) - std::min<double>(after[i], kMost);
    sum += d, squares += d * d;
  }
  const double mean = sum / static_cast<double>(n);
  const double variance = std::max(0.0, squares / static_cast<double>(n) - mean * mean);
  return {mean, std::sqrt(variance / static_cast<double>(n - 1))};
}

}  // namespace doppler::diagnosis
