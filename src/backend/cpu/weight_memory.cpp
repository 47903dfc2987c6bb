#include "backend/cpu/weight_memory.h"

#include "base/checked.h"
#include "base/text.h"
#include "system/memory.h"

namespace doppler::cpu {
namespace {

// Panels start on cache lines.
constexpr std::uint64_t kAlignment = 64;
// Panels that a thread lays out before it gives their file pages back: about a megabyte.
constexpr std::uint64_t kChunkBytes = 1 << 20;

}  // namespace

Status WeightMemory::plan(const TensorView& tensor) {
  const PanelFormat* format = panel_format(tensor.dtype);
  const auto bytes = byte_size(tensor.dtype, tensor.shape);
  if (format == nullptr || !bytes || *bytes != tensor.data.size()) {
    return fail(ErrorCode::kMismatch,
                "The tensor {} ({}, {}) does not hold whole rows of blocks. Download it again.", tensor.name,
                dtype_name(tensor.dtype), describe_shape(tensor.shape));
  }
  const PanelMatrix matrix{format, nullptr, static_cast<std::size_t>(tensor.rows()),
                           static_cast<std::size_t>(tensor.cols())};
  if (!places_.try_emplace(tensor.data.data(), Place{&tensor, matrix, planned_}).second) return {};
  const auto end =
      (Checked(planned_) + Checked(matrix.panels()) * Checked(matrix.panel_bytes()) + Checked(kAlignment))
          .get();
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
  auto* base = reinterpret_cast<std::uint8_t*>(memory_.data());
  for (auto& [data, place] : places_) {
    PanelMatrix& matrix = place.matrix;
    matrix.data = base + place.offset;
    const auto* file = reinterpret_cast<const std::uint8_t*>(data);
    const std::size_t chunk = std::max<std::size_t>(kChunkBytes / matrix.panel_bytes(), 1);
    pool.parallel_for((matrix.panels() + chunk - 1) / chunk, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        const std::size_t first = c * chunk, last = std::min(first + chunk, matrix.panels());
        pack_panels(matrix, file, first, last, base + place.offset + first * matrix.panel_bytes());
        if (!place.tensor->mapped) continue;
        const std::size_t from = first * kPanelRows, to = std::min(last * kPanelRows, matrix.rows);
        if (const auto read = slice_rows(*place.tensor, from, to - from, {}))
          system::release_pages(read->data);
      }
    });
  }
  return {};
}

PanelMatrix WeightMemory::panels(const TensorView& tensor) const {
  const auto found = places_.find(tensor.data.data());
  return found == places_.end() ? PanelMatrix{} : found->second.matrix;
}

}  // namespace doppler::cpu
