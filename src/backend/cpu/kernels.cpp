#include "backend/cpu/kernels.h"

#include <array>

#include "backend/cpu/kernel_tables.h"
#include "hwy/targets.h"

namespace doppler::cpu {
namespace {

#define DOPPLER_TARGET_BIT(target) HWY_##target,
constexpr std::int64_t kTargets[] = {DOPPLER_FOR_EACH_TARGET(DOPPLER_TARGET_BIT)};
#undef DOPPLER_TARGET_BIT

struct Available {
  std::array<Kernels, std::size(kTargets)> kernels;
  std::size_t count = 0;

  Available() {
    constexpr std::int64_t kPortable = HWY_EMU128 | HWY_SCALAR;
    const std::int64_t supported = hwy::SupportedTargets() | kPortable;
    for (const std::int64_t target : kTargets) {
      if ((supported & target) == 0) continue;
      kernels[count++] = {hwy::TargetName(target), target, matmul_kernels(target), attention_kernels(target),
                          element_kernels(target)};
    }
  }
};

}  // namespace

std::span<const Kernels> all_kernels() {
  static const Available available;
  return std::span(available.kernels).first(available.count);
}

}  // namespace doppler::cpu
