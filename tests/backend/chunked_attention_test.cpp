// Attention in chunks: which positions a token sees, on every host backend, fed at once and in pieces that
// end within chunks.
#include "harness.h"
#include "model_fixture.h"
#include "plan/plan.h"

namespace doppler {
namespace {

using namespace testing;

constexpr std::uint32_t kChunk = 5;

TEST(AttentionInChunks, FirstPositionSeen) {
  AttentionParams a{.window = 4};
  EXPECT_EQ(a.first_seen(2), 0u);
  EXPECT_EQ(a.first_seen(3), 0u);
  EXPECT_EQ(a.first_seen(4), 1u);
  a.chunked = true;
  EXPECT_EQ(a.first_seen(3), 0u);
  EXPECT_EQ(a.first_seen(4), 4u);
  EXPECT_EQ(a.first_seen(7), 4u);
  a.window = 0;
  EXPECT_EQ(a.first_seen(7), 0u);
}

TEST(AttentionInChunks, ATokenSeesItsChunkOnly) {
  const TinyModel tiny("llama");
  ASSERT_OK_AND_ASSIGN(ModelSpec spec, tiny.spec());
  const TensorStore store = tiny.store();
  ASSERT_OK_AND_ASSIGN(const Weights weights, bind_weights(spec, rule_of("llama").weight_names, store));
  for (LayerSpec& layer : spec.layers) {
    layer.attention.kind = AttentionKind::kChunked;
    layer.attention.window = kChunk;
  }
  const std::vector<std::int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9, 7};
  const BackendOptions options{
      .threads = 2, .context = 32, .slots = 1, .max_step_tokens = 16, .disabled_passes = {}};
  std::map<std::string, std::vector<float>> expected;
  for (const char* name : {"reference", "cpu"}) {
    for (const std::vector<std::size_t>& sizes : {std::vector<std::size_t>{13}, {4}, {1}}) {
      SCOPED_TRACE(fmt::format("{} in pieces of {}", name, sizes[0]));
      ASSERT_OK_AND_ASSIGN(const auto backend, make_backend(name, spec, weights, options));
      KeepStages kept;
      run_in_pieces(*backend, ids, sizes, &kept);
      // Kept up to each token's own position, head by head.
      const std::vector<float>& scores = kept.stages["layers.1.attn_scores"];
      const std::uint32_t heads = spec.layers[1].attention.heads;
      ASSERT_EQ(scores.size(), heads * ids.size() * (ids.size() + 1) / 2);
      std::size_t at = 0;
      for (std::size_t t = 0; t < ids.size(); ++t) {
        for (std::uint32_t h = 0; h < heads; ++h) {
          for (std::size_t p = 0; p <= t; ++p, ++at)
            EXPECT_EQ(std::isfinite(scores[at]), p / kChunk == t / kChunk) << t << " sees " << p;
        }
      }
      if (expected.empty()) expected = kept.stages;
      for (const auto& [stage, values] : expected)
        EXPECT_LT(relative_error(kept.stages[stage], values), 2e-5) << stage;
    }
  }
}

}  // namespace
}  // namespace doppler
