// Not here yet: what needs a browser beside the program says so.
#include "system/loopback.h"

namespace doppler::system {
namespace {

std::error_code no_sockets() {
  return std::make_error_code(std::errc::function_not_supported);
}

}  // namespace

Expected<std::size_t> Connection::receive(std::span<char>, Patience) const {
  return std::unexpected(no_sockets());
}
std::error_code Connection::send(std::span<const std::byte>, Patience) const {
  return no_sockets();
}
Expected<LoopbackListener> LoopbackListener::open(std::uint16_t) {
  return std::unexpected(no_sockets());
}
Expected<std::optional<Connection>> LoopbackListener::accept(Patience) const {
  return std::unexpected(no_sockets());
}

}  // namespace doppler::system
