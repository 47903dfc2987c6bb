#include "system/process.h"

#include <stdlib.h>

#include <atomic>
#include <csignal>

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

Expected<int> run_program(const std::vector<std::string>& words, bool silent) {
  std::wstring line;  // quoted as CommandLineToArgvW reads it; the words hold no quotes
  for (const std::string& word : words) line += L"\"" + std::filesystem::path(word).wstring() + L"\" ";
  SECURITY_ATTRIBUTES inherited{sizeof(SECURITY_ATTRIBUTES), nullptr, TRUE};
  const HANDLE null = ::CreateFileW(L"NUL", GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                    &inherited, OPEN_EXISTING, 0, nullptr);
  STARTUPINFOW start{};
  start.cb = sizeof(start);
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = start.hStdOutput = null;
  start.hStdError = silent ? null : ::GetStdHandle(STD_ERROR_HANDLE);
  PROCESS_INFORMATION process{};
  const BOOL started =
      ::CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &start, &process);
  const DWORD error = ::GetLastError();
  ::CloseHandle(null);
  if (started == 0) return std::unexpected(std::error_code(static_cast<int>(error), std::system_category()));
  ::WaitForSingleObject(process.hProcess, INFINITE);
  DWORD status = 0;
  ::GetExitCodeProcess(process.hProcess, &status);
  ::CloseHandle(process.hThread);
  ::CloseHandle(process.hProcess);
  return static_cast<int>(status);
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

std::filesystem::path state_folder() {
  return cache_folder();  // local data that does not follow the user; there is one place for all of them
}

bool edit_file(const std::string& editor, const std::filesystem::path& file) {
  // cmd.exe takes the outermost quotes away.
  return ::_wsystem(
             (L"\"" + std::filesystem::path(editor).wstring() + L" \"" + file.wstring() + L"\"\"").c_str()) ==
         0;
}

namespace {

std::atomic<void (*)()> g_handler{nullptr};
std::atomic<int> g_received{0};

// Called on a thread of its own. FALSE leaves the rest to the system, which ends the program.
BOOL WINAPI on_control(DWORD event) {
  void (*const handler)() = g_handler.exchange(nullptr);
  if (handler == nullptr) return FALSE;
  g_received = event == CTRL_C_EVENT ? SIGINT : SIGTERM;
  handler();
  return TRUE;
}

}  // namespace

EndingHandler::EndingHandler(void (*handler)()) {
  g_handler = handler;
  g_received = 0;
  ::SetConsoleCtrlHandler(on_control, TRUE);
}

int EndingHandler::received() {
  return g_received;
}

EndingHandler::~EndingHandler() {
  ::SetConsoleCtrlHandler(on_control, FALSE);
  g_handler = nullptr;
}

void end_by_signal(int) {}  // programs end with a status only

}  // namespace doppler::system
