// A program that runs beside this one and answers lines with lines.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace bench {

class Child {
 public:
  static doppler::Result<Child> start(const std::vector<std::string>& command) {
    using doppler::ErrorCode;
    int to[2], from[2];
    // Closed on exec: a second child that kept the first's ends open would keep it waiting for ever.
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
      return doppler::fail(ErrorCode::kIo, "The system gives no pipe.");
    const pid_t pid = fork();
    if (pid < 0) return doppler::fail(ErrorCode::kIo, "The program {} cannot be started.", command.front());
    if (pid == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      std::vector<char*> words;
      for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    return Child(command.front(), pid, fdopen(to[1], "w"), fdopen(from[0], "r"));
  }
  Child(Child&& other) noexcept
      : program_(std::move(other.program_)),
        pid_(std::exchange(other.pid_, -1)),
        to_(std::exchange(other.to_, nullptr)),
        from_(std::exchange(other.from_, nullptr)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (to_ != nullptr) std::fclose(to_);
    if (from_ != nullptr) std::fclose(from_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  // The next line it says, without its end. Errors: kIo when it ends or answers "error …".
  doppler::Result<std::string> read() {
    std::string line;
    for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
      if (c == EOF) return doppler::fail(doppler::ErrorCode::kIo, "The program {} has ended.", program_);
      line += static_cast<char>(c);
    }
    if (line.starts_with("error "))
      return doppler::fail(doppler::ErrorCode::kIo, "The program {} says: {}.", program_, line.substr(6));
    return line;
  }

  doppler::Result<std::string> ask(const std::string& request) {
    std::fprintf(to_, "%s\n", request.c_str());
    std::fflush(to_);
    return read();
  }

 private:
  Child(std::string program, pid_t pid, std::FILE* to, std::FILE* from)
      : program_(std::move(program)), pid_(pid), to_(to), from_(from) {}

  std::string program_;
  pid_t pid_;
  std::FILE* to_;
  std::FILE* from_;
};

}  // namespace bench
