// Site: what a browser on this machine can fetch from the program, and what it posts back. Below a secret
// first part of the path, which other users of the machine do not know, lie exactly the files that were
// added; what a page posts to "report" waits here to be taken.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/web/http.h"
#include "system/loopback.h"
#include "system/threads.h"

namespace doppler::cli {

class Site {
 public:
  // `port` 0: any. Errors: kIo if it is taken, kUnsupported where there are no sockets.
  static Result<std::unique_ptr<Site>> open(std::uint16_t port, const std::string& secret);
  Site(const Site&) = delete;
  ~Site();

  // Both before serve(). `path`: below the secret, without a slash at its start.
  void add_text(const std::string& path, std::string text);
  void add_file(const std::string& path, const std::filesystem::path& file);
  // Every regular file of a folder, but none of its folders, below `path`, such as "web/".
  Status add_folder(const std::string& path, const std::filesystem::path& folder);

  // Answers from now on, in threads of its own.
  Status serve();
  std::uint16_t port() const { return listener_.port(); }
  std::string address() const;  // "http://127.0.0.1:PORT/SECRET/"

  // The next text that was posted; nothing after `patience` without one.
  std::optional<std::string> take(system::Patience patience);

 private:
  explicit Site(system::LoopbackListener listener, std::string secret)
      : listener_(std::move(listener)), secret_(std::move(secret)) {}
  void accept_all();
  void answer(const system::Connection& connection);
  void answer_get(const system::Connection& connection, const HttpRequest& request, bool head_only);
  void answer_post(const system::Connection& connection, const HttpRequest& request, std::string body);

  struct Content {
    std::string text;
    std::filesystem::path file;  // empty: `text`
  };
  const system::LoopbackListener listener_;
  const std::string secret_;
  std::map<std::string, Content> contents_;  // by the request's path
  std::atomic<bool> ending_{false};
  std::vector<system::Thread> threads_;
  system::Mutex mutex_;
  system::Condition posted_;
  std::deque<std::string> reports_;
};

}  // namespace doppler::cli
