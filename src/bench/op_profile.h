// OpProfile: the time of steps by kind of op and computed value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bench/bytes.h"

namespace doppler::bench {

// All layers' ops of one kind and name together.
struct OpRow {
  std::string name;  // "matmul ffn_out"
  std::uint64_t calls = 0;
  double seconds = 0;
  std::uint64_t bytes = 0;  // weights and cache read, by bench/bytes.h; 0 for ops that read only activations
};

class OpProfile final : public OpObserver {
 public:
  OpProfile(const Plan& plan, const Weights& weights, KvType kv_type);

  // To be called before each step: its number of tokens and the position of its first.
  void begin_step(std::uint64_t tokens, std::uint64_t position);
  void on_op(std::size_t index, double seconds) override;

  // By time, the largest first.
  std::vector<OpRow> rows() const;
  double seconds() const;

 private:
  const Plan& plan_;
  const Weights& weights_;
  const KvType kv_type_;
  std::uint64_t tokens_ = 1, position_ = 0;
  std::vector<OpRow> by_op_;  // parallel to the plan's ops
};

}  // namespace doppler::bench
