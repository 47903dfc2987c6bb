// The device answers every mistake with a sentence; none of them reaches the library, which would end the
// process.
#include "gpu_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

constexpr const char* kCopy =
    "@group(0) @binding(0) var<storage, read> given : array<u32>;\n"
    "@group(0) @binding(1) var<storage, read_write> made : array<u32>;\n"
    "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id : vec3u) {\n"
    "  if (id.x < arrayLength(&made)) { made[id.x] = given[id.x] + 1u; }\n"
    "}\n";

std::vector<std::uint32_t> words_of(Device& device, const Buffer& buffer) {
  const auto bytes = device.download(buffer);
  EXPECT_TRUE(bytes.has_value()) << (bytes ? "" : bytes.error().message);
  if (!bytes) return {};
  std::vector<std::uint32_t> words(bytes->size() / 4);
  std::memcpy(words.data(), bytes->data(), bytes->size());
  return words;
}

Buffer filled(Device& device, std::uint64_t words, std::uint32_t value) {
  auto buffer = device.make_filled("test", words * 4, [&](std::span<std::byte> out) {
    for (std::size_t i = 0; i < out.size(); i += 4) std::memcpy(&out[i], &value, 4);
  });
  EXPECT_TRUE(buffer.has_value()) << (buffer ? "" : buffer.error().message);
  return buffer ? *buffer : Buffer{};
}

TEST(OpenDevice, ChoosesByNameIndexAndKind) {
  DOPPLER_NEEDS_ADAPTER();
  const std::vector<AdapterInfo> adapters = list_adapters();
  const AdapterInfo& last = adapters.back();
  ASSERT_OK_AND_ASSIGN(const auto by_name, Device::open({.adapter = last.name}));
  EXPECT_EQ(by_name->adapter().name, last.name);
  ASSERT_OK_AND_ASSIGN(const auto by_part, Device::open({.adapter = last.name.substr(1, 4)}));
  EXPECT_NE(by_part->adapter().name.find(last.name.substr(1, 4)), std::string::npos);
  ASSERT_OK_AND_ASSIGN(const auto by_index, Device::open({.adapter = std::to_string(adapters.size() - 1)}));
  EXPECT_EQ(by_index->adapter().name, last.name);
  EXPECT_EQ(by_index->adapter().kind, last.kind);

  EXPECT_ERROR(Device::open({.adapter = "no such GPU\n"}),
               "No GPU adapter is called no such GPU\\n. There is", last.name.c_str());
  EXPECT_ERROR(Device::open({.adapter = std::to_string(adapters.size())}), "No GPU adapter is called");
  EXPECT_ERROR(Device::open({.adapter = "99999999999999999999999"}), "No GPU adapter is called");
  if (adapters[0].software()) {
    EXPECT_ERROR(Device::open({}, {.software = false}), "There is no real GPU, only", last.name.c_str(),
                 "--gpu-adapter");
    ASSERT_OK_AND_ASSIGN(const auto software, Device::open({}));
    EXPECT_TRUE(software->adapter().software());
  } else {
    ASSERT_OK_AND_ASSIGN(const auto best, Device::open({}));
    EXPECT_FALSE(best->adapter().software()) << "a real GPU comes first";
  }
}

TEST(OpenDevice, TellsWhatItCan) {
  DOPPLER_NEEDS_ADAPTER();
  const Device& d = *device();
  EXPECT_FALSE(d.adapter().name.empty());
  EXPECT_GE(d.limits().binding_bytes, 128u << 20);  // WebGPU promises these
  EXPECT_GE(d.limits().buffer_bytes, 256u << 20);
  EXPECT_LE(d.limits().binding_alignment, 256u);
  EXPECT_GE(d.limits().workgroup_invocations, 256u);
  EXPECT_GE(d.limits().workgroups_per_dimension, 65535u);
  EXPECT_GE(d.limits().storage_buffers, 8u);
  if (d.features().subgroups) {
    EXPECT_GE(d.features().subgroup_size, 4u);
  }
  EXPECT_EQ(d.features().fma_rounds_once, device(Mode::kNoSubgroups)->features().fma_rounds_once);
  EXPECT_FALSE(device(Mode::kNoSubgroups)->features().subgroups);
  EXPECT_EQ(device(Mode::kNoSubgroups)->features().subgroup_size, 1u);
}

