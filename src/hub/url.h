// As much of web addresses as following redirects takes (RFC 3986).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace doppler::hub {

// "https://host:port", in lower case and with the port always written; nothing for anything but http and
// https with a plain host (no user names).
std::optional<std::string> origin_of(std::string_view url);

// Where `location` leads from `base`; nothing if that is no address as above.
std::optional<std::string> follow(std::string_view base, std::string_view location);

// Text as one or several parts of an address' path: all but letters, digits, - . _ ~ and / as %XX.
std::string escape_path(std::string_view text);
// The same, / included.
std::string escape_segment(std::string_view text);

}  // namespace doppler::hub
