// A module is no process: it has no environment, starts no programs, and nobody sends it signals.
#include "system/process.h"

#include "system/web/imports.h"

namespace doppler::system {

std::uint64_t process_id() {
  return 1;
}

Expected<int> run_program(const std::vector<std::string>&, bool) {
  return std::unexpected(std::make_error_code(std::errc::function_not_supported));
}

std::optional<std::string> environment_variable(const char*) {
  return std::nullopt;
}
void set_environment_default(const char*, const char*) {}

std::filesystem::path home_folder() {
  return {};
}
std::filesystem::path cache_folder() {
  return web::kKeptFolder;
}
std::filesystem::path state_folder() {
  return {};
}
std::filesystem::path temporary_folder() {
  return ".";
}

bool edit_file(const std::string&, const std::filesystem::path&) {
  return false;
}

EndingHandler::EndingHandler(void (*)()) {}
int EndingHandler::received() {
  return 0;
}
EndingHandler::~EndingHandler() = default;

void end_by_signal(int) {}

}  // namespace doppler::system
