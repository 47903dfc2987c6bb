#include "bench/perplexity.h"

#include <algorithm>
#include <cmath>

#include "engine/logprobs.h"

namespace doppler::bench {
namespace {

// Logits of one step: every token's whole vocabulary, so large vocabularies get fewer tokens a step.
constexpr std::uint64_t kLogitBytes = std::uint64_t{64} << 20;

struct Sums {
  std::uint64_t count = 0;
  double loss = 0, squares = 0;
};

Status add_chunk(Backend& backend, const std::vector<TokenId>& chunk, Sums& sums) {
  const std::uint64_t vocab = backend.plan().vocab_size;
  const std::uint64_t most =
      std::clamp<std::uint64_t>(kLogitBytes / (vocab * sizeof(float)), 1, step_tokens(backend.options()));
  backend.clear(0);
  for (std::size_t begin = 0; begin + 1 < chunk.size(); begin += most) {
    const std::size_t end = std::min<std::size_t>(begin + most, chunk.size() - 1);
    StepInput input;
    for (std::size_t i = begin; i < end; ++i) input.add(chunk[i], i, 0, true);
    DOPPLER_ASSIGN(const std::span<const float> logits, backend.step(input, nullptr));
    for (std::size_t i = begin; i < end; ++i) {
      const double loss = token_loss(logits.subspan((i - begin) * vocab, vocab), chunk[i + 1]);
      sums.loss += loss;
      sums.squares += loss * loss;
      ++sums.count;
    }
  }
  return {};
}

}  // namespace

double PerplexityResult::perplexity() const {
  return std::exp(loss);
}

std::vector<std::vector<TokenId>> chunk_text(std::span<const TokenId> ids, std::uint64_t context,
                                             TokenId bos) {
  std::vector<std::vector<TokenId>> chunks;
  for (const TokenId id : ids) {
    const bool begins = chunks.empty() || chunks.back().size() >= context || (bos >= 0 && id == bos);
    if (begins) chunks.emplace_back();
    if (begins && bos >= 0 && id != bos) chunks.back().push_back(bos);
    chunks.back().push_back(id);
  }
  std::erase_if(chunks, [](const auto& chunk) { return chunk.size() < 2; });
  return chunks;
}

Result<PerplexityResult> measure_perplexity(Backend& backend, std::span<const std::vector<TokenId>> chunks,
                                            const std::function<void(double share)>& progress) {
  Sums sums;
  std::vector<double> losses;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Sums before = sums;
    DOPPLER_TRY(add_chunk(backend, chunks[i], sums));
    losses.push_back((sums.loss - before.loss) / static_cast<double>(sums.count - before.count));
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(chunks.size()));
  }
  if (sums.count == 0) return fail(ErrorCode::kUsage, "The text has no token to predict. Give a longer one.");
  const auto count = static_cast<double>(sums.count);
  PerplexityResult result{.tokens = sums.count,
                          .chunks = chunks.size(),
                          .loss = sums.loss / count,
                          .chunk_losses = std::move(losses)};
  const double variance = std::max(0.0, sums.squares / count - result.loss * result.loss);
  result.standard_error = std::sqrt(variance / count);
  return result;
}

}  // namespace doppler::bench
