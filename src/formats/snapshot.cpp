#include "formats/snapshot.h"

#include "base/files.h"
#include "system/files.h"

namespace doppler {

namespace fs = std::filesystem;

std::optional<fs::path> cached_snapshot(const fs::path& folder, const std::string& ref) {
  if (!system::is_folder(folder / "snapshots")) return std::nullopt;
  constexpr std::uint64_t kMaxRef = 256;  // a commit has 40 bytes
  if (auto commit = read_text_file(folder / "refs" / ref, kMaxRef)) {
    while (commit->ends_with('\n')) commit->pop_back();
    const bool plain = commit->find_first_not_of("0123456789abcdef") == std::string::npos && !commit->empty();
    if (plain && system::is_folder(folder / "snapshots" / *commit)) return folder / "snapshots" / *commit;
    return std::nullopt;
  }
  const auto snapshots = system::list_folder(folder / "snapshots");
  if (ref == "main" && snapshots && snapshots->size() == 1) return snapshots->front();
  return std::nullopt;
}

}  // namespace doppler
