#include "cli/chat/external_editor.h"

#include "base/files.h"
#include "base/text.h"
#include "cli/chat/kept_files.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

constexpr std::uint64_t kMostEditedBytes = 16 << 20;  // as much as a paste may have

// The file that an editor is given, removed with this.
class EditedFile {
 public:
  explicit EditedFile(std::filesystem::path path) : path_(std::move(path)) {}
  EditedFile(const EditedFile&) = delete;
  EditedFile& operator=(const EditedFile&) = delete;
  ~EditedFile() { static_cast<void>(system::remove_file(path_)); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

Result<std::string> edited(const std::string& text) {
  std::string editor = system::environment_variable("VISUAL").value_or("");
  if (editor.empty()) editor = system::environment_variable("EDITOR").value_or("");
  if (editor.empty())
    return fail(ErrorCode::kNotFound, "No editor is named. Set VISUAL or EDITOR, such as EDITOR=nano.");
  const std::filesystem::path kept = last_conversation_file();
  if (kept.empty())
    return fail(ErrorCode::kNotFound, "There is no home folder to put the message into. Set HOME.");
  const EditedFile file(kept.parent_path() / ("message-" + std::to_string(system::process_id()) + ".md"));
  DOPPLER_TRY(write_kept_file(file.path(), text.empty() ? text : text + "\n"));
  if (!system::edit_file(editor, file.path()))
    return fail(ErrorCode::kIo, "The editor {} reports a failure, so the message stays as it was.",
                printable(editor));
  DOPPLER_ASSIGN(std::string after, read_text_file(file.path(), kMostEditedBytes));
  while (after.ends_with('\n')) after.pop_back();
  return utf8_lossy(after);
}

}  // namespace doppler::cli
