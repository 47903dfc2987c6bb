#include "base/columns.h"

#include <utf8proc.h>

#include "base/unicode.h"

namespace doppler {

unsigned columns_of(char32_t c) {
  return static_cast<unsigned>(utf8proc_charwidth(static_cast<utf8proc_int32_t>(c)));
}

std::size_t columns_of(std::string_view text) {
  constexpr std::string_view kAsEmoji =
      "\xef\xb8\x8f";  // U+FE0F: the character before it is drawn as an emoji
  std::size_t columns = 0;
  while (!text.empty()) {
    const std::string_view cluster = text.substr(0, grapheme_length(text));
    const bool emoji = cluster.find(kAsEmoji) != std::string_view::npos;
    columns += emoji ? 2 : columns_of(first_code_point(cluster).value);
    text.remove_prefix(cluster.size());
  }
  return columns;
}

}  // namespace doppler
