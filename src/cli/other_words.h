// The words of other programs, and of older Dopplers, for people whose fingers know them.
#pragma once

#include <string_view>

namespace doppler::cli {

// The sentence that says what to write here instead of a flag that this command does not have, such as -ngl;
// or of a command. Empty for words that are in no table.
std::string_view instead_of_flag(std::string_view command, std::string_view flag);
std::string_view instead_of_command(std::string_view word);
// What more words than the command takes were probably meant to be.
std::string_view instead_of_more_words(std::string_view command);

}  // namespace doppler::cli
