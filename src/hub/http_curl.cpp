// HTTP by libcurl's multi interface.
#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "base/text.h"
#include "hub/http.h"

namespace doppler::hub {
namespace {

using Clock = std::chrono::steady_clock;

// All headers of one answer together: the Hub's are 2 kB, with signed addresses 4.
constexpr std::size_t kMaxHeaderBytes = 64 << 10;

class CurlHttp;

struct Transfer {
  CURL* easy = nullptr;
  curl_slist* lines = nullptr;
  HttpReceiver* receiver = nullptr;
  HttpAnswer answer;
  std::size_t header_bytes = 0;
  bool stopped = false, stalled = false;
  std::uint64_t window_bytes = 0;  // since window_start
  Clock::time_point window_start;
  std::array<char, CURL_ERROR_SIZE> error{};
};

// libcurl hands over each header line, of every answer on the way (such as 100 Continue): the last one
// counts.
std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(data, size);
  transfer.header_bytes += size;
  if (transfer.header_bytes > kMaxHeaderBytes) return 0;
  if (line.starts_with("HTTP/")) {
    transfer.answer.headers.clear();
    return size;
  }
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos)
    transfer.answer.headers[ascii_lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  return size;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
  transfer.window_bytes += size;
  if (transfer.receiver->on_bytes(transfer.answer, std::as_bytes(std::span(data, size)))) return size;
  transfer.stopped = true;
  return size + 1;  // anything but `size` ends the transfer
}

HttpEnd end_of(CURLcode code, const Transfer& transfer) {
  if (transfer.stalled) return HttpEnd::kStalled;
  if (transfer.stopped) return HttpEnd::kStopped;
  switch (code) {
    case CURLE_OK:
      return HttpEnd::kWhole;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return HttpEnd::kUnreachable;
    case CURLE_OPERATION_TIMEDOUT:  // only connecting has a time limit of libcurl's
      return HttpEnd::kUnreachable;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CONNECT_ERROR:
      return HttpEnd::kUntrusted;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return HttpEnd::kCut;
    default:
      return HttpEnd::kOther;
  }
}

class CurlHttp : public Http {
 public:
  CurlHttp(CURLM* multi, const HttpLimits& limits) : multi_(multi), limits_(limits) {}
  CurlHttp(const CurlHttp&) = delete;
  CurlHttp& operator=(const CurlHttp&) = delete;
  ~CurlHttp() override {
    while (!transfers_.empty()) remove(transfers_.begin());
    curl_multi_cleanup(multi_);
  }

  Id start(const HttpRequest& request, HttpReceiver& receiver) override {
    const Id id = ++last_id_;
    Transfer& transfer = *transfers_.emplace(id, std::make_unique<Transfer>()).first->second;
    transfer.receiver = &receiver;
    transfer.window_start = Clock::now();
    transfer.easy = curl_easy_init();
    if (transfer.easy == nullptr || !set_up(transfer, request) ||
        curl_multi_add_handle(multi_, transfer.easy) != CURLM_OK)
      transfer.stopped = true;  // reported by the next step
    return id;
  }

  void stop(Id id) override {
    const auto found = transfers_.find(id);
    if (found != transfers_.end()) remove(found);
  }

  void step(std::uint32_t most_ms) override {
    int running = 0;
    curl_multi_perform(multi_, &running);
    if (report_ends()) return;
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(most_ms), nullptr);
    curl_multi_perform(multi_, &running);
    report_ends();
  }

 private:
  using Transfers = std::map<Id, std::unique_ptr<Transfer>>;

  template <typename Value>
  static bool set(CURL* easy, CURLoption option, Value value) {
    return curl_easy_setopt(easy, option, value) == CURLE_OK;
  }

