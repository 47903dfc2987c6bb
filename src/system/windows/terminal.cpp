#include "system/terminal.h"

#include <fcntl.h>
#include <io.h>
#include <stdio.h>

#include "system/windows/handles.h"

namespace doppler::system {
namespace {

HANDLE handle_of(Stream stream) {
  constexpr DWORD kNames[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
  return ::GetStdHandle(kNames[static_cast<int>(stream)]);
}

}  // namespace

bool is_terminal(Stream stream) {
  DWORD mode = 0;
  return ::GetConsoleMode(handle_of(stream), &mode) != 0;
}

bool is_pipe_or_file(Stream stream) {
  const DWORD type = ::GetFileType(handle_of(stream));
  return type == FILE_TYPE_PIPE || type == FILE_TYPE_DISK;
}

std::optional<unsigned> terminal_columns(Stream stream) {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (::GetConsoleScreenBufferInfo(handle_of(stream), &info) == 0) return std::nullopt;
  return static_cast<unsigned>(info.srWindow.Right - info.srWindow.Left + 1);
}

void stop_for_shell() {}

bool same_stream(Stream a, Stream b) {
  return is_terminal(a) && is_terminal(b);  // a program has one console
}

void prepare_streams() {
  // A stream that the caller closed has no descriptor.
  for (FILE* const stream : {stdin, stdout, stderr}) {
    if (::_fileno(stream) < 0) static_cast<void>(::freopen("NUL", stream == stdin ? "r" : "w", stream));
  }
  for (const int descriptor : {0, 1, 2}) ::_setmode(descriptor, _O_BINARY);
  ::SetConsoleCP(CP_UTF8);
  ::SetConsoleOutputCP(CP_UTF8);
  // Colours and the progress bar are escape sequences, which consoles obey only when asked to.
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    DWORD mode = 0;
    if (::GetConsoleMode(handle_of(stream), &mode) != 0)
      ::SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
  }
}

}  // namespace doppler::system
