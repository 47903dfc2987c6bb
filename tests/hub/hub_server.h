// A server that behaves like the Hub on ports of this machine, and, where a test says so, like a bad one: it
// stalls, cuts, repeats itself, lies and refuses. Every request is kept, so that tests can say what was asked
// and with which token.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace doppler::testing {

inline std::string digest_hex(const std::string& bytes, const EVP_MD* kind) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest, &size, kind, nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}
inline std::string sha256_of(const std::string& bytes) {
  return digest_hex(bytes, EVP_sha256());
}
inline std::string git_hash_of(const std::string& bytes) {
  return digest_hex("blob " + std::to_string(bytes.size()) + std::string(1, '\0') + bytes, EVP_sha1());
}

struct Request {
  std::string method, target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::size_t number = 0;                      // of this target, from 0

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  // The first and last byte of a Range header.
  std::optional<std::pair<std::size_t, std::size_t>> range() const {
    std::size_t begin = 0, last = 0;
    if (std::sscanf(header("range").c_str(), "bytes=%zu-%zu", &begin, &last) != 2) return std::nullopt;
    return std::pair(begin, last);
  }
};

// The other end of a request.
class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}

  bool send(const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t sent = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += static_cast<std::size_t>(sent);
    }
    return true;
  }
  // A whole answer.
  void answer(int status, const std::string& body, const std::string& headers = "", bool head = false) {
    send("HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + (head ? "" : body));
  }
  // Waits until the other end goes away: a server that says nothing more.
  void stall() {
    pollfd wait{socket_, POLLIN | POLLRDHUP, 0};
    ::poll(&wait, 1, -1);
    closed = true;
  }
  void cut() { closed = true; }

  bool closed = false;

 private:
  const int socket_;
};

// HTTP/1.1 on a port of 127.0.0.1, a thread for each connection.
class HttpServer {
 public:
  using Handler = std::function<void(const Request&, Connection&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 64);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~HttpServer() {
    ending_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::thread& thread : threads_) thread.join();
    for (const int socket : sockets_) ::close(socket);
    ::close(listener_);
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  std::size_t count(const std::string& part) {
    const std::vector<Request> all = requests();
    return static_cast<std::size_t>(std::ranges::count_if(
        all, [&](const Request& request) { return request.target.find(part) != std::string::npos; }));
  }

 private:
  void accept_all() {
    while (!ending_) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) continue;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }

  void serve(int socket) {
    Connection connection(socket);
    std::string buffer;
    while (!connection.closed) {
      std::optional<Request> request = read_request(socket, buffer);
      if (!request) break;
      {
        const std::lock_guard lock(mutex_);
        request->number = static_cast<std::size_t>(
            std::ranges::count_if(requests_, [&](const Request& r) { return r.target == request->target; }));
        requests_.push_back(*request);
      }
      handler_(*request, connection);
    }
    ::shutdown(socket, SHUT_RDWR);
  }

  static std::optional<Request> read_request(int socket, std::string& buffer) {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      char bytes[4096];
      const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
      if (got <= 0) return std::nullopt;
      buffer.append(bytes, static_cast<std::size_t>(got));
    }
    Request request;
    const std::string head = buffer.substr(0, end + 2);
    buffer.erase(0, end + 4);
    request.method = head.substr(0, head.find(' '));
    const std::size_t target = head.find(' ') + 1;
    request.target = head.substr(target, head.find(' ', target) - target);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line_end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name = head.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    return request;
  }

  const Handler handler_;
  int listener_ = -1;
  unsigned port_ = 0;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;
  std::vector<Request> requests_;
  std::thread acceptor_;
};

