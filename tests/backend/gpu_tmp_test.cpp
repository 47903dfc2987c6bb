#include <fmt/format.h>
#include "harness.h"
namespace doppler {
namespace {
using namespace testing;
TEST(Tmp, Poison) {
  ASSERT_OK_AND_ASSIGN(const auto fixture, load_fixture("gemma2"));
  for (int round = 0; round < 3; ++round) {
    BackendOptions a{.threads = 2, .context = 64, .slots = 1, .max_step_tokens = 32};
    BackendOptions b = a;
    if (round == 1) b.gpu.poison = true; if (round == 0) { b.gpu.poison = true; b.disabled_passes = {"batch_rope", "batch_norm", "batch_gated", "batch_gemm", "batch_attention"}; }
    if (round == 2) b.disabled_passes = {};
    ASSERT_OK_AND_ASSIGN(const auto x, make_backend("gpu", fixture->model.spec, fixture->model.weights, a));
    ASSERT_OK_AND_ASSIGN(const auto y, make_backend("gpu", fixture->model.spec, fixture->model.weights, b));
    auto seq = fixture->prompt;
    seq.insert(seq.end(), fixture->greedy.begin(), fixture->greedy.end() - 1);
    if (round == 2)
      b.disabled_passes = {"batch_rope", "batch_norm", "batch_gated", "batch_gemm", "batch_attention"};
    const auto lx = run_in_pieces(*x, seq, {fixture->prompt.size(), 1});
    const auto ly = run_in_pieces(*y, seq, {fixture->prompt.size(), 1});
    x->clear(0);
    const auto lz = run_in_pieces(*x, seq, {fixture->prompt.size(), 1});
    const std::size_t vocab = fixture->model.spec.vocab_size;
    for (std::size_t t = 0; t < seq.size(); ++t) {
      const auto row = [&](const std::vector<float>& l) { return std::span(l).subspan(t * vocab, vocab); };
      fmt::print("round {} token {}: {} again {}\n", round, t, relative_error(row(lx), row(ly)),
                 relative_error(row(lx), row(lz)));
    }
  }
}
}  // namespace
}  // namespace doppler
