#include "system/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

extern char** environ;  // POSIX: declared by no header

namespace doppler::system {
namespace {

// The child's ends of the pipes, by its descriptors; they are above those, so that placing one hides none.
constexpr int kReads = 3, kWrites = 4, kAbove = 10;

struct Pipe {
  FileHandle read{FileHandle::kNone}, write{FileHandle::kNone};
};

Expected<Pipe> open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return std::unexpected(std::error_code(errno, std::generic_category()));
  const FileHandle low_read(ends[0]), low_write(ends[1]);
  Pipe pipe;
  pipe.read = FileHandle(::fcntl(ends[0], F_DUPFD_CLOEXEC, kAbove));
  pipe.write = FileHandle(::fcntl(ends[1], F_DUPFD_CLOEXEC, kAbove));
  if (pipe.read.get() < 0 || pipe.write.get() < 0)
    return std::unexpected(std::error_code(errno, std::generic_category()));
  return pipe;
}

int spawn(const std::vector<std::string>& words, const Pipe& to, const Pipe& from, pid_t& child) {
  std::vector<std::string> copy = words;
  std::vector<char*> arguments;
  for (std::string& word : copy) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, static_cast<int>(to.read.get()), kReads);
  ::posix_spawn_file_actions_adddup2(&actions, static_cast<int>(from.write.get()), kWrites);
  sigset_t usual;  // prepare_streams() ignores it, which is not the other program's wish
  ::sigemptyset(&usual);
  ::sigaddset(&usual, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  // A group of its own, so that Ctrl-C is this program's to handle, and all of it can be ended.
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

Expected<Child> Child::start(const std::vector<std::string>& words) {
  auto to = open_pipe();
  if (!to) return std::unexpected(to.error());
  auto from = open_pipe();
  if (!from) return std::unexpected(from.error());
  pid_t child = 0;
  const int error = spawn(words, *to, *from, child);
  if (error != 0) return std::unexpected(std::error_code(error, std::generic_category()));
  return Child(child, std::move(to->write), std::move(from->read));
}

Child::Child(Child&& other) noexcept
    : process_(std::exchange(other.process_, 0)),
      to_(std::move(other.to_)),
      from_(std::move(other.from_)),
      status_(other.status_) {}

std::optional<int> Child::ended() {
  int status = 0;
  if (!status_ && process_ != 0 && ::waitpid(static_cast<pid_t>(process_), &status, WNOHANG) > 0)
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return status_;
}

Child::~Child() {
  if (process_ == 0) return;
  const auto group = static_cast<pid_t>(process_);
  if (!ended()) {
    ::kill(group, SIGTERM);
    constexpr int kLooks = 250, kPauseMs = 20;  // five seconds, in which a browser writes down what it keeps
    for (int look = 0; look < kLooks && !ended(); ++look) ::poll(nullptr, 0, kPauseMs);
  }
  ::kill(-group, SIGKILL);  // what is left of it and of what it has started
  if (!status_) ::waitpid(group, nullptr, 0);
}

std::optional<Path> find_program(const std::string& name) {
  const auto runs = [](const Path& path) { return is_file(path) && ::access(path.c_str(), X_OK) == 0; };
  if (name.find('/') != std::string::npos) return runs(name) ? std::optional<Path>(name) : std::nullopt;
  const char* const variable = std::getenv("PATH");
  std::string_view folders = variable == nullptr ? "" : variable;
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    const Path path = Path(folders.substr(0, end)) / name;
    if (runs(path)) return path;
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return std::nullopt;
}

bool is_administrator() {
  return ::geteuid() == 0;
}

}  // namespace doppler::system
