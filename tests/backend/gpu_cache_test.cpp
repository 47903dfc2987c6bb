// The cache on a GPU is cut, read out and filled as any other: a sequence that was copied goes on with the
// same bits.
#include "gpu_harness.h"
#include "harness.h"
#include "model_fixture.h"

namespace doppler {
namespace {

using namespace testing;

// Gemma's windows turn their rings; a step of 8 makes these small.
constexpr std::uint64_t kCacheContext = 64;

std::vector<float> feed(Backend& backend, std::uint32_t slot, std::int32_t id) {
  StepInput input;
  input.add(id, backend.length(slot), slot, true);
  const auto logits = backend.step(input, nullptr);
  EXPECT_TRUE(logits.has_value()) << (logits ? "" : logits.error().message);
  return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
}

TEST(GpuCache, ACopyGoesOnWithTheSameBits) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const auto fixture, load_fixture("gemma3"));
  for (const KvType type : {KvType::kF32, KvType::kF16}) {
    BackendOptions options{
        .threads = 2, .context = kCacheContext, .slots = 2, .max_step_tokens = 8, .kv_type = type};
    options.gpu_setup.self_check = false;
    options.gpu_setup.tune = false;
    ASSERT_OK_AND_ASSIGN(const auto gpu,
                         make_backend("gpu", fixture->model.spec, fixture->model.weights, options));
    for (std::int32_t i = 0; i < 30; ++i) feed(*gpu, 0, 3 + i);
    CacheAccess* const cache = gpu->cache();
    ASSERT_NE(cache, nullptr);
    ASSERT_OK_AND_ASSIGN(const auto bytes, cache->read(0));
    EXPECT_ERROR(cache->write(1, 29, bytes), "29 tokens");
    EXPECT_ERROR(cache->write(1, kCacheContext + 1, bytes), "context");
    EXPECT_EQ(gpu->length(1), 0u);
    ASSERT_OK(cache->write(1, 30, bytes));
    EXPECT_EQ(gpu->length(1), 30u);
    const std::vector<float> original = feed(*gpu, 0, 40);
    EXPECT_EQ(feed(*gpu, 1, 40), original);
    ASSERT_TRUE(cache->can_cut(0, 30));
    ASSERT_OK(cache->cut(0, 30));
    EXPECT_EQ(feed(*gpu, 0, 40), original);
    EXPECT_FALSE(cache->can_cut(1, 29)) << "only what the next token sees was put in";
  }
}

}  // namespace
}  // namespace doppler
