// What the GPU tests share: devices that are opened once per program, and single kernels run with named
// inputs and outputs, where nothing outside the outputs may change.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/recorder.h"
#include "changed_shaders.h"
#include "testing.h"

namespace doppler::gpu::testing {

// A size as a shader's value.
inline std::int64_t i64(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

// Checked kernels clamp what lies outside a buffer, unchecked ones run as users run them: each shows
// mistakes that the other hides.
enum class Mode { kChecked, kUnchecked, kNoSubgroups };

inline bool has_adapter() {
  // Mesa's layer that picks a device by display complains on machines without one.
  static const bool has = setenv("NODEVICE_SELECT", "1", 0) == 0 && !list_adapters().empty();
  return has;
}

inline std::map<Mode, std::shared_ptr<Device>>& open_devices() {
  static std::map<Mode, std::shared_ptr<Device>> opened;
  return opened;
}
// Drivers end before static objects do.
class CloseDevices : public ::testing::Environment {
 public:
  void TearDown() override { open_devices().clear(); }
};
inline const ::testing::Environment* const kCloseDevices =
    ::testing::AddGlobalTestEnvironment(new CloseDevices);

// Null where the machine has no adapter at all.
inline std::shared_ptr<Device> device(Mode mode = Mode::kChecked) {
  std::map<Mode, std::shared_ptr<Device>>& opened = open_devices();
  const auto found = opened.find(mode);
  if (found != opened.end()) return found->second;
  std::shared_ptr<Device> made;
  if (has_adapter()) {
    auto result =
        Device::open({.checked = mode != Mode::kUnchecked}, {.no_subgroups = mode == Mode::kNoSubgroups});
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    if (result) made = *result;
  }
  if (opened.empty() && made != nullptr) {
    const AdapterInfo& info = made->adapter();
    fmt::print("GPU tests run on {} ({}, {}, {})\n", info.name, info.kind, info.api, info.driver);
  }
  opened.emplace(mode, made);
  return made;
}

#define DOPPLER_NEEDS_ADAPTER() \
  if (!::doppler::gpu::testing::has_adapter()) GTEST_SKIP() << "no GPU adapter, not even a software one"

// Normally distributed floats, the same in every run.
class Random {
 public:
  explicit Random(unsigned seed = 7) : generator_(seed) {}
  std::vector<float> floats(std::size_t count, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(count);
    for (float& v : values) v = normal(generator_);
    return values;
  }
  std::uint32_t below(std::uint32_t end) { return static_cast<std::uint32_t>(generator_() % end); }
  std::mt19937& generator() { return generator_; }

 private:
  std::mt19937 generator_;
};

// One dispatch of one kernel. Every array lies in the middle of a buffer of its own, between guard words that
// spoil whatever is computed from them and must be there afterwards.
class Launch {
 public:
  Launch(Mode mode, std::string_view file, ShaderValues values)
      : device_(device(mode)), file_(file), values_(std::move(values)) {}

  template <typename T>
  Launch& in(const std::string& name, const std::vector<T>& data) {
    add(name, data.data(), data.size() * sizeof(T));
    return *this;
  }
  // Begins as NaN.
  Launch& out(const std::string& name, std::size_t words) {
    const std::vector<std::uint32_t> nan(words, kUntouched);
    add(name, nan.data(), words * 4);
    return *this;
  }
  Launch& bound(const std::string& name, Buffer buffer) {
    whole_.emplace_back(name, std::move(buffer));
    return *this;
  }
  Launch& value(const std::string& name, std::int64_t v) {
    values_[name] = v;
    return *this;
  }

  // Runs it and checks the guards and that inputs are as before; every failure is a test failure.
  bool run(Workgroups groups) {
    const Status status = try_run(groups);
    EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
    return status.has_value();
  }

  template <typename T = float>
  std::vector<T> get(const std::string& name) const {
    for (const Array& array : arrays_) {
      if (array.name != name) continue;
      std::vector<T> values(array.bytes / sizeof(T));
      std::memcpy(values.data(), array.after.data() + kGuardBytes, values.size() * sizeof(T));
      return values;
    }
    ADD_FAILURE() << "no array " << name;
    return {};
  }

 private:
  // 1.25e30, which spoils every result that it gets into, and NaN.
  static constexpr std::uint32_t kGuard = 0x717c6d90, kUntouched = 0xffffffff;
  static constexpr std::size_t kGuardBytes = 1024;  // a multiple of every binding alignment

  struct Array {
    std::string name;
    std::size_t bytes = 0;
    std::vector<std::byte> before, after;
    Buffer buffer;
    // A kernel may read whole vec4<u32>s. Half of the guard behind is bound as well: software adapters drop
    // every access outside a binding, but nothing inside.
    std::size_t bound_bytes() const { return (bytes + 15) / 16 * 16 + kGuardBytes / 2; }
  };

  void add(const std::string& name, const void* data, std::size_t bytes) {
    Array array;
    array.name = name;
    array.bytes = bytes;
    array.before.resize(kGuardBytes + array.bound_bytes() + kGuardBytes);
    for (std::size_t i = 0; i < array.before.size(); i += 4) std::memcpy(&array.before[i], &kGuard, 4);
    if (bytes != 0) std::memcpy(array.before.data() + kGuardBytes, data, bytes);
    arrays_.push_back(std::move(array));
  }

  Status try_run(Workgroups groups) {
    DOPPLER_ASSIGN(const auto kernel, Kernel::create(*device_, file_, values_));
    std::vector<Bound> bounds;
    for (Array& array : arrays_) {
      DOPPLER_ASSIGN(array.buffer, device_->make_filled(array.name, array.before.size(), [&](auto out) {
        std::memcpy(out.data(), array.before.data(), array.before.size());
      }));
      bounds.push_back({array.name, array.buffer, kGuardBytes, array.bound_bytes()});
    }
    for (const auto& [name, buffer] : whole_) bounds.push_back({name, buffer});
    DOPPLER_ASSIGN(const BoundKernel bound, BoundKernel::create(*device_, kernel, bounds));
    Recorder recorder(*device_);
    recorder.dispatch(bound, groups);
    DOPPLER_TRY(recorder.submit());
    for (Array& array : arrays_) {
      DOPPLER_ASSIGN(array.after, device_->download(array.buffer));
      bool writes = false;
      for (const Binding& binding : kernel->bindings())
        writes = writes || (binding.name == array.name && binding.writes);
      for (std::size_t i = 0; i < array.before.size(); ++i) {
        const bool inside = i >= kGuardBytes && i < kGuardBytes + array.bytes;
        if ((inside && writes) || array.before[i] == array.after[i]) continue;
        ADD_FAILURE() << kernel->label() << " changed byte " << static_cast<std::ptrdiff_t>(i - kGuardBytes)
                      << " of " << array.name << ", which has " << array.bytes;
        break;
      }
    }
    return {};
  }

  std::shared_ptr<Device> device_;
  std::string file_;
  ShaderValues values_;
  std::vector<Array> arrays_;
  std::vector<std::pair<std::string, Buffer>> whole_;
};

// Each value within its own allowed error; NaN, where the kernel wrote nothing, is too far from anything.
inline void expect_near_each(const std::vector<float>& got, const std::vector<double>& expected,
                             const std::vector<double>& allowed, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  std::size_t bad = 0, first = 0;
  for (std::size_t i = got.size(); i-- > 0;) {
    if (std::abs(got[i] - expected[i]) <= allowed[i]) continue;
    ++bad;
    first = i;
  }
  if (bad != 0) {
    ADD_FAILURE() << what << ": " << bad << " of " << got.size() << " are wrong, first number " << first
                  << ": " << got[first] << " instead of " << expected[first] << " +- " << allowed[first];
  }
}
inline void expect_near(const std::vector<float>& got, const std::vector<double>& expected, double allowed,
                        const std::string& what) {
  expect_near_each(got, expected, std::vector<double>(expected.size(), allowed), what);
}

inline std::int64_t bits_of(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

}  // namespace doppler::gpu::testing