TEST(Buffers, AreZeroOrPoisonAndWholeVectors) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const Buffer zero, device()->make_buffer("zero", 20));
  EXPECT_EQ(zero.bytes(), 32u);
  EXPECT_EQ(words_of(*device(), zero), std::vector<std::uint32_t>(8, 0));
  ASSERT_OK_AND_ASSIGN(const Buffer least, device()->make_buffer("least", 0));
  EXPECT_EQ(least.bytes(), 16u);
  ASSERT_OK_AND_ASSIGN(const auto poisoned, Device::open({.poison = true}));
  ASSERT_OK_AND_ASSIGN(const Buffer poison, poisoned->make_buffer("poison", 16));
  EXPECT_EQ(words_of(*poisoned, poison), std::vector<std::uint32_t>(4, 0xffffffff));
}

TEST(Buffers, CountTheBytesThatLive) {
  DOPPLER_NEEDS_ADAPTER();
  const std::uint64_t before = device()->allocated_bytes();
  {
    ASSERT_OK_AND_ASSIGN(const Buffer a, device()->make_buffer("a", 1000));
    const Buffer copy = a;
    EXPECT_EQ(device()->allocated_bytes(), before + 1008);
    ASSERT_OK(device()->download(a));
  }
  EXPECT_EQ(device()->allocated_bytes(), before);
}

TEST(Buffers, RefuseSizesThatNoGpuHas) {
  DOPPLER_NEEDS_ADAPTER();
  const std::uint64_t most = device()->limits().buffer_bytes;
  for (const std::uint64_t bytes : {most + 1, std::uint64_t{1} << 62, UINT64_MAX}) {
    const auto refused = device()->make_buffer("huge", bytes);
    EXPECT_ERROR(refused, "The buffer huge of", "larger than the GPU", "Lower the context");
    EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  }
  EXPECT_ERROR(device()->make_read_back("back", UINT64_MAX), "The buffer back");
  EXPECT_ERROR(device()->make_filled("filled", UINT64_MAX, [](std::span<std::byte>) { FAIL(); }), "filled");
  ASSERT_OK(device()->make_buffer("small", 64));
}

TEST(Buffers, RefuseWritesAndReadsOutside) {
  DOPPLER_NEEDS_ADAPTER();
  const Buffer buffer = filled(*device(), 8, 1);
  const std::vector<std::byte> bytes(64, std::byte{7});
  const auto first = [&](std::size_t n) { return std::span(bytes).first(n); };
  EXPECT_ERROR(device()->write(buffer, 0, first(36)), "A write of 36 bytes at 0 does not fit a buffer of 32");
  EXPECT_ERROR(device()->write(buffer, 32, first(4)), "A write of 4 bytes at 32");
  EXPECT_ERROR(device()->write(buffer, UINT64_MAX - 3, first(8)), "does not fit");
  EXPECT_ERROR(device()->write(buffer, 2, first(4)), "A write of 4 bytes at 2");
  EXPECT_ERROR(device()->write(buffer, 0, first(3)), "A write of 3 bytes");
  EXPECT_EQ(words_of(*device(), buffer), std::vector<std::uint32_t>(8, 1));
  ASSERT_OK(device()->write(buffer, 4, first(8)));
  ASSERT_OK(device()->write(buffer, 32, {}));
  EXPECT_EQ(words_of(*device(), buffer)[2], 0x07070707u);
  EXPECT_EQ(words_of(*device(), buffer)[3], 1u);
  ASSERT_OK_AND_ASSIGN(const Buffer back, device()->make_read_back("back", 16));
  EXPECT_ERROR(device()->read(back, 32, 0, [](auto) { FAIL(); }), "A buffer of 16 holds no 32 bytes");
}

