// Tokens to the tree, with the grammar and the precedence of Jinja 3.1.
#pragma once

#include <memory>
#include <string_view>

#include "chat/jinja/ast.h"
#include "chat/jinja/lexer.h"

namespace doppler::chat::jinja {

// Deeper nesting of expressions and statements than templates have; bounds the parser's recursion.
inline constexpr int kMaxParseDepth = 100;

std::expected<std::shared_ptr<const Ast>, SyntaxError> parse_template(std::string_view source);

}  // namespace doppler::chat::jinja
