#include "base/screen.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

#include "base/layout.h"
#include "system/terminal.h"
#include "system/threads.h"

namespace doppler {
namespace {

struct Screen {
  system::Mutex mutex;
  ScreenOptions options;
  bool colour = false;
  std::size_t columns = 0;
  bool bar = false;        // the last line of stderr is a bar
  bool line_open = false;  // the last line of stdout has no end yet
};

// Never destroyed: threads may speak until the very end.
Screen& screen() {
  static Screen* const screen = new Screen;
  return *screen;
}

constexpr std::string_view kWipeLine = "\r\033[K";

// A failure has nobody to be told to.
void write_error_stream(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// An error or warning begins with a word and a colon, which are painted, or is a line of the log.
std::string styled(Said kind, std::string_view text, bool colour) {
  if (kind == Said::kAsked || !colour) return std::string(text);
  if (kind == Said::kNote) return painted(text, Paint::kFaint, colour);
  const Paint paint = kind == Said::kError ? Paint::kBad : Paint::kWarning;
  const std::size_t end = text.find_first_of(": ");
  if (end == std::string_view::npos || text[end] != ':') return painted(text, paint, colour);
  return painted(text.substr(0, end + 1), paint, colour).append(text.substr(end + 1));
}

}  // namespace

std::string painted(std::string_view text, Paint paint, bool colour) {
  constexpr std::array<int, 5> kCodes = {32, 31, 33, 1, 2};  // of ECMA-48, SGR
  if (!colour || text.empty()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", kCodes[static_cast<std::size_t>(paint)], text);
}

void style_screen(bool colour, std::size_t columns) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  to.colour = colour;
  to.columns = columns;
}

void configure_screen(const ScreenOptions& options) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  to.options = options;
}

void say(Said kind, std::string_view text) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  if ((kind == Said::kNote || kind == Said::kWarning) && !to.options.notes) return;
  if (kind == Said::kError && !to.options.errors) return;
  std::string line;
  if (to.bar) line = kWipeLine;
  if (to.line_open && system::same_stream(system::Stream::kOutput, system::Stream::kError)) line += '\n';
  to.bar = to.line_open = false;
  const std::string words = styled(kind, text, to.colour);
  line += to.columns > 0 ? wrap(words, to.columns, 2) : words;
  write_error_stream(line += '\n');  // in one piece, which other programs' lines cannot divide
}

void say_with(Said kind, fmt::string_view format, fmt::format_args args) {
  say(kind, fmt::vformat(format, args));
}

void draw_bar(std::string_view text) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  if (!to.options.notes || (text.empty() && !to.bar)) return;
  write_error_stream(std::string(kWipeLine) +
                     (to.columns > 1 ? cut(text, to.columns - 1) : std::string(text)));
  to.bar = !text.empty();
}

void screen_after_output(std::string_view text) {
  if (text.empty()) return;
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  to.line_open = !text.ends_with('\n');
}

}  // namespace doppler
