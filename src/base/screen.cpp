#include "base/screen.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "system/terminal.h"
#include "system/threads.h"

namespace doppler {
namespace {

struct Screen {
  system::Mutex mutex;
  ScreenOptions options;
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

}  // namespace

void configure_screen(const ScreenOptions& options) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  to.options = options;
}

void say(Said kind, std::string_view text) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  if (kind == Said::kNote && !to.options.notes) return;
  if (kind == Said::kError && !to.options.errors) return;
  std::string line;
  if (to.bar) line = kWipeLine;
  if (to.line_open && system::same_stream(system::Stream::kOutput, system::Stream::kError)) line += '\n';
  to.bar = to.line_open = false;
  write_error_stream(line.append(text) += '\n');  // in one piece, which other programs' lines cannot divide
}

void say_with(Said kind, fmt::string_view format, fmt::format_args args) {
  say(kind, fmt::vformat(format, args));
}

void draw_bar(std::string_view text) {
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  if (!to.options.notes || (text.empty() && !to.bar)) return;
  write_error_stream(std::string(kWipeLine).append(text));
  to.bar = !text.empty();
}

void screen_after_output(std::string_view text) {
  if (text.empty()) return;
  Screen& to = screen();
  const system::Lock lock(to.mutex);
  to.line_open = !text.ends_with('\n');
}

}  // namespace doppler