// Serves bytes with ranges, as a delivery network does.
inline void deliver(const std::string& bytes, const Request& request, Connection& connection) {
  const auto range = request.range();
  if (!range) return connection.answer(200, bytes, "", request.method == "HEAD");
  const auto [begin, last] = *range;
  if (begin >= bytes.size()) return connection.answer(416, "");
  const std::string part = bytes.substr(begin, last - begin + 1);
  connection.answer(206, part,
                    "Content-Range: bytes " + std::to_string(begin) + "-" +
                        std::to_string(begin + part.size() - 1) + "/" + std::to_string(bytes.size()) +
                        "\r\n");
}

// One repository on a Hub, whose large files another server delivers. A test may take over any request.
class FakeHub {
 public:
  static constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

  struct File {
    std::string path, bytes;
    bool large = false;  // in Git LFS, and delivered from elsewhere
  };

  explicit FakeHub(std::vector<File> given, std::string repo_name = "org/name")
      : files(std::move(given)), repo(std::move(repo_name)) {}

  std::string url() const { return hub.url(); }

  std::string info() const {
    Json siblings = Json::array();
    for (const File& file : files) {
      Json entry = {
          {"rfilename", file.path}, {"size", file.bytes.size()}, {"blobId", git_hash_of(file.bytes)}};
      if (file.large)
        entry["lfs"] = {{"sha256", sha256_of(file.bytes)}, {"size", file.bytes.size()}, {"pointerSize", 135}};
      siblings.push_back(std::move(entry));
    }
    return Json({{"id", repo},
                 {"sha", kCommit},
                 {"gated", false},
                 {"private", false},
                 {"siblings", siblings},
                 {"config", {{"model_type", "gemma3_text"}}}})
        .dump();
  }

  const File* find(const std::string& path) const {
    const auto found = std::ranges::find(files, path, &File::path);
    return found == files.end() ? nullptr : &*found;
  }

  // What the Hub itself does; a test's own handler may fall back to it.
  void answer_hub(const Request& request, Connection& connection) {
    const std::string resolve = "/" + repo + "/resolve/" + kCommit + "/";
    if (request.target.starts_with("/api/models/" + repo + "/revision/")) {
      connection.answer(200, info());
    } else if (request.target.starts_with(resolve) &&
               find(request.target.substr(resolve.size())) != nullptr) {
      const File& file = *find(request.target.substr(resolve.size()));
      if (!file.large) {
        if (request.method == "HEAD")
          return connection.answer(200, file.bytes, "ETag: \"" + git_hash_of(file.bytes) + "\"\r\n", true);
        return deliver(file.bytes, request, connection);
      }
      connection.answer(302, "Found. Redirecting",
                        "Location: " + cdn.url() + "/cdn/" + file.path +
                            "?signed=1\r\nX-Linked-Size: " + std::to_string(file.bytes.size()) +
                            "\r\nX-Linked-ETag: \"" + sha256_of(file.bytes) + "\"\r\n",
                        request.method == "HEAD");
    } else {
      connection.answer(404, "{}", "X-Error-Code: RepoNotFound\r\n");
    }
  }
  void answer_cdn(const Request& request, Connection& connection) {
    const std::string path = request.target.substr(5, request.target.find('?') - 5);
    const File* const file = find(path);
    if (file == nullptr) return connection.answer(404, "");
    deliver(file->bytes, request, connection);
  }

  std::vector<File> files;
  const std::string repo;
  // Set before the first request.
  std::function<void(const Request&, Connection&)> on_hub = [this](const Request& r, Connection& c) {
    answer_hub(r, c);
  };
  std::function<void(const Request&, Connection&)> on_cdn = [this](const Request& r, Connection& c) {
    answer_cdn(r, c);
  };

  HttpServer cdn{[this](const Request& r, Connection& c) { on_cdn(r, c); }};
  HttpServer hub{[this](const Request& r, Connection& c) { on_hub(r, c); }};
};

// Bytes without a pattern that a shift or a repetition would leave unchanged.
inline std::string noise(std::size_t size, std::uint32_t seed = 1) {
  std::string bytes(size, '\0');
  std::uint64_t state = seed;
  for (char& byte : bytes) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

}  // namespace doppler::testing
