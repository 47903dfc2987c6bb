// Standard output and input, whose failures are errors. What is said on stderr goes through base/screen.h.
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "base/layout.h"
#include "base/screen.h"
#include "cli/command.h"
#include "system/process.h"
#include "system/terminal.h"

namespace doppler::cli {
namespace {

bool g_output_cut = false;  // whoever read standard output has closed it
bool g_object_printed = false;
ColourChoice g_colours = ColourChoice::kAuto;

// NO_COLOR: no-color.org. A terminal named dumb shows escape sequences as they are.
bool wants_colour(system::Stream stream) {
  if (g_colours != ColourChoice::kAuto) return g_colours == ColourChoice::kAlways;
  return system::is_terminal(stream) && system::environment_variable("NO_COLOR").value_or("").empty() &&
         system::environment_variable("TERM").value_or("") != "dumb";
}

// The terminal's width; without a terminal what COLUMNS says; else 0.
std::size_t known_columns(system::Stream stream) {
  constexpr unsigned kFewest = 20,
                     kMost = 10000;  // what can be laid out, and what is no slip of the keyboard
  unsigned columns = system::terminal_columns(stream).value_or(0);
  const std::string named = system::environment_variable("COLUMNS").value_or("");
  if (columns == 0) std::from_chars(named.data(), named.data() + named.size(), columns);
  return columns == 0 ? 0 : std::clamp(columns, kFewest, kMost);
}

}  // namespace

void choose_colours(ColourChoice choice) {
  g_colours = choice;
  style_screen(wants_colour(system::Stream::kError),
               system::terminal_columns(system::Stream::kError).value_or(0));
}

bool colours() {
  return wants_colour(system::Stream::kOutput);
}

std::size_t table_columns() {
  constexpr std::size_t kUsual = 80;
  const std::size_t known = known_columns(system::Stream::kOutput);
  return known > 0 ? known : kUsual;
}

std::string fit_lines(std::string_view text) {
  const std::size_t known = known_columns(system::Stream::kOutput);
  return known > 0 ? wrap(text, known, 4) : std::string(text);
}

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    screen_after_output(text);
    return {};
  }
  g_output_cut = errno == EPIPE;
  return fail(ErrorCode::kIo, "Standard output cannot be written: {}.", std::strerror(errno));
}

Status print_json(const Json& object) {
  g_object_printed = true;
  return print(dump_json(object) + "\n");
}

bool output_is_cut() {
  return g_output_cut;
}

bool object_is_printed() {
  return g_object_printed;
}

Result<std::string> read_input() {
  // Far beyond any context; the bound is for devices, which never end.
  constexpr std::size_t kMostBytes = 64 << 20;
  std::string text;
  std::array<char, 16384> piece;
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), stdin)) {
    text.append(piece.data(), got);
    if (text.size() > kMostBytes) {
      return fail(ErrorCode::kLimit,
                  "Standard input holds more than {} bytes, which is no prompt. Give a shorter text.",
                  kMostBytes);
    }
  }
  if (std::ferror(stdin) != 0)
    return fail(ErrorCode::kIo, "Standard input cannot be read: {}.", std::strerror(errno));
  return text;
}

}  // namespace doppler::cli
