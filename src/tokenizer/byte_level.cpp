#include "tokenizer/byte_level.h"

#include <fmt/format.h>

#include "base/unicode.h"

namespace doppler::tokenizer {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// 256 bytes, 188 of which stand for themselves; the other 68 are U+0100 to U+0143.
constexpr unsigned kAlphabetEnd = 0x144;

struct Tables {
  std::array<char32_t, 256> chars{};
  std::array<std::int16_t, kAlphabetEnd> bytes{};
  constexpr Tables() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      chars[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      bytes[chars[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};
constexpr Tables kTables;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

char32_t byte_level_char(unsigned char byte) {
  return kTables.chars[byte];
}

std::optional<unsigned char> byte_of_char(char32_t c) {
  if (c >= kAlphabetEnd || kTables.bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(kTables.bytes[c]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) append_utf8(out, byte_level_char(static_cast<unsigned char>(byte)));
  return out;
}

void append_byte_level_decoded(std::string& out, std::string_view piece) {
  const std::size_t start = out.size();
  for (std::size_t i = 0; i < piece.size();) {
    const CodePoint c = first_code_point(piece.substr(i));
    const auto byte = byte_of_char(c.value);
    if (!byte) {
      out.resize(start);
      out += piece;
      return;
    }
    out.push_back(static_cast<char>(*byte));
    i += c.length;
  }
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || !piece.ends_with('>')) return std::nullopt;
  const int high = hex_value(piece[3]), low = hex_value(piece[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

std::string piece_of_byte(unsigned char byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace doppler::tokenizer
