// Every other way to read a weight's bytes: rows and columns exchanged, bytes at another place, another type,
// another order within blocks. Repairs of products and of embeddings try them on a sample of the rows.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/tensor.h"

namespace doppler::diagnosis {

// One row of a weight, read some way. kNotFound where its values are lost.
using ReadRow = std::function<Status(std::uint64_t row, std::span<float> values)>;

struct Relayout {
  const char* cause = "";
  std::string says;  // completes "agrees when"
  ReadRow read;
  std::string repair = {};  // empty: that of the cause
  double weight = 1;
  bool same_size = true;           // takes as many bytes; else the file would hold another number of them
  bool search = false;             // one of many candidates: not tried once another relayout fits
  std::optional<DType> type = {};  // the type that the tensor's bytes are of, if it is another
};

// Likeliest first. `head_dim`: columns of a head, for products that read heads; 0: none. The weight's bytes
// must outlive what is returned.
std::vector<Relayout> relayouts(const TensorView& weight, std::uint64_t head_dim);

// What the scales of a quantised weight's blocks make of its codes, the minima taken for zero; empty for
// types without minima.
ReadRow scales_only(const TensorView& weight);

// Floats that were made of blocks wrongly, and other orders of columns, likeliest first
// (relayouts_floats.cpp).
void add_wrongly_decoded(const TensorView& weight, std::vector<Relayout>& to);
void add_column_orders(const TensorView& weight, std::uint64_t head_dim, std::vector<Relayout>& to);

}  // namespace doppler::diagnosis
