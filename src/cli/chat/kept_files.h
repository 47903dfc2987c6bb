// What a chat keeps between runs, in the user's folder for state, closed to other users: the history of what
// was typed, and the last conversation.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler::cli {

// Empty where the user has no such folder.
std::filesystem::path chat_history_file();
std::filesystem::path last_conversation_file();

// Replaces the file in one step. Its folder is made if it is missing.
Status write_kept_file(const std::filesystem::path& file, std::string_view text);

// What was typed, oldest first. In the file each message is a line, a JSON text, so that it may have several
// lines itself.
class ChatHistory {
 public:
  // Reads the file, as far as it is one; an empty path keeps nothing beyond this run.
  explicit ChatHistory(std::filesystem::path file);

  std::span<const std::string> messages() const { return messages_; }
  // Appends it, also to the file: what was typed is kept however the program ends. A message like the last
  // one is kept once; one beyond kMostBytes only for this run. Errors: kIo, the first time only.
  Status add(const std::string& message);

  static constexpr std::size_t kMostMessages = 1000;  // in the file after it is read; twice as many before
  static constexpr std::size_t kMostBytes = 8192;     // what a person types; longer ones are pasted

 private:
  std::filesystem::path file_;
  std::vector<std::string> messages_;
};

}  // namespace doppler::cli
