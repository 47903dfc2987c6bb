#include "diagnosis/doctor/text_loss.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "backend/shared_weights.h"
#include "diagnosis/compare/recording.h"
#include "engine/logprobs.h"

namespace doppler::diagnosis {

namespace {

constexpr std::size_t kBeginning = 64;
// Up to this a trial takes milliseconds, and threads would wait for each other longer than they compute.
constexpr double kSmall = 1e8;

constexpr auto kTexts = std::to_array<std::string_view>({
    "In the meadow lived a lonely girl called Amanda. Her home was between wild flowers and long grass. "
    "Amanda often played with a gentle deer named Ivan. One cold morning, everything was white with snow. "
    "Amanda and Ivan ran outside and built a snowman. They gave him a carrot for a nose, two stones for "
    "eyes, and a black hat. \"He is our friend,\" said Ivan. They played with him every day. But then the "
    "days grew warmer, and the snowman grew smaller. Amanda was sad and asked why. \"When it gets warm, "
    "snow turns into water,\" said the deer. One day there was only a puddle. \"Next winter we will build "
    "a new one,\" said the deer. In spring a white flower grew in that place. Amanda smiled again. Moral: "
    "Every end is a beginning.",
    "Once, there lived a patient lighthouse keeper called Astrid. Every day she played in the forest. She "
    "could wait for a very long time.\n\nOne afternoon, the lighthouse keeper met a strong horse called "
    "Simon. Astrid was afraid and said, \"Please let me go. Perhaps I can help you one day.\" The horse "
    "laughed. \"How could somebody like you help me?\" But he let her go.\n\nSoon after that, Astrid heard "
    "a cry. Simon was caught in a box with a lock. All the strength of the horse was no help. \"Do not "
    "move, I will help you,\" said Astrid. She found the key behind an old door and opened the lock, and "
    "Simon was free.\n\nSimon bowed. \"Thank you, Astrid. Now I know that small friends can be great "
    "friends.\" From that day on, Astrid and Simon were good friends.",
});

}  // namespace

std::span<const std::string_view> loss_texts() {
  return kTexts;
}

LossMeter::LossMeter(const Subject& subject, std::vector<std::vector<TokenId>> texts)
    : texts_(std::move(texts)), layers_(subject.spec.layers.size()) {
  beginning_ = {texts_.front()};
  beginning_[0].resize(std::min(beginning_[0].size(), kBeginning));
  for (const TensorView& tensor : subject.weights.tensors())
    values_ += static_cast<double>(tensor.rows() * tensor.cols());
  options_.threads = is_small() ? 1 : subject.options.threads;
  options_.slots = 1;
  options_.shared = std::make_shared<SharedWeights>();
}

bool LossMeter::is_small() const {
  return values_ <= kSmall;
}

void LossMeter::shorten() {
  texts_ = beginning_;
  beginning_[0].resize((beginning_[0].size() + 1) / 2);
}

std::size_t LossMeter::tokens() const {
  std::size_t tokens = 0;
  for (const auto& text : texts_) tokens += text.size();
  return tokens;
}

Result<std::vector<float>> LossMeter::measure(const Subject& subject) {
  return measure(subject, texts_);
}

Result<std::vector<float>> LossMeter::measure_beginning(const Subject& subject) {
  return measure(subject, beginning_);
}

Result<std::vector<float>> LossMeter::measure(const Subject& subject,
                                              std::span<const std::vector<TokenId>> texts) {
  BackendOptions options = options_;
  options.context = 1 + std::ranges::max(texts, {}, &std::vector<TokenId>::size).size();
  options.max_step_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(options.context, 256));
  options.change_plan = subject.alter_plan;
  if (subject.spec.layers.size() != layers_) options.shared.reset();  // other layers than were laid out
  DOPPLER_ASSIGN(auto backend, make_backend("cpu", subject.spec, subject.weights, options));
  std::vector<float> losses;
  const std::size_t vocab = subject.spec.vocab_size, step = *options.max_step_tokens;
  for (const std::vector<TokenId>& ids : texts) {
    backend->clear(0);
    for (std::size_t begin = 0; begin < ids.size(); begin += step) {
      const std::size_t count = std::min(step, ids.size() - begin);
      DOPPLER_ASSIGN(const auto logits,
                     feed(*backend, 0, std::span(ids).subspan(begin, count), 0, true, nullptr));
      for (std::size_t t = 0; t < count && begin + t + 1 < ids.size(); ++t) {
        const double loss = token_loss(logits.subspan(t * vocab, vocab), ids[begin + t + 1]);
        losses.push_back(std::isfinite(loss) ? static_cast<float>(loss) : INFINITY);
      }
    }
  }
  if (!keeper_ && options.shared) keeper_ = std::move(backend);
  return losses;
}

double mean_of(std::span<const float> losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(losses.size(), 1));
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
