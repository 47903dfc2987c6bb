// Not here yet: what needs a browser beside the program says so.
#include "system/child.h"

namespace doppler::system {

Expected<Child> Child::start(const std::vector<std::string>&) {
  return std::unexpected(std::make_error_code(std::errc::function_not_supported));
}
Child::Child(Child&& other) noexcept
    : process_(other.process_), to_(std::move(other.to_)), from_(std::move(other.from_)) {}
Child::~Child() = default;
std::optional<int> Child::ended() {
  return status_;
}

std::optional<Path> find_program(const std::string&) {
  return std::nullopt;
}
bool is_administrator() {
  return false;
}

}  // namespace doppler::system
