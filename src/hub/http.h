// HTTP as the downloader needs it: several transfers at once, driven by one thread, nothing followed and
// nothing believed. Redirects, tokens, retries and what answers mean are the callers' business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace doppler::hub {

struct ByteRange {
  std::uint64_t begin = 0, end = 0;  // [begin, end)
};

struct HttpRequest {
  std::string url;
  std::string token;  // goes to this URL's host as a bearer token; empty: none
  std::optional<ByteRange> range;
  bool head_only = false;
};

// What an answer says before its body: the status and the headers, their names in lower case.
struct HttpAnswer {
  long status = 0;  // 0 until there is an answer
  std::map<std::string, std::string, std::less<>> headers;

  std::string_view header(std::string_view name) const;
};

// How a transfer ended.
enum class HttpEnd : std::uint8_t {
  kWhole,        // as the server's own framing says; whether that is all is for the caller to know
  kUnreachable,  // no name, no connection
  kUntrusted,    // the certificate is not what it must be
  kCut,          // the connection broke off
  kStalled,      // too few bytes for too long
  kStopped,      // by the receiver
  kOther,
};

// Receives one transfer. Called from Http::step() alone; on_bytes() may not start or stop transfers, on_end()
// may.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  // The next bytes of the body; false ends the transfer with kStopped.
  virtual bool on_bytes(const HttpAnswer& answer, std::span<const std::byte> bytes) = 0;
  // `reason` is the library's own words where something failed.
  virtual void on_end(const HttpAnswer& answer, HttpEnd end, const std::string& reason) = 0;
};

// What a transfer may cost.
struct HttpLimits {
  std::uint32_t connect_ms = 15'000;
  // A transfer that brings less than a byte a millisecond (1 kB/s, a modem's share among four) for this long
  // is stalled.
  std::uint32_t stall_ms = 30'000;
};

class Http {
 public:
  virtual ~Http() = default;
  using Id = std::uint64_t;
  // The receiver must live until its on_end() or stop().
  virtual Id start(const HttpRequest& request, HttpReceiver& receiver) = 0;
  // Ends a transfer without on_end().
  virtual void stop(Id id) = 0;
  // Moves all transfers on; returns after some milliseconds at most, earlier if something came.
  virtual void step(std::uint32_t most_ms) = 0;
};

// Errors: kUnsupported in a build without libcurl, naming the option; kInternal if it cannot be set up.
Result<std::unique_ptr<Http>> make_http(const HttpLimits& limits);

}  // namespace doppler::hub
