#include "system/process.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

namespace doppler::system {

std::uint64_t process_id() {
  return static_cast<std::uint64_t>(::getpid());
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

// Source: the XDG Base Directory Specification; relative paths are to be ignored.
std::filesystem::path temporary_folder() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? std::filesystem::path(".") : folder;
}

std::filesystem::path cache_folder() {
  const std::filesystem::path named = environment_variable("XDG_CACHE_HOME").value_or("");
  if (named.is_absolute()) return named;
  const std::filesystem::path home = home_folder();
  return home.is_absolute() ? home / ".cache" : std::filesystem::path();
}

namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// The state that the signal handler may touch.
std::atomic<void (*)()> g_handler{nullptr};

void on_signal(int) {
  if (void (*const handler)() = g_handler.load()) handler();
}

}  // namespace

EndingHandler::EndingHandler(void (*handler)()) {
  g_handler = handler;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second is the system's
  for (const int signal : kEndingSignals) {
    struct sigaction old{};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}

EndingHandler::~EndingHandler() {
  for (const int signal : kEndingSignals) {
    struct sigaction now{};
    ::sigaction(signal, nullptr, &now);
    if (now.sa_handler == on_signal) std::signal(signal, SIG_DFL);
  }
  g_handler = nullptr;
}

}  // namespace doppler::system
