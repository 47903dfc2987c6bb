// This process: its number, its environment, and requests from outside to end it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace doppler::system {

std::uint64_t process_id();

std::optional<std::string> environment_variable(const char* name);
// Sets a variable unless it is set already, for the libraries that this process loads. Before threads start.
void set_environment_default(const char* name, const char* value);

// The user's own folder, and the user's folder for caches; empty where there is none.
std::filesystem::path home_folder();
std::filesystem::path cache_folder();
// Where files go that nobody keeps.
std::filesystem::path temporary_folder();

// While an EndingHandler lives, the first Ctrl-C or other request to end (SIGTERM, a closed terminal) calls
// `handler` instead; the second has the system's effect. Requests that the caller of the program has switched
// off stay off, as nohup does with a closed terminal. One at a time.
class EndingHandler {
 public:
  // `handler` may interrupt any code: it may touch lock-free atomics only.
  explicit EndingHandler(void (*handler)());
  EndingHandler(const EndingHandler&) = delete;
  EndingHandler& operator=(const EndingHandler&) = delete;
  ~EndingHandler();
};

}  // namespace doppler::system
