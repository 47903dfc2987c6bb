// Any bytes as an RDRR manifest, and behind a NUL as the file of tensors that it names: an error, or a
// manifest whose tensors lie apart inside its shards, and a description in config.json's words.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/rdrr.h"
#include "model/family.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check_places(const doppler::RdrrManifest& manifest) {
  std::uint64_t total = 0;
  for (const doppler::RdrrShard& shard : manifest.shards) {
    require(shard.offset == total && shard.hash.size() == 64 &&
            shard.filename.find('/') == std::string::npos);
    total += shard.size;
  }
  require(total == manifest.total_size);
  std::uint64_t used = 0;
  for (const doppler::RdrrTensor& tensor : manifest.tensors) {
    std::uint64_t size = 0;
    for (const doppler::RdrrSpan& span : tensor.spans) {
      require(span.offset + span.size <= manifest.shards.at(span.shard).size);
      size += span.size;
    }
    require(size == tensor.size && doppler::rdrr_bytes(tensor.dtype, tensor.shape, tensor.layout) == size);
    used += size;
  }
  require(used <= total);
  for (const doppler::RdrrGroup& group : manifest.groups)
    for (const std::size_t tensor : group.tensors) require(tensor < manifest.tensors.size());
}

// Tensors of a few bytes are brought into rows, too.
void relay_small(const doppler::RdrrManifest& manifest) {
  constexpr std::uint64_t kMost = 1 << 16;
  for (const doppler::RdrrTensor& tensor : manifest.tensors) {
    if (tensor.size > kMost) continue;
    const std::vector<std::byte> bytes(tensor.size, std::byte{0x3c});
    doppler::TensorStore store;
    const auto note = doppler::add_rdrr_tensor(tensor, bytes, store);
    require(note ? store.find(tensor.name) != nullptr : !note.error().message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(text.find('\0'), size);
  const std::string_view tensors = text.substr(std::min(end + 1, size));
  (void)doppler::rdrr_tensors_file(text.substr(0, end));
  const auto manifest = doppler::parse_rdrr_manifest(text.substr(0, end), tensors);
  if (!manifest) {
    require(!manifest.error().message.empty() && manifest.error().message.size() < 4000);
    return 0;
  }
  check_places(*manifest);
  relay_small(*manifest);
  const doppler::Json config = doppler::rdrr_config(*manifest);
  const doppler::Json generation = doppler::rdrr_generation_config(*manifest);
  require(config.is_object() && generation.is_object());
  const auto spec = doppler::read_spec(config, &generation, "llama");
  require(spec || !spec.error().message.empty());
  return 0;
}