  bool set_up(Transfer& transfer, const HttpRequest& request) {
    CURL* const easy = transfer.easy;
    if (!request.token.empty()) {
      const std::string line = "Authorization: Bearer " + request.token;
      transfer.lines = curl_slist_append(transfer.lines, line.c_str());
      if (transfer.lines == nullptr) return false;
    }
    bool good = set(easy, CURLOPT_URL, request.url.c_str()) &&
                set(easy, CURLOPT_PROTOCOLS_STR, "http,https") &&
                // One connection for each transfer: HTTP/2 would send all of them through one.
                set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1)) &&
                set(easy, CURLOPT_FOLLOWLOCATION, 0L) && set(easy, CURLOPT_NOSIGNAL, 1L) &&
                set(easy, CURLOPT_USERAGENT, "doppler") && set(easy, CURLOPT_HTTPHEADER, transfer.lines) &&
                set(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits_.connect_ms)) &&
                set(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L) &&
                set(easy, CURLOPT_ERRORBUFFER, transfer.error.data()) &&
                set(easy, CURLOPT_HEADERFUNCTION, on_header) && set(easy, CURLOPT_HEADERDATA, &transfer) &&
                set(easy, CURLOPT_WRITEFUNCTION, on_body) && set(easy, CURLOPT_WRITEDATA, &transfer) &&
                set(easy, CURLOPT_PRIVATE, &transfer);
    if (request.head_only) good = good && set(easy, CURLOPT_NOBODY, 1L);
    if (request.range) {
      const std::string range = fmt::format("{}-{}", request.range->begin, request.range->end - 1);
      good = good && set(easy, CURLOPT_RANGE, range.c_str());
    }
    return good;
  }

  void remove(Transfers::iterator at) {
    Transfer& transfer = *at->second;
    if (transfer.easy != nullptr) {
      curl_multi_remove_handle(multi_, transfer.easy);
      curl_easy_cleanup(transfer.easy);
    }
    curl_slist_free_all(transfer.lines);
    transfers_.erase(at);
  }

  // Hands over what has ended, by itself, by stalling, or because it could not begin.
  bool report_ends() {
    std::vector<std::pair<Id, CURLcode>> ended;
    int left = 0;
    while (const CURLMsg* const message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto at = std::ranges::find_if(
          transfers_, [&](const auto& entry) { return entry.second->easy == message->easy_handle; });
      if (at != transfers_.end()) ended.emplace_back(at->first, message->data.result);
    }
    const Clock::time_point now = Clock::now();
    for (auto& [id, transfer] : transfers_) {
      if (std::ranges::any_of(ended, [&](const auto& one) { return one.first == id; })) continue;
      if (transfer->stopped) ended.emplace_back(id, CURLE_FAILED_INIT);
      if (is_stalled(*transfer, now)) ended.emplace_back(id, CURLE_OPERATION_TIMEDOUT);
    }
    for (const auto& [id, code] : ended) end(id, code);
    return !ended.empty();
  }

  bool is_stalled(Transfer& transfer, Clock::time_point now) {
    const auto window = std::chrono::milliseconds(limits_.stall_ms);
    if (transfer.stopped || now - transfer.window_start < window) return false;
    transfer.stalled = transfer.window_bytes < limits_.stall_ms;
    transfer.window_start = now;
    transfer.window_bytes = 0;
    return transfer.stalled;
  }

  void end(Id id, CURLcode code) {
    const auto at = transfers_.find(id);
    if (at == transfers_.end()) return;  // stopped by the receiver of one that ended before
    Transfer& transfer = *at->second;
    if (transfer.easy != nullptr)
      curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
    const HttpEnd how = end_of(code, transfer);
    const std::string reason = transfer.error[0] != '\0' ? transfer.error.data() : curl_easy_strerror(code);
    HttpReceiver* const receiver = transfer.receiver;
    const HttpAnswer answer = std::move(transfer.answer);
    remove(at);
    receiver->on_end(answer, how, reason);
  }

  CURLM* const multi_;
  const HttpLimits limits_;
  Transfers transfers_;
  Id last_id_ = 0;
};

}  // namespace

Result<std::unique_ptr<Http>> make_http(const HttpLimits& limits) {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURLM* const multi = started == CURLE_OK ? curl_multi_init() : nullptr;
  if (multi == nullptr)
    return fail(ErrorCode::kInternal, "The library libcurl cannot be set up. Check its installation.");
  return std::make_unique<CurlHttp>(multi, limits);
}

}  // namespace doppler::hub
