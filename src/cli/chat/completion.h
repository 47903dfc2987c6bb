// What Tab completes in a chat: commands, what they take, and paths.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/chat/line_editor.h"

namespace doppler::cli {

// What may follow the end of a line that begins with a slash; nothing for any other line.
Completion complete_line(std::string_view typed);

// The paths that begin as `typed` does, with a slash behind folders; those that begin with a dot only where a
// dot is typed.
std::vector<std::string> paths_from(std::string_view typed);

// Whole characters that all words begin with.
std::string common_beginning(std::span<const std::string> words);
// The words in lines of at most `width` columns, of paths the last part; the first hundred.
std::string listed(std::span<const std::string> words, std::size_t width);

}  // namespace doppler::cli
