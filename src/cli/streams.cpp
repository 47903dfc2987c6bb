// Standard output and input, whose failures are errors. What is said on stderr goes through base/screen.h.
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/json.h"
#include "base/screen.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

bool g_output_cut = false;  // whoever read standard output has closed it
bool g_object_printed = false;

}  // namespace

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
  return print(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
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