TEST(Kernels, RefuseTextsThatDoNotCompile) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device();
  EXPECT_ERROR(Kernel::compile(d, "broken", std::string(kCopy) + "\nfn later() -> u32 { return nonsense; }"),
               "The kernel broken does not compile", "nonsense", ":7:");
  EXPECT_ERROR(Kernel::compile(d, "types", "@compute @workgroup_size(1) fn main() { let a : f32 = 1u; }"),
               "The kernel types does not compile");
  EXPECT_ERROR(Kernel::compile(d, "mainless", "fn other() {}"), "The kernel mainless does not compile");
  EXPECT_ERROR(Kernel::compile(d, "empty", ""), "The kernel empty does not compile");
  EXPECT_ERROR(Kernel::compile(d, "large", "@compute @workgroup_size(100000) fn main() {}"),
               "The kernel large does not compile");
  EXPECT_ERROR(Kernel::compile(d, "uniform",
                               "@group(0) @binding(0) var<uniform> u : u32;\n"
                               "@compute @workgroup_size(1) fn main() { _ = u; }"),
               "The shader uniform declares a binding that is no storage buffer");
  EXPECT_ERROR(Kernel::compile(d, "twice",
                               "@group(0) @binding(0) var<storage, read> a : array<u32>;\n"
                               "@group(0) @binding(0) var<storage, read> b : array<u32>;\n"
                               "@compute @workgroup_size(1) fn main() { _ = a[0] + b[0]; }"),
               "twice");
  EXPECT_ERROR(Kernel::create(d, "none.wgsl", {}), "There is no shader file none.wgsl");
  // Some devices have more than any text declares.
  if (d.limits().storage_buffers < 10000) {
    std::string many;
    for (std::uint32_t i = 0; i <= d.limits().storage_buffers; ++i)
      many += fmt::format("@group(0) @binding({}) var<storage, read> b{} : array<u32>;\n", i, i);
    EXPECT_ERROR(Kernel::compile(d, "many", many + "@compute @workgroup_size(1) fn main() {}"), "many");
  }
  const std::uint64_t floats = d.limits().workgroup_bytes / 4;
  const auto with_memory = [](std::uint64_t count) {
    return fmt::format(
        "var<workgroup> few : array<f32, {}>;\nvar<workgroup> one : atomic<u32>;  // four bytes of sixteen\n"
        "@compute @workgroup_size(1) fn main() {{ few[0] = f32(atomicLoad(&one)); }}",
        count);
  };
  EXPECT_ERROR(Kernel::compile(d, "full", with_memory(floats - 3)), "The kernel full needs",
               "of workgroup memory, but the GPU");
  ASSERT_OK(Kernel::compile(d, "just", with_memory(floats - 4)));
  // The device works on.
  ASSERT_OK(Kernel::compile(d, "copy", kCopy));
}

TEST(Kernels, CountTheirWorkgroupMemory) {
  const auto bytes_of = [](std::string_view text) { return workgroup_bytes("counted", text); };
  EXPECT_EQ(bytes_of("fn main() {}").value(), 0u);
  EXPECT_EQ(bytes_of("var<workgroup> a : u32;\nvar<workgroup> b : array<vec2f, 3>;  // six\n").value(), 48u);
  EXPECT_EQ(bytes_of("const kWords = 16u;\nvar<workgroup> a : array<atomic<u32>, kWords>;\n"
                     "var<workgroup> b : array<vec4<f16>, 4>;")
                .value(),
            96u);
  EXPECT_EQ(bytes_of("alias Term = vec4f;\nstruct Found {\n  bucket : u32,  // one\n  mass : vec2u,\n"
                     "  count : u32,\n}\nvar<workgroup> a : array<Term, 2>;\n"
                     "var<workgroup> b : array<Found, 2>;")
                .value(),
            32u + 48u);
  for (const char* unknown :
       {"var<workgroup> a : mat4x4f;", "var<workgroup> a : array<f32, kNone>;", "var<workgroup> a",
        "var<workgroup> a : array<f32>;", "var<workgroup> a : array<Pair, 4>;"}) {
    EXPECT_ERROR(bytes_of(unknown), "The shader counted declares workgroup memory of an unknown size",
                 unknown);
  }
}

