// RopeAngles: cosines and sines of a step's positions, computed once per step and table and shared by all
// layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "model/rope.h"

namespace doppler::cpu {

class RopeAngles {
 public:
  struct Table {
    const float *cos, *sin;  // [tokens, pairs], times the table's magnitude
    std::size_t pairs;
  };

  static Result<RopeAngles> create(std::span<const RopeTable> tables, std::size_t max_tokens) {
    RopeAngles out;
    std::uint64_t floats = 0;
    for (const RopeTable& table : tables) {
      out.first_.push_back(floats);
      floats += 2 * max_tokens * table.inverse_frequency.size();
    }
    out.filled_.assign(tables.size(), 0);
    DOPPLER_ASSIGN(out.values_, LazyFloats::allocate(floats));
    return out;
  }

  void begin_step() { filled_.assign(filled_.size(), 0); }

  // The step's table, filled at its first use.
  Table table(std::span<const RopeTable> tables, std::size_t index, std::span<const std::int32_t> positions) {
    const RopeTable& from = tables[index];
    const std::size_t pairs = from.inverse_frequency.size(), count = positions.size() * pairs;
    float *cos = values_.data() + first_[index], *sin = cos + count;
    for (std::size_t t = 0; !filled_[index] && t < positions.size(); ++t) {
      for (std::size_t i = 0; i < pairs; ++i) {
        const RopeTable::Turn turn = from.turn(positions[t], i);
        cos[t * pairs + i] = static_cast<float>(turn.cos);
        sin[t * pairs + i] = static_cast<float>(turn.sin);
      }
    }
    filled_[index] = 1;
    return {cos, sin, pairs};
  }

  std::uint64_t bytes() const { return values_.size() * sizeof(float); }

 private:
  std::vector<std::uint64_t> first_;  // floats before each table
  std::vector<std::uint8_t> filled_;
  LazyFloats values_;
};

}  // namespace doppler::cpu
