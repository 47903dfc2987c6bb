// Which kernels the gpu backend's programs run, why, and how long those of a token take. All of it is read
// from what they record and from the kernels' labels, so that a new kernel shows up by itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu/device.h"
#include "backend/gpu/recorder.h"

namespace doppler::gpu {

// A kernel's label taken apart: "gemv.wgsl ACT=1 R=8".
struct KernelLabel {
  explicit KernelLabel(std::string_view label);
  std::string file;
  ShaderValues values;
  bool has(std::string_view name) const { return values.contains(name); }
  std::int64_t get(std::string_view name, std::int64_t otherwise = 0) const;

  // Of joined.wgsl: the label of the product that is its module of that name.
  KernelLabel module(std::string_view name) const;
  // File and the values that were chosen, without those that follow from the model's shape.
  std::string variant() const;
  std::string why(const Features& features) const;
  // Weights that one dispatch reads, as they lie on the device, and keys and values of `length` tokens.
  std::uint64_t bytes(std::uint64_t length) const;
};

// A dispatch with the name of what it computes.
struct Piece {
  std::string what;
  FixedDispatch dispatch;
};

// The title of one of the fused kernels of single tokens: "decode: norm, q, k, v".
std::string fused_title(std::string_view label);

// One row for each kernel of each kind of op, in the order in which they run; layers that run alike share it.
std::vector<VariantRow> variant_rows(const Features& features, const std::vector<Piece>& pieces);

// Runs each kernel once, on inputs of its own, and compares it with plain loops on the CPU; layers that run
// alike share it.
Result<std::vector<KernelCheck>> check_kernels(Device& device, const std::vector<Piece>& pieces);

// Kernels of one kind run one after the other, so that each finds its weights where a real step does: not in
// the cache. `length` is that of the sequence whose token the buffer `step` describes. Overwrites whatever
// the kernels write.
Result<std::vector<KernelTime>> time_pieces(Device& device, const std::vector<Piece>& pieces,
                                            std::uint64_t length);

}  // namespace doppler::gpu
