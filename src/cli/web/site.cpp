#include "cli/web/site.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/files.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

// Long enough for a busy machine; a connection that a browser opens ahead and does not use costs nothing
// while another thread listens.
constexpr system::Patience kPatience{30'000};
// How soon an end is noticed.
constexpr system::Patience kLook{50};
// A browser opens six connections to a server at a time, each answered in its turn; two more for those ahead.
constexpr int kThreads = 8;
constexpr std::size_t kPiece = std::size_t{1} << 20;
// Every stage of a small model as text would fit; more is no report.
constexpr std::uint64_t kMaxReport = std::uint64_t{64} << 20;

void answer_status(const system::Connection& connection, int status, std::string_view more = "") {
  (void)connection.send(answer_head(status, 0, more), kPatience);
}

// The head, and what came with it of the body.
struct Received {
  std::string head, rest;
};

std::optional<Received> receive_head(const system::Connection& connection, const std::atomic<bool>& ending) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  std::string text;
  char piece[4096];
  for (int looks = 0; text.size() < kMaxHead && looks < kPatience / kLook;) {
    const auto got = connection.receive(piece, kLook);
    if (!got && got.error() == std::errc::timed_out && !ending) {
      ++looks;
      continue;
    }
    if (!got || *got == 0) return std::nullopt;
    text.append(piece, *got);
    const std::size_t end = text.find(kEnd);
    if (end == std::string::npos) continue;
    return Received{text.substr(0, end + 2), text.substr(end + kEnd.size())};
  }
  return std::nullopt;
}

// False where the browser or the file has gone.
bool send_file(const system::Connection& connection, const system::InputFile& file, std::uint64_t begin,
               std::uint64_t end) {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, end - begin)));
  while (begin < end) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), end - begin));
    const std::span<std::byte> bytes(piece.data(), size);
    if (file.read_at(begin, bytes) || connection.send(bytes, kPatience)) return false;
    begin += size;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Site>> Site::open(std::uint16_t port, const std::string& secret) {
  auto listener = system::LoopbackListener::open(port);
  if (!listener && listener.error() == std::errc::function_not_supported) {
    return fail(ErrorCode::kUnsupported,
                "On this system the program cannot serve a browser. Use tests/web and bench/web.py there.");
  }
  if (!listener) {
    return fail(ErrorCode::kIo, "The port {} of this machine cannot be listened at: {}.", port,
                listener.error().message());
  }
  return std::unique_ptr<Site>(new Site(std::move(*listener), secret));
}

Site::~Site() {
  ending_ = true;
  threads_.clear();  // waits for them
}

std::string Site::address() const {
  return fmt::format("http://127.0.0.1:{}/{}/", port(), secret_);
}

void Site::add_text(const std::string& path, std::string text) {
  contents_["/" + secret_ + "/" + path] = {std::move(text), {}};
}

void Site::add_file(const std::string& path, const std::filesystem::path& file) {
  contents_["/" + secret_ + "/" + path] = {"", file};
}

Status Site::add_folder(const std::string& path, const std::filesystem::path& folder) {
  const auto entries = system::list_folder(folder);
  if (!entries) {
    return fail(ErrorCode::kNotFound, "The folder {} cannot be read: {}.", printable_path(folder),
                entries.error().message());
  }
  for (const std::filesystem::path& entry : *entries) {
    if (system::is_file(entry)) add_file(path + entry.filename().string(), entry);
  }
  return {};
}

Status Site::serve() {
  for (int i = 0; i < kThreads; ++i) {
    auto thread = system::Thread::start([this] { accept_all(); });
    if (!thread) return fail(ErrorCode::kLimit, "The system starts no more threads. End other programs.");
    threads_.push_back(std::move(*thread));
  }
  return {};
}

void Site::accept_all() {
  while (!ending_) {
    const auto connection = listener_.accept(kLook);
    if (!connection) return;
    if (*connection) answer(**connection);
  }
}

void Site::answer(const system::Connection& connection) {
  const std::optional<Received> received = receive_head(connection, ending_);
  if (!received) return;
  const Result<HttpRequest> request = parse_request(received->head);
  if (!request) return answer_status(connection, 400);
  const std::string here = fmt::format("127.0.0.1:{}", port());
  // Another name for this address is how a page of another site would look like this one.
  const bool foreign = !request->origin.empty() && request->origin != "http://" + here;
  if (request->host != here || foreign) return answer_status(connection, 403);
  if (request->method == "GET" || request->method == "HEAD")
    return answer_get(connection, *request, request->method == "HEAD");
  if (request->method == "POST") return answer_post(connection, *request, received->rest);
  answer_status(connection, 405, "Allow: GET, HEAD, POST\r\n");
}

void Site::answer_get(const system::Connection& connection, const HttpRequest& request, bool head_only) {
  const auto found = contents_.find(request.path);
  if (found == contents_.end()) return answer_status(connection, 404);
  const Content& content = found->second;
  std::optional<system::InputFile> file;
  std::uint64_t size = content.text.size();
  if (!content.file.empty()) {
    auto opened = system::InputFile::open(content.file);
    const auto known = opened ? opened->regular_size() : std::nullopt;
    if (!opened || !known || !*known) return answer_status(connection, 404);
    file = std::move(*opened);
    size = **known;
  }
  std::string more = fmt::format("Content-Type: {}\r\nAccept-Ranges: bytes\r\n", content_type(request.path));
  std::pair<std::uint64_t, std::uint64_t> part(0, size);
  if (request.range) {
    const auto wanted = resolve_range(*request.range, size);
    if (!wanted) return answer_status(connection, 416, fmt::format("Content-Range: bytes */{}\r\n", size));
    part = *wanted;
    more += fmt::format("Content-Range: bytes {}-{}/{}\r\n", part.first, part.second - 1, size);
  }
  const auto [begin, end] = part;
  if (connection.send(answer_head(request.range ? 206 : 200, end - begin, more), kPatience) || head_only)
    return;
  if (file)
    (void)send_file(connection, *file, begin, end);
  else
    (void)connection.send(std::string_view(content.text).substr(begin, end - begin), kPatience);
}

void Site::answer_post(const system::Connection& connection, const HttpRequest& request, std::string body) {
  if (request.path != "/" + secret_ + "/report") return answer_status(connection, 404);
  if (request.body > kMaxReport) return answer_status(connection, 413);
  body.reserve(static_cast<std::size_t>(request.body));
  std::vector<char> piece(kPiece);
  while (body.size() < request.body) {
    const auto got = connection.receive(piece, kPatience);
    if (!got || *got == 0) return;
    body.append(piece.data(), *got);
  }
  body.resize(static_cast<std::size_t>(request.body));
  {
    const system::Lock lock(mutex_);
    reports_.push_back(std::move(body));
  }
  posted_.notify_all();
  answer_status(connection, 204);
}

std::optional<std::string> Site::take(system::Patience patience) {
  const system::Lock lock(mutex_);
  if (reports_.empty()) posted_.wait_for(mutex_, patience);
  if (reports_.empty()) return std::nullopt;
  std::string report = std::move(reports_.front());
  reports_.pop_front();
  return report;
}

}  // namespace doppler::cli
