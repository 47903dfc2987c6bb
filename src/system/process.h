// This process: its number, its environment, and requests from outside to end it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "system/result.h"

namespace doppler::system {

std::uint64_t process_id();

// Runs a program, found as a shell finds it, to its end, with nothing to read; what it prints on stdout is
// dropped, and if `silent` what it says on stderr, too. Its exit status, or 128 + the number of the signal
// that ended it.
Expected<int> run_program(const std::vector<std::string>& words, bool silent);

std::optional<std::string> environment_variable(const char* name);
// Sets a variable unless it is set already, for the libraries that this process loads. Before threads start.
void set_environment_default(const char* name, const char* value);

// The user's own folder, and the user's folders for caches and for what programs remember, such as a history;
// empty where there is none.
std::filesystem::path home_folder();
std::filesystem::path cache_folder();
std::filesystem::path state_folder();
// Where files go that nobody keeps.
std::filesystem::path temporary_folder();

// Lets the user change a file and waits for the end. `editor`: a command, perhaps with arguments, as
// $EDITOR has it. False if it cannot be started or reports a failure.
bool edit_file(const std::string& editor, const std::filesystem::path& file);

// While an EndingHandler lives, the first Ctrl-C or other request to end (SIGTERM, a closed terminal) calls
// `handler` instead; the second has the system's effect. Requests that the caller of the program has switched
// off stay off, as nohup does with a closed terminal. One at a time.
class EndingHandler {
 public:
  // `handler` may interrupt any code: it may touch lock-free atomics only.
  explicit EndingHandler(void (*handler)());
  // The number of the signal that came since the newest handler began to live; 0: none.
  static int received();
  EndingHandler(const EndingHandler&) = delete;
  EndingHandler& operator=(const EndingHandler&) = delete;
  ~EndingHandler();
};

// Ends the program as this signal does, so that whoever started it sees why. Returns where that cannot be
// done.
void end_by_signal(int number);

}  // namespace doppler::system
