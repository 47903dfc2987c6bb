#include "system/loopback.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace doppler::system {
namespace {

std::error_code last_socket_error() {
  return {errno, std::generic_category()};
}

// No error: it is ready.
std::error_code wait_ready(std::intptr_t socket, short event, Patience patience) {
  pollfd waited{static_cast<int>(socket), event, 0};
  const int ready = ::poll(&waited, 1, static_cast<int>(patience.count()));
  if (ready > 0) return {};
  if (ready < 0) return last_socket_error();
  return std::make_error_code(std::errc::timed_out);
}

// Neither inherited nor waiting.
void settle_socket(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
}

constexpr int kWaiting =
    64;  // connections of a browser that wait at once: it opens six at a time to a server

}  // namespace

Expected<std::size_t> Connection::receive(std::span<char> into, Patience patience) const {
  while (true) {
    const ssize_t got = ::recv(static_cast<int>(socket_.get()), into.data(), into.size(), 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      return std::unexpected(last_socket_error());
    if (const std::error_code error = wait_ready(socket_.get(), POLLIN, patience);
        error && error != std::errc::interrupted)
      return std::unexpected(error);
  }
}

std::error_code Connection::send(std::span<const std::byte> bytes, Patience patience) const {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(static_cast<int>(socket_.get()), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return last_socket_error();
    if (const std::error_code error = wait_ready(socket_.get(), POLLOUT, patience);
        error && error != std::errc::interrupted)
      return error;
  }
  return {};
}

Expected<LoopbackListener> LoopbackListener::open(std::uint16_t port) {
  FileHandle socket(::socket(AF_INET, SOCK_STREAM, 0));
  if (socket.get() < 0) return std::unexpected(last_socket_error());
  const int number = static_cast<int>(socket.get());
  settle_socket(number);
  // The port of a run that has just ended may be had again at once.
  const int yes = 1;
  ::setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(number, generic, size) != 0 || ::listen(number, kWaiting) != 0 ||
      ::getsockname(number, generic, &size) != 0)
    return std::unexpected(last_socket_error());
  return LoopbackListener(std::move(socket), ntohs(address.sin_port));
}

Expected<std::optional<Connection>> LoopbackListener::accept(Patience patience) const {
  const std::error_code error = wait_ready(socket_.get(), POLLIN, patience);
  if (error == std::errc::timed_out || error == std::errc::interrupted) return std::nullopt;
  if (error) return std::unexpected(error);
  FileHandle socket(::accept(static_cast<int>(socket_.get()), nullptr, nullptr));
  if (socket.get() < 0) return std::nullopt;  // it has gone again
  settle_socket(static_cast<int>(socket.get()));
  return Connection(std::move(socket));
}

}  // namespace doppler::system