TEST(Kernels, RefuseBuffersThatDoNotFitTheirBindings) {
  DOPPLER_NEEDS_ADAPTER();
  Device& d = *device();
  ASSERT_OK_AND_ASSIGN(const auto kernel, Kernel::compile(d, "copy", kCopy));
  ASSERT_EQ(kernel->bindings().size(), 2u);
  EXPECT_EQ(kernel->bindings()[0].name, "given");
  EXPECT_FALSE(kernel->bindings()[0].writes);
  EXPECT_TRUE(kernel->bindings()[1].writes);
  const Buffer a = filled(d, 256, 1), b = filled(d, 256, 2);
  const auto bind = [&](const std::vector<Bound>& buffers) {
    return BoundKernel::create(d, kernel, buffers);
  };
  ASSERT_OK(bind({{"given", a}, {"made", b}}));
  ASSERT_OK(bind({{"given", a, 256, 0}, {"made", b, 512, 512}}));
  EXPECT_ERROR(bind({{"given", a}}), "The kernel copy is bound without its buffer made");
  EXPECT_ERROR(bind({{"given", a}, {"two", b}}), "without its buffer made");
  EXPECT_ERROR(bind({{"given", a}, {"made", b}, {"more", b}}),
               "has 2 bindings but is given given, made, more");
  EXPECT_ERROR(bind({{"given", a}, {"made", b}, {"made", a}}),
               "has 2 bindings but is given given, made, made");
  EXPECT_ERROR(bind({{"given", a, 4, 0}, {"made", b}}), "bound to",
               "at 4 of its buffer given, which has 1024");
  EXPECT_ERROR(bind({{"given", a, 1024, 0}, {"made", b}}), "0 bytes at 1024");
  EXPECT_ERROR(bind({{"given", a, 1280, 0}, {"made", b}}), "at 1280");
  EXPECT_ERROR(bind({{"given", a, 256, 1024}, {"made", b}}), "1024 bytes at 256");
  EXPECT_ERROR(bind({{"given", a, 0, UINT64_MAX}, {"made", b}}), "of its buffer given");
  EXPECT_ERROR(bind({{"given", a, 0, 6}, {"made", b}}), "6 bytes");
  EXPECT_ERROR(bind({{"given", {}}, {"made", b}}), "of its buffer given, which has 0");
}

TEST(Kernels, AreMadeOnceForFileAndValues) {
  DOPPLER_NEEDS_ADAPTER();
  KernelCache cache(*device());
  const auto make = [&](std::int64_t width) {
    return cache.get("combine.wgsl", {{"THREADS", 64},
                                      {"OP", 3},
                                      {"SCALED", 0},
                                      {"ONE_GATE", 0},
                                      {"WIDTH", width},
                                      {"A_STRIDE", 8},
                                      {"A_OFFSET", 0},
                                      {"OUT_STRIDE", 8},
                                      {"OUT_OFFSET", 0}});
  };
  ASSERT_OK_AND_ASSIGN(const auto a, make(4));
  ASSERT_OK_AND_ASSIGN(const auto b, make(4));
  ASSERT_OK_AND_ASSIGN(const auto c, make(8));
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  EXPECT_EQ(cache.size(), 2u);
}

// One of several that this device cannot have keeps none of the others from being made.
TEST(Kernels, ThatCannotBeAreLeftOutOfThosePrepared) {
  DOPPLER_NEEDS_ADAPTER();
  KernelCache cache(*device());
  ThreadPool pool(2);
  const auto of_threads = [](std::int64_t threads) {
    return KernelSource{"likeliest.wgsl",
                        {{"THREADS", threads}, {"VOCAB", 4096}, {"GROUPS", 8}, {"PAD_WORD", 0}}};
  };
  const std::vector<KernelSource> sources = {of_threads(1 << 20), of_threads(64)};
  ASSERT_OK(cache.prepare(sources, pool));
  EXPECT_ERROR(cache.get(sources[0].file, sources[0].values), "of workgroup memory, but the GPU");
  ASSERT_OK(cache.get(sources[1].file, sources[1].values));
}

