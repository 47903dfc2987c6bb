#include "cli/chat/completion.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/files.h"
#include "base/layout.h"
#include "base/text.h"
#include "cli/chat/commands.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

std::vector<std::string> beginning_with(std::string_view typed, std::vector<std::string> words) {
  std::erase_if(words, [&](const std::string& word) { return !word.starts_with(typed); });
  std::ranges::sort(words);
  return words;
}

// With a space behind those that something may follow.
std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const ChatCommand& each : all_chat_commands())
    names.push_back(fmt::format("{}{}", each.name, each.arguments.empty() ? "" : " "));
  return names;
}

}  // namespace

Completion complete_line(std::string_view typed) {
  if (!typed.starts_with('/') || typed.find('\n') != std::string_view::npos) return {};
  const std::size_t space = typed.find(' ');
  if (space == std::string_view::npos) return {0, beginning_with(typed, command_names())};
  const Result<const ChatCommand*> command = find_chat_command(typed.substr(0, space));
  const std::size_t begin = typed.find_first_not_of(' ', space);
  if (!command || (*command)->words == nullptr) return {};
  const std::size_t at = begin == std::string_view::npos ? typed.size() : begin;
  return {at, beginning_with(typed.substr(at), (*command)->words(typed.substr(at)))};
}

std::vector<std::string> paths_from(std::string_view typed) {
  const std::size_t slash = typed.rfind('/');
  const std::string_view folder = slash == std::string_view::npos ? "" : typed.substr(0, slash + 1);
  const std::string_view name = typed.substr(folder.size());
  std::vector<std::string> paths;
  for (const std::filesystem::path& entry : sorted_entries(folder.empty() ? "." : typed_path(folder))) {
    const std::string entry_name = entry.filename().string();
    if (entry_name.starts_with('.') && !name.starts_with('.')) continue;
    if (!entry_name.starts_with(name)) continue;
    paths.push_back(fmt::format("{}{}{}", folder, entry_name, system::is_folder(entry) ? "/" : ""));
  }
  return paths;
}

std::string common_beginning(std::span<const std::string> words) {
  if (words.empty()) return {};
  std::string_view common = words[0];
  for (const std::string& word : words) {
    const auto [end, other] = std::ranges::mismatch(common, word);
    common = common.substr(0, static_cast<std::size_t>(end - common.begin()));
  }
  common.remove_suffix(incomplete_utf8_suffix(common));
  return std::string(common);
}

std::string listed(std::span<const std::string> words, std::size_t width) {
  constexpr std::size_t kMost = 100;  // lines enough for a screen
  std::string text;
  for (const std::string& word : words.first(std::min(words.size(), kMost))) {
    const std::size_t slash = word.find_last_of('/', word.size() < 2 ? 0 : word.size() - 2);
    const bool path = slash != std::string::npos && slash > 0;
    text += (text.empty() ? "" : "  ") + printable(trimmed(path ? word.substr(slash + 1) : word));
  }
  if (words.size() > kMost) text += fmt::format("  … and {} more", words.size() - kMost);
  return wrap(text, width);
}

}  // namespace doppler::cli
