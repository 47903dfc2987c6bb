// Types of weights in the forms that the device has them in: a head's may be another than that of all others.
#pragma once

#include <algorithm>
#include <string>

#include "backend/gpu/weights.h"

namespace doppler::gpu::testing {

struct StoredAs {
  DType type;
  bool head = false;
  constexpr StoredAs(DType type_of_tensor, bool as_head = false) : type(type_of_tensor), head(as_head) {}
  WeightFormat format() const { return head ? head_format_of(type) : format_of(type); }
  // Of a test, which allows no hyphens.
  std::string name() const {
    std::string name(dtype_name(type));
    std::ranges::replace(name, '-', '_');
    return head ? "head_of_" + name : name;
  }
};
inline constexpr StoredAs kHeadOfBF16 = {DType::kBF16, true};

}  // namespace doppler::gpu::testing
