// Every other way to read a weight's bytes: rows and columns exchanged, bytes at another place, another type,
// another order within blocks. Repairs of products and of embeddings try them on a sample of the rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/tensor.h"

namespace doppler::diagnosis {

struct Relayout {
  const char* cause = "";
  std::string says;  // completes "agrees when"
  // One row read this way. kNotFound where its values are lost.
  std::function<Status(std::uint64_t row, std::span<float> values)> read;
  std::string repair = {};  // empty: that of the cause
  double weight = 1;
  bool same_size = true;  // takes as many bytes; else the file would hold another number of them
  bool search = false;    // one of many candidates: not tried once another relayout fits
};

// Likeliest first. `head_dim`: columns of a head, for products that read heads; 0: none. The weight's bytes
// must outlive what is returned.
std::vector<Relayout> relayouts(const TensorView& weight, std::uint64_t head_dim);

}  // namespace doppler::diagnosis
