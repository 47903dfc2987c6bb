// Checked: the one type in which sizes, offsets and counts from files are computed. Overflow is sticky: any
// operation that does not fit in 64 bits makes the value invalid, and every later result stays invalid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace doppler {

class Checked {
 public:
  constexpr Checked(std::uint64_t value = 0) : value_(value) {}  // NOLINT: implicit on purpose

  constexpr bool valid() const { return valid_; }
  // The value, or nothing if any step overflowed.
  constexpr std::optional<std::uint64_t> get() const { return valid_ ? std::optional(value_) : std::nullopt; }
  constexpr std::uint64_t value_or(std::uint64_t fallback) const { return valid_ ? value_ : fallback; }

  friend constexpr Checked operator+(Checked a, Checked b) {
    Checked out;
    out.valid_ = !__builtin_add_overflow(a.value_, b.value_, &out.value_) && a.valid_ && b.valid_;
    return out;
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    Checked out;
    out.valid_ = !__builtin_mul_overflow(a.value_, b.value_, &out.value_) && a.valid_ && b.valid_;
    return out;
  }
  friend constexpr Checked operator-(Checked a, Checked b) {
    Checked out;
    out.valid_ = !__builtin_sub_overflow(a.value_, b.value_, &out.value_) && a.valid_ && b.valid_;
    return out;
  }
  // True only when the value is valid and within the bound.
  constexpr bool at_most(std::uint64_t bound) const { return valid_ && value_ <= bound; }

 private:
  std::uint64_t value_ = 0;
  bool valid_ = true;
};

}  // namespace doppler
