// Fingerprint: tells models' weights apart by a sample of each tensor.
#pragma once

#include <cstdint>
#include <span>

#include "model/weights.h"

namespace doppler {

// FNV-1a: quick; forged files need no defence, since only their author would be misled.
class Fingerprint {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) hash_ = (hash_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

// Names, shapes and some bytes of each tensor, so that a file of gigabytes takes no time.
Fingerprint fingerprint_of(const Weights& weights);

}  // namespace doppler
