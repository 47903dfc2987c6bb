#include "system/posix/quota.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace doppler::system {
namespace {

// Version 2 has both numbers in one file, "200000 100000" or "max 100000"; version 1 has two, -1 for no
// limit.
std::optional<double> quota_of(const std::filesystem::path& folder, bool second_version) {
  double quota = -1, period = 0;
  if (second_version) {
    std::ifstream(folder / "cpu.max") >> quota >> period;  // "max" leaves the period at 0
  } else {
    std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
    std::ifstream(folder / "cpu.cfs_period_us") >> period;
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

// The least of a group and those around it. In a container the group's path may name folders that only the
// machine outside has; the container's own then lies at the root, which is always looked at.
void take_least(const std::filesystem::path& root, std::string_view group, bool second_version,
                std::optional<double>& least) {
  while (group.starts_with('/')) group.remove_prefix(1);
  for (std::filesystem::path path(group);; path = path.parent_path()) {
    const auto quota = quota_of(root / path, second_version);
    if (quota) least = std::min(quota, least ? least : quota);
    if (path.empty()) return;
  }
}

bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const std::size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

// Lines of the text: "0::/user.slice" in version 2, "4:cpu,cpuacct:/docker/1f3c" in version 1.
std::optional<double> processor_quota(const std::filesystem::path& groups, std::string_view membership) {
  std::optional<double> least;
  while (!membership.empty()) {
    const std::size_t end = std::min(membership.find('\n'), membership.size());
    const std::string_view line = membership.substr(0, end);
    membership.remove_prefix(std::min(end + 1, membership.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1),
                           group = line.substr(second + 1);
    if (controllers.empty()) {
      take_least(groups, group, true, least);
      take_least(groups / "unified", group, true, least);  // where both versions are mounted
    } else if (names_cpu(controllers)) {
      take_least(groups / "cpu", group, false, least);
      take_least(groups / controllers, group, false, least);
    }
  }
  return least;
}

}  // namespace doppler::system
