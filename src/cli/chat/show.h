// What /show and /set print, and the chat's own switches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/chat/chat.h"

namespace doppler::cli {

// "model", "template", "settings", "system" or "messages"; empty: all in short. Errors: kUsage with the
// nearest.
Result<std::string> show_part(const Chat& chat, std::string_view part);

// For completion: the parts, and what can be set, or of a switch its values.
std::vector<std::string> names_to_show(std::string_view typed);
std::vector<std::string> names_to_set(std::string_view typed);

// A line for each of the switches: stats, wrap, on-full.
std::string switches_table(const Chat& chat);
// Sets a switch or a parameter; without a value says what it is. Errors: kUsage with the nearest.
Result<std::string> set_by_name(Chat& chat, std::string_view name, std::string_view value);

}  // namespace doppler::cli
