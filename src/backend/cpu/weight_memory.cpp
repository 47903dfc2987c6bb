#include "backend/cpu/weight_memory.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "system/memory.h"

namespace doppler::cpu {
namespace {

// Panels start on cache lines.
constexpr std::uint64_t kAlignment = 64;
// Panels that a thread lays out before it gives their file pages back: about a megabyte.
constexpr std::uint64_t kChunkBytes = 1 << 20;

// Rows [from, to) of a tensor as panels, of which the first begins with row `from`.
Status pack_rows(const TensorView& tensor, const PanelMatrix& matrix, std::size_t from, std::size_t to,
                 std::uint8_t* out) {
  TensorView flat = tensor;
  flat.shape = {matrix.rows, matrix.cols};
  DOPPLER_ASSIGN(const TensorView rows, slice_rows(flat, from, to - from, tensor.name));
  DOPPLER_ASSIGN(const HeldTensor held, hold(rows));
  PanelMatrix part = matrix;
  part.rows = to - from;
  pack_panels(part, reinterpret_cast<const std::uint8_t*>(held.view.data.data()), 0, part.panels(), out);
  if (rows.mapped) system::release_pages(rows.data);
  return {};
}

}  // namespace

Status WeightMemory::plan(const TensorView& tensor) {
  const PanelFormat* format = panel_format(tensor.dtype);
  const auto bytes = byte_size(tensor.dtype, tensor.shape);
  if (format == nullptr || !bytes || *bytes != tensor.bytes()) {
    return fail(ErrorCode::kMismatch,
                "The tensor {} ({}, {}) does not hold whole rows of blocks. Download it again.", tensor.name,
                dtype_name(tensor.dtype), describe_shape(tensor.shape));
  }
  has_panels_ = true;
  const PanelMatrix matrix{format, nullptr, static_cast<std::size_t>(tensor.rows()),
                           static_cast<std::size_t>(tensor.cols())};
  return reserve(tensor, matrix, Checked(matrix.panels()) * Checked(matrix.panel_bytes()));
}

Status WeightMemory::plan_copy(const TensorView& tensor) {
  return reserve(tensor, {}, Checked(tensor.bytes()));
}

Status WeightMemory::reserve(const TensorView& tensor, const PanelMatrix& matrix, Checked bytes) {
  if (!places_.try_emplace(tensor.place(), Place{&tensor, matrix, planned_}).second) return {};
  const auto end = (Checked(planned_) + bytes + Checked(kAlignment)).get();
  if (!end) return fail(ErrorCode::kLimit, "The weights exceed 2^64 bytes. Use a smaller model.");
  planned_ = *end / kAlignment * kAlignment;
  return {};
}

Status WeightMemory::fill(ThreadPool& pool) {
  // The file's own pages need no room: the system drops them when memory is short.
  if (const std::uint64_t available = system::available_memory(); planned_ > available) {
    return fail(ErrorCode::kLimit,
                "The weights need {}, but the machine has {} left. Use a smaller model or type.",
                human_bytes(planned_), human_bytes(available));
  }
  DOPPLER_ASSIGN(memory_, LazyFloats::allocate((planned_ + 3) / 4, Pages::kHuge));
  for (auto& [where, place] : places_)
    DOPPLER_TRY(place.matrix.format == nullptr ? fill_copy(place) : fill_panels(place, pool));
  return {};
}

Status WeightMemory::fill_copy(const Place& place) {
  const std::span to(reinterpret_cast<std::byte*>(base() + place.offset),
                     static_cast<std::size_t>(place.tensor->bytes()));
  return read_bytes(*place.tensor, 0, to);
}

Status WeightMemory::fill_panels(Place& place, ThreadPool& pool) {
  PanelMatrix& matrix = place.matrix;
  matrix.data = base() + place.offset;
  const std::size_t chunk = std::max<std::size_t>(kChunkBytes / matrix.panel_bytes(), 1);
  std::vector<Status> done((matrix.panels() + chunk - 1) / chunk);
  pool.parallel_for(done.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      const std::size_t first = c * chunk, last = std::min(first + chunk, matrix.panels());
      const std::size_t from = first * kPanelRows, to = std::min(last * kPanelRows, matrix.rows);
      done[c] =
          pack_rows(*place.tensor, matrix, from, to, base() + place.offset + first * matrix.panel_bytes());
    }
  });
  for (Status& status : done) DOPPLER_TRY(status);
  return {};
}

PanelMatrix WeightMemory::panels(const TensorView& tensor) const {
  const auto found = places_.find(tensor.place());
  return found == places_.end() ? PanelMatrix{} : found->second.matrix;
}

TensorView WeightMemory::copy(const TensorView& tensor) const {
  TensorView view = tensor;
  const auto found = places_.find(tensor.place());
  if (found == places_.end() || found->second.matrix.format != nullptr) return view;
  view.data = {reinterpret_cast<const std::byte*>(memory_.data()) + found->second.offset,
               static_cast<std::size_t>(tensor.bytes())};
  view.source = nullptr;
  return view;
}

}  // namespace doppler::cpu
