// What is read from kernels' labels, and how the device's bandwidth is measured.
#include "backend/gpu/kernel_report.h"

#include "backend/gpu/bandwidth.h"
#include "backend/gpu/timing.h"
#include "gpu_harness.h"

namespace doppler::gpu {
namespace {

using namespace testing;

TEST(KernelLabel, ShowsWhatWasChosenAndHidesTheShape) {
  const KernelLabel label("gemv.wgsl ACT=1 EPI=0 FORM=4 LANES=8 R=16 ROWS=1152 SCALES=1 UNITS=2 UNITS_K=18");
  EXPECT_EQ(label.file, "gemv.wgsl");
  EXPECT_EQ(label.get("ROWS"), 1152);
  EXPECT_EQ(label.get("MISSING", -3), -3);
  EXPECT_EQ(label.variant(), "gemv.wgsl ACT=1 R=16 LANES=8 UNITS=2");
  EXPECT_EQ(label.why({}), "weights are signed nibbles, activations are rounded to 8 bits");
  EXPECT_EQ(KernelLabel("rope.wgsl").variant(), "rope.wgsl");
}

TEST(KernelLabel, KnowsTheBytesThatADispatchReads) {
  // 4-bit codes take 32 bytes of 64 values and their two halves 4.
  const std::string gemv = "gemv.wgsl FORM=4 SCALES=1 UNITS_K=18 ROWS=1152";
  EXPECT_EQ(KernelLabel(gemv + " EPI=0").bytes(9), 1152u * 18 * 36);
  EXPECT_EQ(KernelLabel(gemv + " EPI=1").bytes(9), 2u * 1152 * 18 * 36) << "gate and up";
  EXPECT_EQ(KernelLabel("embed.wgsl FORM=1 SCALES=0 UNITS_K=18 ROWS=1152").bytes(9), 18u * 128) << "one row";
  const std::string attention = "attention_decode.wgsl DIM=64 KV_HEADS=2 KV_HALF=1 WINDOW=";
  EXPECT_EQ(KernelLabel(attention + "0").bytes(100), 2u * 100 * 2 * 64 * 2);
  EXPECT_EQ(KernelLabel(attention + "30").bytes(100), 2u * 30 * 2 * 64 * 2);
  EXPECT_EQ(KernelLabel(attention + "30").bytes(10), 2u * 10 * 2 * 64 * 2);
  EXPECT_EQ(KernelLabel("norm.wgsl DIM=64").bytes(100), 0u);
}

TEST(KernelLabel, NamesWhatAFusedKernelComputes) {
  EXPECT_EQ(fused_title("gemv.wgsl EPI=1 PRO=1"), "decode: norm, gate, up, activation");
  EXPECT_EQ(fused_title("gemv.wgsl EPI=0 PRO=0"), "decode: down, or output of splits put together");
  EXPECT_EQ(fused_title("brand_new.wgsl"), "decode: brand_new.wgsl");
}

TEST(ReadBandwidth, TakesWhatTheDeviceHasAndMeasuresIt) {
  DOPPLER_NEEDS_ADAPTER();
  Device& gpu = *device(Mode::kUnchecked);
  ASSERT_OK_AND_ASSIGN(ReadBandwidth small, ReadBandwidth::create(gpu, 5 << 20));
  EXPECT_EQ(small.bytes(), 5u << 20);
  ASSERT_OK_AND_ASSIGN(const double measured, small.measure());
  EXPECT_GT(measured, 1e6);
  ASSERT_OK_AND_ASSIGN(const ReadBandwidth least, ReadBandwidth::create(gpu, 1));
  EXPECT_EQ(least.bytes(), 64u << 10);
}

TEST(TimeOnDevice, PassesMistakesOn) {
  DOPPLER_NEEDS_ADAPTER();
  Device& gpu = *device(Mode::kUnchecked);
  ASSERT_OK_AND_ASSIGN(const Buffer buffer, gpu.make_buffer("small", 16));
  EXPECT_ERROR(time_on_device(gpu, 1, [&](Recorder& r) { r.copy(buffer, 0, buffer, 0, 1 << 20); }), "copy");
}

}  // namespace
}  // namespace doppler::gpu
