// Writes an RDRR package as a stream: tensors one after the other, cut into shards of 64 MiB wherever they
// end.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/json_fwd.h"
#include "base/result.h"
#include "formats/rdrr_hash.h"
#include "quant/tensor.h"

namespace doppler {

class RdrrWriter {
 public:
  // The folder must be there. The bytes are the same whenever the calls are; `shard_bytes` is another number
  // in tests only.
  RdrrWriter(std::filesystem::path folder, RdrrHash algorithm, std::uint64_t shard_bytes);

  // The next tensor, whose bytes write() gets in pieces of any size. Groups are runs of tensors: those of one
  // follow each other. Errors: kUsage for a size that overflows or a group that was left already; kInternal
  // if the tensor before lacks bytes or got too many.
  Status begin_tensor(std::string_view name, DType dtype, const Shape& shape, std::string_view role,
                      std::string_view group);
  Status write(std::span<const std::byte> bytes);
  // A file beside the shards that is written already; its hash goes into the manifest.
  Status add_file(const std::string& filename);
  // Writes tensors.json, and manifest.json with the keys that follow from what was written besides those
  // given.
  Status finish(Json manifest);

 private:
  Status end_tensor();
  Status end_group();
  Status end_shard();

  std::filesystem::path folder_;
  RdrrHash algorithm_;
  std::uint64_t shard_bytes_;
  std::optional<OutputFile> file_;  // the open shard
  std::optional<RdrrHasher> shard_hash_, group_hash_;
  std::uint64_t in_shard_ = 0, total_ = 0;
  std::size_t shard_ = 0;       // number of the open or next shard
  std::uint64_t wanted_ = 0;    // bytes that the open tensor still gets
  std::string tensor_, group_;  // the open ones; empty: none
  JsonMember tensors_, shards_, groups_, files_;
};

}  // namespace doppler
