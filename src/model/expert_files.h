// Experts as some folders store them: all of a layer in one tensor with columns instead of rows, gates and
// ups together (gpt-oss, Llama 4), or in MXFP4 with blocks and scales apart (gpt-oss as published). Loading
// turns these into tensors of rows, which is one copy of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/tensor_store.h"
#include "model/spec.h"
#include "model/weight_table.h"

namespace doppler {

// Puts [experts, rows, columns] under the names of the roles kGateExperts, kUpExperts, kDownExperts and the
// biases of the first two in place of what `names.expert_columns` says; does nothing where the store has
// none of it. MXFP4 stays MXFP4. Errors: kMismatch for shapes that contradict the spec; kLimit.
Status restore_experts(const ModelSpec& spec, const WeightNames& names, TensorStore& store);

// Where such a file has an expert's matrix: row i of it is the stored row first + i * step of the expert's.
struct ExpertPlace {
  std::string stored;                        // the tensor of floats, or that of the blocks
  std::string scales;                        // of blocks; empty: floats
  std::uint64_t rows, cols;                  // of an expert in the stored tensor
  std::uint64_t count, expert, first, step;  // rows of the matrix
};

// Of a matrix by the name that binding gives it, "NAME[expert]"; nothing where the store has it otherwise.
std::optional<ExpertPlace> find_expert(const ModelSpec& spec, const WeightNames& names,
                                       const TensorStore& store, std::string_view matrix);

// Puts row `row` of the matrix into the bytes of the tensor (and of its scales) that it lies in, whose type
// is `type`; blocks are encoded as MXFP4. Errors: those of encode().
Status put_expert_row(const ExpertPlace& place, std::uint64_t row, std::span<const float> values, DType type,
                      std::span<std::byte> stored, std::span<std::byte> scales);

}  // namespace doppler
