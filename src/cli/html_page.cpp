#include "cli/html_page.h"

#include "base/files.h"
#include "base/screen.h"

namespace doppler::cli {

Option add_html_flag(Command& command, std::string& path, const std::string& what) {
  return command.add_option("--html", path, "also write " + what + " as an HTML page that needs no network");
}

Status check_page(const std::string& path) {
  if (path.empty()) return {};
  // The file that this creates is gone again when the call ends; a signal during the work leaves nothing.
  DOPPLER_TRY(OutputFile::create(path));
  return {};
}

Status write_page(const std::string& path, const std::string& html) {
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(path));
  DOPPLER_TRY(file.write(html));
  return file.commit();
}

void tell_page(const std::string& path) {
  if (!path.empty()) say(Said::kNote, "The page is in {}: open it in any browser.", printable_path(path));
}

}  // namespace doppler::cli
