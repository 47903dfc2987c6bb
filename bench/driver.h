// What the measured programs of vs_llama_cpp share: each loads one model, says so, and then does what single
// lines on its standard input ask, one at a time, each answered by one line. So two of them can stay loaded
// and take turns.
//
//   ready SECONDS NAME             first line: how long loading took, and what computes
//   prefill N      -> seconds S    an empty sequence reads N tokens
//   decode N       -> seconds S    a sequence of one token grows by N, one at a time
//   deepen D       -> seconds S    a second sequence is filled up to D tokens
//   deep N         -> seconds S    the second sequence grows by N, one at a time
//   logits N FILE  -> written V    the logits after N tokens, as float32
//   memory         -> bytes B      the largest resident size so far
//   quit
// A request that fails is answered by "error SENTENCE".
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The token at a position of the text that both programs read: spread over the vocabulary.
inline std::int32_t token_at(std::uint64_t position, std::uint64_t vocab) {
  return static_cast<std::int32_t>((position * 7919 + 13) % vocab);
}

class Runner {
 public:
  static constexpr int kShort = 0, kDeep = 1;  // sequences
  virtual ~Runner() = default;
  virtual std::uint64_t vocab() const = 0;
  virtual void clear(int sequence) = 0;
  // Feeds tokens that continue a sequence and computes the last one's logits. Empty, or what went wrong.
  virtual std::string feed(int sequence, const std::vector<std::int32_t>& tokens) = 0;
  // The sequence grows by as many tokens, one after another with the logits of each, as generating does.
  virtual std::string grow(int sequence, const std::vector<std::int32_t>& tokens) {
    for (const std::int32_t token : tokens) {
      if (std::string problem = feed(sequence, {token}); !problem.empty()) return problem;
    }
    return {};
  }
  // Of the last feed.
  virtual const float* logits() const = 0;
};

class Server {
 public:
  explicit Server(Runner& runner) : runner_(runner) {}

  int serve(double load_seconds, const std::string& name) {
    std::printf("ready %.6f %s\n", load_seconds, name.c_str());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line) && line != "quit";) {
      const std::string answer = obey(line);
      std::printf("%s\n", answer.c_str());
      std::fflush(stdout);
    }
    return 0;
  }

 private:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb, file;
    std::uint64_t count = 0;
    words >> verb >> count >> file;
    if (verb == "memory") return "bytes " + std::to_string(peak_bytes());
    if (verb == "prefill" || verb == "logits") {
      restart(Runner::kShort);
      const std::string answer = timed(&Runner::feed, Runner::kShort, count);
      return verb == "prefill" || answer.starts_with("error") ? answer : write_logits(file);
    }
    if (verb == "decode") {
      restart(Runner::kShort);
      const std::string answer = timed(&Runner::feed, Runner::kShort, 1);
      return answer.starts_with("error") ? answer : timed(&Runner::grow, Runner::kShort, count);
    }
    if (verb == "deepen") {
      restart(Runner::kDeep);
      return timed(&Runner::feed, Runner::kDeep, count);
    }
    if (verb == "deep") return timed(&Runner::grow, Runner::kDeep, count);
    return "error there is no request " + verb;
  }

  void restart(int sequence) {
    runner_.clear(sequence);
    length_[sequence] = 0;
  }

  // `count` more tokens, all at once (feed) or one at a time (grow).
  std::string timed(std::string (Runner::*take)(int, const std::vector<std::int32_t>&), int sequence,
                    std::uint64_t count) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < count; ++i)
      tokens.push_back(token_at(length_[sequence] + i, runner_.vocab()));
    const auto start = Clock::now();
    if (const std::string problem = (runner_.*take)(sequence, tokens); !problem.empty())
      return "error " + problem;
    length_[sequence] += count;
    std::ostringstream answer;
    answer.precision(9);
    answer << "seconds " << std::fixed << seconds_since(start);
    return answer.str();
  }

  std::string write_logits(const std::string& file) {
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(runner_.logits()),
              static_cast<std::streamsize>(runner_.vocab() * sizeof(float)));
    out.close();
    return out ? "written " + std::to_string(runner_.vocab()) : "error cannot write " + file;
  }

  static std::uint64_t peak_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;  // Linux counts kilobytes
  }

  Runner& runner_;
  std::uint64_t length_[2] = {0, 0};
};

}  // namespace bench
