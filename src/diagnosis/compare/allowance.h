// How far an op's output may lie from the oracle's without anything being wrong: a bound for every value,
// from what the op reads, the format of its weight, what the backend rounds on purpose, and the length of its
// sums. No tolerance has to be chosen, and a wrong op stands out of its own rounding, however small.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "diagnosis/compare/op_experiment.h"

namespace doppler::diagnosis {

// What a run rounds beyond float32. The default is what transformers does.
struct Arithmetic {
  bool eight_bit_products = false;  // activations in 8 bits, in blocks of 32, where weights are quantised
  KvType kv = KvType::kF32;         // how attention reads keys and values
  // The weights were others than those of the op, of the same model: the original floats of quantised ones,
  // or another quantisation, whose values lie `other_error` from the floats, as a share of their root mean
  // square.
  bool other_weights = false;
  double other_error = 0;
  bool operator==(const Arithmetic&) const = default;
};
Arithmetic arithmetic_of(const Backend& backend);
// The same by way of a recording's header.
std::map<std::string, std::string> arithmetic_metadata(const Arithmetic& arithmetic);
Arithmetic arithmetic_from(const std::map<std::string, std::string>& metadata);
// Of a recording that is compared with a model of these weights. Where the header names other types of
// weights, or nobody's (transformers has floats) and these are quantised, they were others.
Arithmetic arithmetic_of(const Recording& recording, const Weights& weights);

// "F32 x 105, Q4_0 x 183": the types of a model's weights, for a recording's header ("weights").
std::string describe_weights(const Weights& weights);
// The allowed difference of every value of the op's output, [tokens, width]. First-order bounds: products and
// sums of float32, eight standard deviations where many roundings are independent, hard where there are few.
// Errors: those of run_setup().
Result<std::vector<float>> allowance(const OpSetup& setup, const Arithmetic& arithmetic,
                                     reference::Threads& threads);

}  // namespace doppler::diagnosis
