#include "cli/web/http.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace doppler::cli {
namespace {

Error no_request(std::string_view what) {
  return {ErrorCode::kCorrupt, fmt::format("The request {}.", what)};
}

std::optional<std::uint64_t> number_of(std::string_view text, int base = 10) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Nothing for a wrong %XX, and for bytes that no path of ours has.
std::optional<std::string> unescape(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char byte = text[at];
    if (byte == '%') {
      const auto code = number_of(text.substr(at + 1, 2), 16);
      if (!code || at + 2 >= text.size()) return std::nullopt;
      byte = static_cast<char>(*code);
      at += 2;
    }
    if (static_cast<unsigned char>(byte) < 0x20) return std::nullopt;
    plain += byte;
  }
  return plain;
}

// Several ranges at once are answered as if none were asked for, as HTTP allows.
std::optional<HttpRange> range_of(std::string_view text) {
  constexpr std::string_view kUnit = "bytes=";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view first = text.substr(0, dash), last = text.substr(dash + 1);
  HttpRange range = {number_of(first), number_of(last)};
  const bool wrong = (!first.empty() && !range.first) || (!last.empty() && !range.last);
  if (wrong || (first.empty() && last.empty())) return std::nullopt;
  return range;
}

Status read_header(std::string_view line, HttpRequest& request) {
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos)
    return std::unexpected(no_request("has a header without a name"));
  const std::string name = ascii_lower(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "host") request.host = value;
  if (name == "origin") request.origin = value;
  if (name == "range") request.range = range_of(value);
  if (name == "transfer-encoding")
    return fail(ErrorCode::kUnsupported, "The request comes in pieces. Send it with a Content-Length.");
  if (name == "content-length") {
    const auto size = number_of(value);
    if (!size) return std::unexpected(no_request("has a Content-Length that is no number"));
    request.body = *size;
  }
  return {};
}

struct StatusName {
  int number;
  std::string_view name;
};
constexpr auto kStatuses = std::to_array<StatusName>({{200, "OK"},
                                                      {204, "No Content"},
                                                      {206, "Partial Content"},
                                                      {400, "Bad Request"},
                                                      {403, "Forbidden"},
                                                      {404, "Not Found"},
                                                      {405, "Method Not Allowed"},
                                                      {413, "Content Too Large"},
                                                      {416, "Range Not Satisfiable"},
                                                      {500, "Internal Server Error"}});

struct ContentType {
  std::string_view ending, type;
};
constexpr auto kTypes = std::to_array<ContentType>({{".html", "text/html; charset=utf-8"},
                                                    {".js", "text/javascript; charset=utf-8"},
                                                    {".json", "application/json"},
                                                    {".wasm", "application/wasm"},
                                                    {".css", "text/css; charset=utf-8"}});

}  // namespace

Result<HttpRequest> parse_request(std::string_view head) {
  constexpr std::string_view kEnd = "\r\n", kVersion = " HTTP/1.1";
  const std::size_t line_end = head.find(kEnd);
  const std::string_view line = head.substr(0, std::min(line_end, head.size()));
  const std::size_t space = line.find(' ');
  if (line_end == std::string_view::npos || space == std::string_view::npos || !line.ends_with(kVersion) ||
      line.size() < space + 1 + kVersion.size())
    return std::unexpected(no_request("does not begin as HTTP/1.1"));
  HttpRequest request;
  request.method = line.substr(0, space);
  std::string_view target = line.substr(space + 1, line.size() - space - 1 - kVersion.size());
  target = target.substr(0, target.find('?'));
  const auto path = unescape(target);
  if (!path || !path->starts_with('/')) return std::unexpected(no_request("names no path"));
  request.path = *path;
  for (head.remove_prefix(line_end + kEnd.size()); !head.empty();) {
    const std::size_t end = std::min(head.find(kEnd), head.size());
    if (end > 0) DOPPLER_TRY(read_header(head.substr(0, end), request));
    head.remove_prefix(std::min(end + kEnd.size(), head.size()));
  }
  return request;
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> resolve_range(const HttpRange& range,
                                                                     std::uint64_t size) {
  if (!range.first) {
    const std::uint64_t last = std::min(*range.last, size);
    if (last == 0) return std::nullopt;
    return std::pair(size - last, size);
  }
  if (*range.first >= size || (range.last && *range.last < *range.first)) return std::nullopt;
  return std::pair(*range.first, range.last ? std::min(*range.last, size - 1) + 1 : size);
}

std::string answer_head(int status, std::uint64_t size, std::string_view more) {
  const auto* const known = std::ranges::find(kStatuses, status, &StatusName::number);
  // A page shares memory between threads only if it is isolated; what is answered concerns this page alone.
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n"
      "Cross-Origin-Resource-Policy: same-origin\r\nX-Content-Type-Options: nosniff\r\n"
      "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n{}\r\n",
      status, known == kStatuses.end() ? "Unknown" : known->name, size, more);
}

std::string_view content_type(std::string_view name) {
  for (const ContentType& type : kTypes) {
    if (name.ends_with(type.ending)) return type.type;
  }
  return "application/octet-stream";
}

}  // namespace doppler::cli
