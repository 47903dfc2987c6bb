// Streams to programs of this machine alone: a listener at 127.0.0.1, and what connects to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "system/files.h"
#include "system/result.h"

namespace doppler::system {

using Patience = std::chrono::milliseconds;

class Connection {
 public:
  explicit Connection(FileHandle socket) : socket_(std::move(socket)) {}

  // The next bytes; 0 at the end of what is sent. Errors: std::errc::timed_out where nothing comes.
  Expected<std::size_t> receive(std::span<char> into, Patience patience) const;
  // All of them. No error: std::error_code(); std::errc::timed_out where nobody takes them.
  std::error_code send(std::span<const std::byte> bytes, Patience patience) const;
  std::error_code send(std::string_view text, Patience patience) const {
    return send(std::as_bytes(std::span(text.data(), text.size())), patience);
  }

 private:
  FileHandle socket_;
};

class LoopbackListener {
 public:
  // Port 0: any that is free. Errors: the system's, such as std::errc::address_in_use;
  // function_not_supported.
  static Expected<LoopbackListener> open(std::uint16_t port);
  std::uint16_t port() const { return port_; }
  // The next that connects; nothing where none does.
  Expected<std::optional<Connection>> accept(Patience patience) const;

 private:
  LoopbackListener(FileHandle socket, std::uint16_t port) : socket_(std::move(socket)), port_(port) {}
  FileHandle socket_;
  std::uint16_t port_;
};

}  // namespace doppler::system
