// Runs the program as a user would and keeps what it says.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "environment.h"
#include "testing.h"

extern char** environ;

namespace doppler::testing {

struct Outcome {
  int status = -1;  // exit status; 128 + signal if it died
  std::string out, err;
  // Standard output as JSON; null if it is none.
  Json json() const { return Json::parse(out, nullptr, false); }
};

// Standard streams that do not lead to the files that Program makes.
struct Streams {
  std::vector<int> close;
  std::map<int, std::string> open;  // read (stdin) or written
  std::map<int, int> duplicate;     // of a descriptor of the test
};

// A running program with its output going to files.
class Program {
 public:
  // `file_limit`: the largest file the program may write, as a disk that fills up would.
  explicit Program(std::vector<std::string> arguments, const std::string& input = "",
                   std::size_t file_limit = 0, const Streams& streams = {}) {
    write_file(dir_ / "in", input);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, (dir_ / "in").c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, (dir_ / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (dir_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
    for (const int stream : streams.close) posix_spawn_file_actions_addclose(&actions, stream);
    for (const auto& [stream, path] : streams.open)
      posix_spawn_file_actions_addopen(&actions, stream, path.c_str(), stream == 0 ? O_RDONLY : O_WRONLY, 0);
    for (const auto& [stream, other] : streams.duplicate)
      posix_spawn_file_actions_adddup2(&actions, other, stream);
    std::string program = program_path();
    arguments.insert(arguments.begin(), program);
    if (file_limit != 0) {
      // ulimit -f counts 1024-byte blocks in bash; the signal it sends is ignored, so that writing fails
      // instead.
      const std::string limit = std::to_string(file_limit / 1024);
      program = "/bin/bash";
      arguments.insert(arguments.begin(),
                       {program, "-c", "trap '' XFSZ; ulimit -f " + limit + "; exec \"$@\"", "bash"});
    }
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Whoever runs the tests in the background of a script ignores Ctrl-C, and so would the program.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t usual;
    sigemptyset(&usual);
    for (const int number : {SIGINT, SIGHUP, SIGPIPE}) sigaddset(&usual, number);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    setenv("COLUMNS", "200", /*overwrite=*/0);  // wide enough for every line that tests look for
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), environ), 0);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
  }

  std::string out_so_far() const { return read_file(dir_ / "out"); }
  std::string error_so_far() const { return read_file(dir_ / "err"); }
  void interrupt() const { signal(SIGINT); }
  void signal(int number) const { kill(pid_, number); }

  // Returns once that is so, or once the program has ended, after which it will not be.
  template <typename Condition>
  void wait_until(Condition condition) const {
    while (!condition() && !has_ended()) sched_yield();
  }
  // The same: it has mapped a file of this name.
  void wait_until_mapped(const std::string& name) const {
    wait_until(
        [&] { return read_file("/proc/" + std::to_string(pid_) + "/maps").find(name) != std::string::npos; });
  }

  Outcome wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(dir_ / "out"),
            read_file(dir_ / "err")};
  }

 private:
  bool has_ended() const {
    siginfo_t info = {};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }
  TempDir dir_;
  pid_t pid_ = 0;
};

inline Outcome doppler(std::vector<std::string> arguments, const std::string& input = "") {
  return Program(std::move(arguments), input).wait();
}

// What is said on stderr, without the first line where that tells what --backend auto chose.
inline std::string complaint(const Outcome& outcome) {
  const bool told = outcome.err.starts_with("cpu: ") || outcome.err.starts_with("gpu: ");
  return told ? outcome.err.substr(outcome.err.find('\n') + 1) : outcome.err;
}

inline std::string model_path(const std::string& name) {
  return data_path("models/" + name).string();
}

}  // namespace doppler::testing

// The program refused: exit status and a sentence on stderr with these parts, nothing on stdout.
#define EXPECT_REFUSAL(outcome, expected_status, ...)                                            \
  do {                                                                                           \
    const doppler::testing::Outcome outcome_ = (outcome);                                        \
    EXPECT_EQ(outcome_.status, expected_status) << outcome_.err;                                 \
    EXPECT_TRUE(outcome_.out.empty() || outcome_.json().contains("error")) << outcome_.out;      \
    EXPECT_TRUE(doppler::testing::complaint(outcome_).starts_with("doppler: ")) << outcome_.err; \
    for (const char* part : {__VA_ARGS__})                                                       \
      EXPECT_NE(outcome_.err.find(part), std::string::npos) << outcome_.err;                     \
  } while (0)
