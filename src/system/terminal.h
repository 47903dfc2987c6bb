// The three standard streams.
#pragma once

#include <cstdint>
#include <optional>

namespace doppler::system {

enum class Stream : std::uint8_t { kInput, kOutput, kError };

bool is_terminal(Stream stream);
// Whether the stream is a pipe or a file, whose bytes were put there by somebody and have an end.
bool is_pipe_or_file(Stream stream);
// The width of the terminal; nothing for a stream that is no terminal.
std::optional<unsigned> terminal_columns(Stream stream);

// Stops the program as Ctrl-Z does, until the shell goes on with it; nothing where shells cannot.
void stop_for_shell();
// Whether both lead to the same terminal, pipe or file.
bool same_stream(Stream a, Stream b);

// To be called first by a program: bytes pass the streams unchanged, terminals take UTF-8, and a closed pipe
// is a write error that can be reported instead of the program's end. A stream that the caller closed leads
// to the null device, so that no file that is opened later takes its place.
void prepare_streams();

}  // namespace doppler::system
