#include "system/process.h"

#include <atomic>

#include "system/windows/handles.h"

namespace doppler::system {
namespace {

std::optional<std::filesystem::path> wide_variable(const char* name) {
  const std::wstring wide = std::filesystem::path(name).wstring();
  std::wstring value(::GetEnvironmentVariableW(wide.c_str(), nullptr, 0), L'\0');
  if (value.empty()) return std::nullopt;  // an empty value has a size of 1, for its end
  value.resize(::GetEnvironmentVariableW(wide.c_str(), value.data(), static_cast<DWORD>(value.size())));
  return value;
}

}  // namespace

std::uint64_t process_id() {
  return ::GetCurrentProcessId();
}

std::optional<std::string> environment_variable(const char* name) {
  const auto value = wide_variable(name);
  if (!value) return std::nullopt;
  return value->string();
}

void set_environment_default(const char* name, const char* value) {
  if (wide_variable(name)) return;
  ::SetEnvironmentVariableW(std::filesystem::path(name).c_str(), std::filesystem::path(value).c_str());
}

std::filesystem::path home_folder() {
  return wide_variable("USERPROFILE").value_or(std::filesystem::path());
}

std::filesystem::path temporary_folder() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  return error ? std::filesystem::path(".") : folder;
}

std::filesystem::path cache_folder() {
  const std::filesystem::path local = wide_variable("LOCALAPPDATA").value_or(std::filesystem::path());
  return local.is_absolute() ? local : std::filesystem::path();
}

namespace {

std::atomic<void (*)()> g_handler{nullptr};

// Called on a thread of its own. FALSE leaves the rest to the system, which ends the program.
BOOL WINAPI on_control(DWORD) {
  void (*const handler)() = g_handler.exchange(nullptr);
  if (handler == nullptr) return FALSE;
  handler();
  return TRUE;
}

}  // namespace

EndingHandler::EndingHandler(void (*handler)()) {
  g_handler = handler;
  ::SetConsoleCtrlHandler(on_control, TRUE);
}

EndingHandler::~EndingHandler() {
  ::SetConsoleCtrlHandler(on_control, FALSE);
  g_handler = nullptr;
}

}  // namespace doppler::system
