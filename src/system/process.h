// This process: its number, its environment, and what ends it from outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace doppler::system {

std::uint64_t process_id();

std::optional<std::string> environment_variable(const char* name);
// Sets a variable that nobody has set, for the libraries that this process loads. Before threads start.
void set_environment_default(const char* name, const char* value);

// The user's own folder, and the one for what can be made again; empty where there is none.
std::filesystem::path home_folder();
std::filesystem::path cache_folder();

// While one lives, the first Ctrl-C, or what else ends a program from outside (SIGTERM, a closed terminal),
// calls `handler` instead; the second is the system's. What the caller of the program has switched off stays
// off, as nohup does with a closed terminal. One at a time.
class EndingHandler {
 public:
  // `handler` runs in the middle of anything: it may touch lock-free atomics only.
  explicit EndingHandler(void (*handler)());
  EndingHandler(const EndingHandler&) = delete;
  EndingHandler& operator=(const EndingHandler&) = delete;
  ~EndingHandler();
};

}  // namespace doppler::system
