// How far an op's output may lie from the oracle's through rounding alone: a bound for every value, from the
// op's inputs, the type of its weight, the backend's intended rounding, and the length of its sums. No
// tolerance has to be chosen, and even a small error exceeds the op's own rounding.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/compare/op_experiment.h"

namespace doppler::diagnosis {

// The rounding of a run beyond float32. The default is that of transformers.
struct Arithmetic {
  bool eight_bit_products = false;  // activations in 8 bits, in blocks of 32, where weights are quantised
  // Steps of so many tokens or more take blocks of 256 where the weights are K-quants; 0: none do.
  std::uint32_t wide_blocks_from = 0;
  bool half_products = false;  // weights and activations of products in f16, unless these are in 8 bits
  KvType kv = KvType::kF32;    // type of keys and values that attention reads
  bool half_parts = false;     // results of parts of an attention in f16
  // The run used other weights of the same model than the op has: the original floats of quantised ones, or
  // another quantisation, whose values lie `other_error` from the floats, as a share of their root mean
  // square.
  bool other_weights = false;
  double other_error = 0;
  bool operator==(const Arithmetic&) const = default;
};
Arithmetic arithmetic_of(const Backend& backend);
// Arithmetic as entries of a recording's header, and back.
std::map<std::string, std::string> arithmetic_metadata(const Arithmetic& arithmetic);
Arithmetic arithmetic_from(const std::map<std::string, std::string>& metadata);
// That of a recording that is compared with a model of these weights. If the header names other weight types,
// or none (transformers has floats) while these are quantised, other_weights is set.
Arithmetic arithmetic_of(const Recording& recording, const Weights& weights);

// "F32 x 105, Q4_0 x 183": the types of a model's weights, for a recording's header ("weights").
std::string describe_weights(const Weights& weights);
// The allowed difference of every value of the op's output, [tokens, width]. First-order bounds for products
// and sums in float32: eight standard deviations where many roundings are independent, the worst case where
// there are few. Errors: those of run_setup().
Result<std::vector<float>> allowance(const OpSetup& setup, const Arithmetic& arithmetic,
                                     reference::Threads& threads);

}  // namespace doppler::diagnosis
