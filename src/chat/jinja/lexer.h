// Template text to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/jinja/value.h"

namespace doppler::chat::jinja {

enum class TokenKind : std::uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // text is the operator itself
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::uint32_t line = 1;
  std::string text;  // data, name, operator, or the value of a string
  Integer integer = 0;
  double real = 0;

  bool is(TokenKind k) const { return kind == k; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
};

// Syntax errors carry the line in their message: "line 3: unexpected char '?'".
struct SyntaxError {
  std::uint32_t line = 1;
  std::string message;
  ErrorCode code = ErrorCode::kCorrupt;
};

// `source` must be valid UTF-8. Newlines of any kind become \n, and one at the very end is dropped.
std::expected<std::vector<Token>, SyntaxError> tokenize_template(std::string_view source);

}  // namespace doppler::chat::jinja
