#include "system/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

extern char** environ;  // POSIX: declared by no header

namespace doppler::system {

std::uint64_t process_id() {
  return static_cast<std::uint64_t>(::getpid());
}

Expected<int> run_program(const std::vector<std::string>& words, bool silent) {
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
  if (silent) ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  sigset_t usual;  // prepare_streams() ignores it, which is not the other program's wish
  ::sigemptyset(&usual);
  ::sigaddset(&usual, SIGPIPE);
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return std::unexpected(std::error_code(error, std::generic_category()));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return std::unexpected(std::error_code(errno, std::generic_category()));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return value;
}

void set_environment_default(const char* name, const char* value) {
  ::setenv(name, value, /*overwrite=*/0);
}

std::filesystem::path home_folder() {
  return environment_variable("HOME").value_or("");
}

namespace {

// Source: the XDG Base Directory Specification; relative paths are to be ignored.
std::filesystem::path xdg_folder(const char* variable, const char* below_home) {
  const std::filesystem::path named = environment_variable(variable).value_or("");
  if (named.is_absolute()) return named;
  const std::filesystem::path home = home_folder();
  return home.is_absolute() ? home / below_home : std::filesystem::path();
}

}  // namespace

std::filesystem::path temporary_folder() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? std::filesystem::path(".") : folder;
}

std::filesystem::path cache_folder() {
  return xdg_folder("XDG_CACHE_HOME", ".cache");
}

std::filesystem::path state_folder() {
  return xdg_folder("XDG_STATE_HOME", ".local/state");
}

bool edit_file(const std::string& editor, const std::filesystem::path& file) {
  std::string quoted = "'";
  for (const char c : file.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return std::system((editor + " " + quoted + "'").c_str()) == 0;  // Ctrl-C meanwhile is the editor's
}

namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// The state that the signal handler may touch.
std::atomic<void (*)()> g_handler{nullptr};
std::atomic<int> g_received{0};

void on_signal(int number) {
  g_received = number;
  if (void (*const handler)() = g_handler.load()) handler();
}

}  // namespace

EndingHandler::EndingHandler(void (*handler)()) {
  g_handler = handler;
  g_received = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second is the system's
  for (const int signal : kEndingSignals) {
    struct sigaction old{};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

int EndingHandler::received() {
  return g_received;
}

EndingHandler::~EndingHandler() {
  for (const int signal : kEndingSignals) {
    struct sigaction now{};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler == on_signal) std::signal(signal, SIG_DFL);
  }
  g_handler = nullptr;
}

void end_by_signal(int number) {
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace doppler::system
