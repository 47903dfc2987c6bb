#include "formats/file_bytes.h"

#include <algorithm>

#include "base/text.h"
#include "system/files.h"

namespace doppler {
namespace {

// Holds the head of most files without a tokenizer; those with one are read twice or three times.
constexpr std::uint64_t kFirstStart = std::uint64_t{1} << 20;
// What a head can hold at most, for addresses of 32 bits: the largest published ones have 20 MB.
constexpr std::uint64_t kMostStart = std::uint64_t{1} << 30;

}  // namespace

Opening usual_opening() {
  return system::maps_lazily() ? Opening::kMapped : Opening::kPieces;
}

TensorView FileBytes::tensor(std::string name, DType dtype, Shape shape, std::uint64_t offset,
                             std::uint64_t bytes) const {
  TensorView view{std::move(name), dtype, std::move(shape), {}};
  view.source = source;
  if (source != nullptr)
    view.offset = offset;
  else
    view.data = start.subspan(offset, bytes);
  return view;
}

Result<std::shared_ptr<const std::vector<std::byte>>> parse_start(
    const ByteSource& source, const std::function<Status(const FileBytes& bytes, NeedsMore& more)>& parse) {
  std::uint64_t reach = std::min(kFirstStart, source.size());
  for (;;) {
    if (reach > kMostStart) {
      return fail(ErrorCode::kLimit,
                  "The file's description of its tensors takes more than {}. Check that it is a model.",
                  human_bytes(kMostStart));
    }
    auto start = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(reach));
    DOPPLER_TRY(source.read(0, *start));
    NeedsMore more;
    const Status parsed = parse(FileBytes(*start, source), more);
    if (more.bytes <= reach) {
      DOPPLER_TRY(parsed);
      return start;
    }
    reach = std::min(source.size(), std::max(more.bytes, 2 * reach));
  }
}

}  // namespace doppler
