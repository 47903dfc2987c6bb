#include "cli/chat/kept_files.h"

#include <cstdio>
#include <utility>

#include "base/files.h"
#include "base/json.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

std::unexpected<Error> not_kept(const std::filesystem::path& file, const std::error_code& error) {
  return fail(ErrorCode::kIo, "The file {} cannot be written: {}.", printable_path(file), error.message());
}

Status write_and_close(const std::filesystem::path& file, bool append, std::string_view text) {
  if (const auto error = system::create_folders(file.parent_path())) return not_kept(file, error);
  const auto opened = system::open_private_output(file, append);
  if (!opened) return not_kept(file, opened.error());
  const bool written = std::fwrite(text.data(), 1, text.size(), *opened) == text.size();
  if (std::fclose(*opened) != 0 || !written) return not_kept(file, {errno, std::generic_category()});
  return {};
}

std::filesystem::path kept_file(const char* name) {
  const std::filesystem::path state = system::state_folder();
  return state.empty() ? state : state / "doppler" / name;
}

std::string line_of(const std::string& message) {
  return dump_json(Json(message)) + "\n";
}

// Twice the messages that are kept, each as long as one may be, with every byte escaped.
constexpr std::uint64_t kMostHistoryFileBytes = ChatHistory::kMostMessages * 2 * ChatHistory::kMostBytes * 6;

}  // namespace

std::filesystem::path chat_history_file() {
  return kept_file("chat_history");
}

std::filesystem::path last_conversation_file() {
  return kept_file("last_chat.json");
}

Status write_kept_file(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::path partial = file;
  partial += ".partial-" + std::to_string(system::process_id());
  DOPPLER_TRY(write_and_close(partial, false, text));
  if (const auto error = system::replace_file(partial, file)) {
    static_cast<void>(system::remove_file(partial));
    return not_kept(file, error);
  }
  return {};
}

ChatHistory::ChatHistory(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  const Result<std::string> text = read_text_file(file_, kMostHistoryFileBytes);
  if (!text) return;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const Result<Json> message = parse_json(line, "The history");
    if (message && message->is_string()) messages_.push_back(message->get<std::string>());
  }
  if (messages_.size() <= 2 * kMostMessages) return;
  messages_.erase(messages_.begin(), messages_.end() - kMostMessages);
  std::string kept;
  for (const std::string& message : messages_) kept += line_of(message);
  static_cast<void>(write_kept_file(file_, kept));  // a failure will show when the next message is added
}

Status ChatHistory::add(const std::string& message) {
  if (message.empty() || (!messages_.empty() && messages_.back() == message)) return {};
  messages_.push_back(message);
  if (file_.empty() || message.size() > kMostBytes) return {};
  Status kept = write_and_close(file_, true, line_of(message));
  if (!kept) file_.clear();
  return kept;
}

}  // namespace doppler::cli
