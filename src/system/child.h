// A program that runs beside this one, and ends with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "system/files.h"
#include "system/result.h"

namespace doppler::system {

class Child {
 public:
  // Starts a program, found as a shell finds it, with nothing to read; what it prints is dropped. Its
  // descriptors 3 and 4 are pipes that close when this program ends, however it does: a browser that speaks
  // its debugging protocol there then ends, too. Errors: the system's; function_not_supported.
  static Expected<Child> start(const std::vector<std::string>& words);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // ends it: by request, and by force where it does not follow within some seconds

  // Its exit status once it has ended, or 128 + the number of the signal that ended it.
  std::optional<int> ended();

 private:
  Child(std::intptr_t process, FileHandle to, FileHandle from)
      : process_(process), to_(std::move(to)), from_(std::move(from)) {}
  std::intptr_t process_;
  FileHandle to_, from_;
  std::optional<int> status_;
};

// Where a shell finds a program of this name, or the path itself if it names a program.
std::optional<Path> find_program(const std::string& name);

// Whether this process may do everything, as root may: programs that shut themselves in refuse to do so then.
bool is_administrator();

}  // namespace doppler::system
