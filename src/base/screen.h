// The words beside the answer: sentences for the person at the terminal, and a bar that is drawn over. This
// is the only writer of stderr (tests/check_streams.py). It never throws and never fails: what a stderr that
// is closed, full or cut does not take is lost, and the command goes on. From any thread.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace doppler {

enum class Said : std::uint8_t {
  kError,    // why a command failed
  kWarning,  // what is slower or other than asked
  kNote,     // what a command tells by itself: what it chose, figures
  kAsked,    // what the user asked for by name: probes, and log and trace lines that have passed their own
             // filter
};

// What may be said: warnings count as notes.
struct ScreenOptions {
  bool notes = true, errors = true;
};
void configure_screen(const ScreenOptions& options);
// Colours on stderr, and the width at which its lines are wrapped; 0: they are left whole.
void style_screen(bool colour, std::size_t columns);

// The same colour for the same meaning everywhere.
enum class Paint : std::uint8_t {
  kGood,     // green: agrees, healthy
  kBad,      // red: an error, a fault, what differs
  kWarning,  // yellow: works, but not as well as it could; not looked at
  kStrong,   // bold: the line to read first
  kFaint,    // dim: beside the matter
};
std::string painted(std::string_view text, Paint paint, bool colour);

// One line or several, without the newline at the end. It begins on a line of its own even if the answer,
// which goes to the same terminal or file, stands in the middle of one.
void say(Said kind, std::string_view text);
// The formatting of say() with its arguments' types erased.
void say_with(Said kind, fmt::string_view format, fmt::format_args args);
template <typename... Args>
  requires(sizeof...(Args) > 0)
void say(Said kind, fmt::format_string<Args...> format, Args&&... args) {
  say_with(kind, format, fmt::make_format_args(args...));
}

// Draws over the last line, until something else is said; an empty text takes the bar away.
void draw_bar(std::string_view text);

// What was written to stdout last: whether the next word there continues a line.
void screen_after_output(std::string_view text);

}  // namespace doppler
