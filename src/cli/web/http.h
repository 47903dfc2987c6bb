// As much of HTTP as a browser of this machine needs to read files and to post what it found.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace doppler::cli {

// The first and the last byte that are asked for, as "bytes=5-9", "bytes=5-" or "bytes=-5" say it.
struct HttpRange {
  std::optional<std::uint64_t> first, last;
};

struct HttpRequest {
  std::string method, path;  // the path without %XX and without a query
  std::string host, origin;  // as the headers say; empty: none
  std::optional<HttpRange> range;
  std::uint64_t body = 0;  // bytes that follow the head
};

// A request's lines up to the empty one; longer heads are refused.
inline constexpr std::size_t kMaxHead = 16 * 1024;
// Errors: kCorrupt for what is no request of HTTP/1.1, kUnsupported for one in pieces (Transfer-Encoding).
Result<HttpRequest> parse_request(std::string_view head);

// The bytes of a content that a range means: begin and end. Nothing where it lies outside.
std::optional<std::pair<std::uint64_t, std::uint64_t>> resolve_range(const HttpRange& range,
                                                                     std::uint64_t size);

// The head of an answer. `more`: further lines, each with its end.
std::string answer_head(int status, std::uint64_t size, std::string_view more = "");
// The type of a file's content, by its name.
std::string_view content_type(std::string_view name);

}  // namespace doppler::cli
