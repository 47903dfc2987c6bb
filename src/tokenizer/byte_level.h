// The byte-level alphabet of GPT-2: each byte as one printable character, so that vocabularies are plain
// text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace doppler::tokenizer {

// The character that stands for a byte: itself if it is printable in Latin-1, else U+0100 and on in byte
// order.
char32_t byte_level_char(unsigned char byte);
// The way back; nothing for characters outside the alphabet.
std::optional<unsigned char> byte_of_char(char32_t c);

std::string to_byte_level(std::string_view bytes);
// The bytes of a piece; a piece with any character outside the alphabet stands for its own UTF-8 bytes.
void append_byte_level_decoded(std::string& out, std::string_view piece);

// The byte that a piece <0xNN> stands for.
std::optional<unsigned char> byte_of_piece(std::string_view piece);
std::string piece_of_byte(unsigned char byte);

}  // namespace doppler::tokenizer
