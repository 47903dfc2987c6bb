// The share of processor time that Linux' control groups (cgroups) leave a process.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace doppler::system {

// In processors: 1.5 is the time of one and a half. `groups` is where the groups are mounted, `membership`
// the text of /proc/self/cgroup. Each group's limit holds for the groups inside it, so the least counts.
// Nothing where no group has a limit.
std::optional<double> processor_quota(const std::filesystem::path& groups, std::string_view membership);

}  // namespace doppler::system