class Recording : public ::testing::Test {
 protected:
  void SetUp() override {
    DOPPLER_NEEDS_ADAPTER();
    device_ = device();
    ASSERT_OK_AND_ASSIGN(const auto kernel, Kernel::compile(*device_, "copy", kCopy));
    a_ = filled(*device_, 64, 1), b_ = filled(*device_, 64, 2);
    ASSERT_OK_AND_ASSIGN(a_to_b_, BoundKernel::create(*device_, kernel, {{"given", a_}, {"made", b_}}));
    ASSERT_OK_AND_ASSIGN(b_to_a_, BoundKernel::create(*device_, kernel, {{"given", b_}, {"made", a_}}));
    before_ = device_->counters;
  }
  // Nothing of the recording has happened.
  void expect_untouched() {
    EXPECT_EQ(device_->counters.submits, before_.submits);
    EXPECT_EQ(device_->counters.dispatches, before_.dispatches);
    EXPECT_EQ(words_of(*device_, a_), std::vector<std::uint32_t>(64, 1));
    EXPECT_EQ(words_of(*device_, b_), std::vector<std::uint32_t>(64, 2));
    before_ = device_->counters;
  }
  std::shared_ptr<Device> device_;
  Buffer a_, b_;
  BoundKernel a_to_b_, b_to_a_;
  Device::Counters before_;
};

TEST_F(Recording, RunsInOrder) {
  Recorder recorder(*device_);
  recorder.dispatch(a_to_b_, {});     // b = 2
  recorder.dispatch(b_to_a_, {});     // a = 3
  recorder.copy(a_, 0, b_, 128, 64);  // half of b = 3
  recorder.dispatch(b_to_a_, {});     // a = 3, 4
  recorder.dispatch(a_to_b_, {0, 1, 1});
  recorder.copy(a_, 0, b_, 0, 0);
  EXPECT_EQ(recorder.dispatches(), 3u);
  ASSERT_OK(recorder.submit());
  EXPECT_EQ(device_->counters.submits, before_.submits + 1);
  EXPECT_EQ(device_->counters.dispatches, before_.dispatches + 3);
  const std::vector<std::uint32_t> a = words_of(*device_, a_);
  EXPECT_EQ(a[0], 3u);
  EXPECT_EQ(a[31], 3u);
  EXPECT_EQ(a[32], 4u);
  EXPECT_EQ(a[47], 4u);
  EXPECT_EQ(a[48], 3u);
}

TEST_F(Recording, SubmitsNothingAfterAMistake) {
  const std::uint32_t most = device_->limits().workgroups_per_dimension;
  const auto expect = [&](auto record, std::initializer_list<const char*> parts) {
    Recorder recorder(*device_);
    recorder.dispatch(a_to_b_, {});
    record(recorder);
    recorder.dispatch(b_to_a_, {});
    const auto refused = recorder.submit();
    ASSERT_FALSE(refused.has_value());
    expect_error_parts(refused.error(), parts);
    expect_untouched();
  };
  if (most < UINT32_MAX) {
    expect([&](Recorder& r) { r.dispatch(a_to_b_, {most + 1, 1, 1}); },
           {"The kernel copy is dispatched with", "is the most"});
    expect([&](Recorder& r) { r.dispatch(a_to_b_, {1, most + 1, 1}); }, {"is the most"});
    expect([&](Recorder& r) { r.dispatch(a_to_b_, {1, 1, most + 1}); }, {"is the most"});
  }
  expect([&](Recorder& r) { r.copy(a_, 2, b_, 0, 4); },
         {"A copy of 4 bytes from 2 of 256 to 0 of 256 does not fit"});
  expect([&](Recorder& r) { r.copy(a_, 0, b_, 2, 4); }, {"A copy of 4 bytes"});
  expect([&](Recorder& r) { r.copy(a_, 0, b_, 0, 6); }, {"A copy of 6 bytes"});
  expect([&](Recorder& r) { r.copy(a_, 0, b_, 4, 256); }, {"A copy of 256 bytes"});
  expect([&](Recorder& r) { r.copy(a_, 256, b_, 0, 4); }, {"A copy of 4 bytes"});
  expect([&](Recorder& r) { r.copy(a_, UINT64_MAX - 3, b_, 0, 8); }, {"A copy of 8 bytes"});
  expect([&](Recorder& r) { r.copy(a_, 0, a_, 64, 16); }, {"onto itself"});
  expect([&](Recorder& r) { r.copy({}, 0, a_, 0, 16); }, {"A copy of 16 bytes"});
  expect([&](Recorder& r) { r.dispatch(BoundKernel(), {}); }, {"no kernel"});
}

