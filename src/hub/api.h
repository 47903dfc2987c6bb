// What the Hub's API says of a model's repository, read from hostile bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler::hub {

struct RepoFile {
  std::string path;                   // is_inner_path()
  std::optional<std::uint64_t> size;  // bytes
  // 64 hexadecimal digits: the SHA-256 of the bytes (large files, in Git LFS). 40: the SHA-1 that git names
  // the file by. Empty: not said. The cache names blobs by it.
  std::string hash;
};

struct RepoInfo {
  std::string repo;    // as the Hub writes it: case and all
  std::string commit;  // 40 hexadecimal digits
  std::vector<RepoFile> files;
  std::uint64_t unsafe_names = 0;  // files whose names would leave the folder, left out of `files`
  bool gated = false;
  std::string model_type;  // config.json's, or a GGUF file's architecture; may be empty
};

// The most that an answer may hold: ten thousand files take 3 MB.
inline constexpr std::uint64_t kMaxInfoBytes = 8 << 20;

// Parses the answer of /api/models/REPO/revision/REVISION?blobs=true. Errors: kCorrupt, naming what is wrong;
// `what` names the answer in messages.
Result<RepoInfo> parse_repo_info(std::string_view json, std::string_view what);

bool is_hash(std::string_view text);  // 40 or 64 hexadecimal digits in lower case

}  // namespace doppler::hub
