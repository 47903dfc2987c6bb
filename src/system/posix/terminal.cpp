#include "system/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace doppler::system {
namespace {

// Descriptors 0, 1 and 2 (POSIX, unistd.h).
int descriptor(Stream stream) {
  return static_cast<int>(stream);
}

}  // namespace

bool is_terminal(Stream stream) {
  return ::isatty(descriptor(stream)) != 0;
}

bool is_pipe_or_file(Stream stream) {
  struct stat status{};
  if (::fstat(descriptor(stream), &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode);
}

std::optional<unsigned> terminal_columns(Stream stream) {
  winsize size{};
  if (!is_terminal(stream) || ::ioctl(descriptor(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return std::nullopt;
  return size.ws_col;
}

void stop_for_shell() {
  ::kill(0, SIGTSTP);
}

bool same_stream(Stream a, Stream b) {
  struct stat one{}, other{};
  return ::fstat(descriptor(a), &one) == 0 && ::fstat(descriptor(b), &other) == 0 &&
         one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

void prepare_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  // In this order each open takes the lowest descriptor that is free: the one that was found closed.
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(standard, F_GETFD) < 0 && errno == EBADF) ::open("/dev/null", O_RDWR);
  }
}

}  // namespace doppler::system
