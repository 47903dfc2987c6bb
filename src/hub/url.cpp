#include "hub/url.h"

#include <algorithm>

#include "base/text.h"

namespace doppler::hub {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Address {
  std::string scheme, authority;
  std::string_view rest;  // path, query and fragment
};

std::optional<Address> take_apart(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) return std::nullopt;
  Address address{ascii_lower(url.substr(0, colon)), "", {}};
  if (address.scheme != "http" && address.scheme != "https") return std::nullopt;
  const std::string_view after = url.substr(colon + 3);
  const std::size_t end = std::min(after.find_first_of("/?#"), after.size());
  address.authority = ascii_lower(after.substr(0, end));
  address.rest = after.substr(end);
  return address;
}

std::string escape(std::string_view text, std::string_view kept) {
  std::string out;
  for (const char c : text) {
    if (is_letter(c) || is_digit(c) || kept.find(c) != std::string_view::npos) {
      out += c;
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

}  // namespace

std::optional<std::string> origin_of(std::string_view url) {
  const std::optional<Address> address = take_apart(url);
  // Visible ASCII only: what an address may hold, and nothing that could end a header.
  if (!address || !std::ranges::all_of(url, [](char c) { return c > ' ' && c < '\x7f'; }))
    return std::nullopt;
  std::string_view host = address->authority;
  std::string port = address->scheme == "https" ? "443" : "80";
  const std::size_t colon = host.ends_with(']') ? std::string_view::npos : host.rfind(':');
  if (colon != std::string_view::npos) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
    if (port.empty() || port.size() > 5 || !std::ranges::all_of(port, is_digit)) return std::nullopt;
  }
  const bool plain = std::ranges::all_of(
      host, [](char c) { return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_'; });
  // An IPv6 address in brackets.
  const bool literal = host.starts_with('[') && host.ends_with(']') &&
                       host.find_first_not_of("[]0123456789abcdef:.") == std::string_view::npos;
  if (host.empty() || !(plain || literal)) return std::nullopt;
  return address->scheme + "://" + std::string(host) + ":" + port;
}

std::optional<std::string> follow(std::string_view base, std::string_view location) {
  const std::optional<Address> from = take_apart(base);
  if (!from || location.empty()) return std::nullopt;
  const std::string root = from->scheme + "://" + from->authority;
  std::string url;
  if (location.find("://") < location.find_first_of("/?#")) {
    url = location;
  } else if (location.starts_with("//")) {
    url = from->scheme + ":" + std::string(location);
  } else if (location.starts_with('/')) {
    url = root + std::string(location);
  } else {
    const std::string_view path = from->rest.substr(0, from->rest.find_first_of("?#"));
    const std::size_t slash = path.rfind('/');
    url = root + (slash == std::string_view::npos ? "/" : std::string(path.substr(0, slash + 1))) +
          std::string(location);
  }
  if (!origin_of(url)) return std::nullopt;
  return url;
}

std::string escape_path(std::string_view text) {
  return escape(text, "-._~/");
}

std::string escape_segment(std::string_view text) {
  return escape(text, "-._~");
}

}  // namespace doppler::hub