TEST_F(Recording, KeepsTheFirstMistake) {
  Recorder recorder(*device_);
  recorder.copy(a_, 2, b_, 0, 4);
  recorder.copy(a_, 0, b_, 0, 6);
  EXPECT_ERROR(recorder.submit(), "A copy of 4 bytes from 2");
  expect_untouched();
}

TEST_F(Recording, IsSpentWhenItIsSubmitted) {
  Recorder recorder(*device_);
  recorder.dispatch(a_to_b_, {});
  ASSERT_OK(recorder.submit());
  EXPECT_ERROR(recorder.submit(), "submitted twice");
  recorder.dispatch(a_to_b_, {});
  recorder.copy(a_, 0, b_, 0, 4);
  EXPECT_ERROR(recorder.submit(), "submitted");
  ASSERT_OK(device_->check());
}

TEST_F(Recording, MayBeDroppedHalfWay) {
  {
    Recorder recorder(*device_);
    recorder.dispatch(a_to_b_, {});
  }
  {
    const Recorder nothing(*device_);
  }
  expect_untouched();
  ASSERT_OK(device_->check());
}

// What only the library knows: it reports, and the process goes on.
TEST_F(Recording, SurvivesWhatTheLibraryRefuses) {
  ASSERT_OK_AND_ASSIGN(const auto kernel, Kernel::compile(*device_, "copy", kCopy));
  {
    // The same bytes read and written by one dispatch.
    ASSERT_OK_AND_ASSIGN(const BoundKernel both,
                         BoundKernel::create(*device_, kernel, {{"given", a_}, {"made", a_}}));
    Recorder recorder(*device_);
    recorder.dispatch(both, {});
    EXPECT_FALSE(recorder.submit().has_value());
  }
  {
    // Read-back memory as a given.
    ASSERT_OK_AND_ASSIGN(const Buffer back, device_->make_read_back("back", 64));
    Recorder recorder(*device_);
    recorder.copy(back, 0, b_, 0, 64);
    EXPECT_FALSE(recorder.submit().has_value());
  }
  {
    // Read-back memory as a binding.
    ASSERT_OK_AND_ASSIGN(const Buffer back, device_->make_read_back("back", 256));
    EXPECT_FALSE(BoundKernel::create(*device_, kernel, {{"given", back}, {"made", b_}}).has_value());
  }
  expect_untouched();
  Recorder recorder(*device_);
  recorder.dispatch(a_to_b_, {});
  ASSERT_OK(recorder.submit());
}

TEST_F(Recording, ReadsBackAndCounts) {
  ASSERT_OK_AND_ASSIGN(const Buffer back, device_->make_read_back("back", 64));
  Recorder recorder(*device_);
  recorder.copy(a_, 0, back, 0, 64);
  ASSERT_OK_AND_ASSIGN(const std::uint64_t submission, recorder.submit());
  std::size_t seen = 0;
  for (int twice = 0; twice < 2; ++twice) {
    ASSERT_OK(device_->read(back, 32, submission, [&](std::span<const std::byte> bytes) {
      seen += bytes.size();
      EXPECT_EQ(bytes[0], std::byte{1});
    }));
  }
  EXPECT_EQ(seen, 64u);
  EXPECT_EQ(device_->counters.read_backs, before_.read_backs + 2);
  EXPECT_EQ(device_->counters.read_back_bytes, before_.read_back_bytes + 64);
  ASSERT_OK(device_->wait(submission));
}

TEST(LostDevice, SaysSoFromThenOn) {
  DOPPLER_NEEDS_ADAPTER();
  ASSERT_OK_AND_ASSIGN(const auto lost, Device::open({}));
  const Buffer buffer = filled(*lost, 16, 1);
  wgpuDeviceDestroy(lost->raw());
  // Whichever call comes first, the process lives on; nothing works any more.
  EXPECT_FALSE(lost->make_buffer("after", 64).has_value());
  EXPECT_FALSE(lost->download(buffer).has_value());
  EXPECT_FALSE(Kernel::compile(*lost, "copy", kCopy).has_value());
}

}  // namespace
}  // namespace doppler::gpu
