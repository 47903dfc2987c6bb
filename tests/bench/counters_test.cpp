// What noise cannot move: how much work a token is, in submissions, dispatches, bytes and allocations. A
// change that makes it more fails here, and whoever means it writes the new figures into
// tests/data/counters.json.
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/json.h"
#include "bench/measure.h"
#include "testing.h"

// Sanitizers have allocators of their own, which must see every call; and sanitized code allocates otherwise.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DOPPLER_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#define DOPPLER_COUNTS_ALLOCATIONS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define DOPPLER_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<std::uint64_t> allocations{0};
}  // namespace

#if DOPPLER_COUNTS_ALLOCATIONS
namespace {
void* counted(std::size_t size, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* made = alignment == 0 ? std::malloc(size == 0 ? 1 : size)
                              : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (made == nullptr) std::abort();
  return made;
}
}  // namespace

// These take the place of the standard library's in this program of tests.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return counted(size, 0);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* pointer) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
[[gnu::noinline]] void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}
#endif

namespace doppler::bench {
namespace {

constexpr std::uint64_t kPrompt = 64, kTokens = 16;

// Everything that `tokens` single tokens cost, after others that are not counted.
Json counters_of(const std::string& backend_name) {
  auto loaded =
      load_all(testing::source_path("demo"), {.backend = backend_name, .threads = 1, .context = 512});
  if (!loaded) return {{"error", loaded.error().message}};
  Backend& backend = *loaded->backend;
  const auto feed = [&](std::uint64_t tokens) {
    for (std::uint64_t i = 0; i < tokens; ++i) EXPECT_TRUE(feed_bench_tokens(backend, 0, 1));
  };
  EXPECT_TRUE(feed_bench_tokens(backend, 0, kPrompt));
  feed(2);
  const DeviceView* device = backend.device();
  const DeviceCounters before = device != nullptr ? device->counters() : DeviceCounters();
  const std::uint64_t allocated = allocations;
  feed(kTokens);
  Json counters = {{"allocations", allocations - allocated},
                   {"weight_bytes", backend.memory().weights},
                   {"cache_bytes", backend.memory().cache},
                   {"activation_bytes", backend.memory().activations}};
  if (device != nullptr) {
    const DeviceCounters after = device->counters();
    counters.erase("activation_bytes");  // follow from what the adapter can do at once
    counters.erase("allocations");       // mostly the driver's own, which change with its version
    counters["submits"] = after.submits - before.submits;
    counters["dispatches"] = after.dispatches - before.dispatches;
    counters["read_backs"] = after.read_backs - before.read_backs;
    counters["read_back_bytes"] = after.read_back_bytes - before.read_back_bytes;
    counters["written_bytes"] = after.written_bytes - before.written_bytes;
  }
  return counters;
}

void expect_no_more(const std::string& backend) {
  const Json kept = Json::parse(testing::read_file(testing::data_path("counters.json")), nullptr, false);
  ASSERT_TRUE(kept.is_object() && kept.contains(backend)) << kept;
  const Json now = counters_of(backend);
  for (const auto& [name, most] : kept[backend].items()) {
    ASSERT_TRUE(now.contains(name)) << now;
    EXPECT_LE(now[name].get<std::uint64_t>(), most.get<std::uint64_t>())
        << name << " of " << kTokens << " tokens grew on the backend " << backend
        << "; all of them: " << now.dump();
    if (now[name] < most)
      std::cout << name << " fell to " << now[name] << ": write it into tests/data/counters.json\n";
  }
}

TEST(Counters, TokensOnTheCpuCostNoMoreThanBefore) {
  expect_no_more("cpu");
}

TEST(Counters, TokensOnTheReferenceBackendCostNoMoreThanBefore) {
  expect_no_more("reference");
}

#if DOPPLER_GPU
TEST(Counters, TokensOnTheGpuCostNoMoreThanBefore) {
  auto loaded = load_all(testing::source_path("demo"), {.backend = "gpu", .context = 512});
  ASSERT_OK(loaded);
  if (loaded->backend->device()->info().name.find("llvmpipe") == std::string::npos)
    GTEST_SKIP() << "another adapter has other counts: " << loaded->backend->device()->info().name;
  expect_no_more("gpu");
}
#endif

}  // namespace
}  // namespace doppler::bench
