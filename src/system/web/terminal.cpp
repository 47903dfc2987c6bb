#include "system/terminal.h"

namespace doppler::system {

// What is written goes to the page's console, which is no terminal.
bool is_terminal(Stream) {
  return false;
}
bool is_pipe_or_file(Stream) {
  return false;
}
std::optional<unsigned> terminal_columns(Stream) {
  return std::nullopt;
}
void stop_for_shell() {}
bool same_stream(Stream, Stream) {
  return false;
}
void prepare_streams() {}

}  // namespace doppler::system
