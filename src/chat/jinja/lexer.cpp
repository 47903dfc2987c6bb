#include "chat/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}

// Longest first, so that the first match is the right one.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string normalized_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

struct SimpleEscape {
  char letter;
  char byte;
};
constexpr SimpleEscape kEscapes[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'},  {'a', '\a'},  {'b', '\b'},
                                     {'f', '\f'}, {'v', '\v'}, {'\\', '\\'}, {'\'', '\''}, {'"', '"'}};

// Digits in `base` at `text[at]`, at most `limit`; how many there are.
std::size_t read_digits(std::string_view text, std::size_t at, std::size_t limit, int base,
                        std::uint32_t& value) {
  const char* begin = text.data() + at;
  const char* end = begin + std::min(limit, text.size() - at);
  if (begin == end || *begin == '-') return 0;
  const auto result = std::from_chars(begin, end, value, base);
  return static_cast<std::size_t>(result.ptr - begin);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized_newlines(source)) {}

  std::expected<std::vector<Token>, SyntaxError> run() {
    while (!failed_ && lex_data()) {
    }
    if (failed_) return std::unexpected(error_);
    push(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool starts(std::string_view text) const { return rest().starts_with(text); }

  Token& push(TokenKind kind, std::string text = {}) {
    Token& token = tokens_.emplace_back();
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    return token;
  }

  bool fail(std::string message) {
    if (!failed_) error_ = {line_, std::move(message), ErrorCode::kCorrupt};
    failed_ = true;
    return false;
  }

  // Steps over `count` bytes; a following tag is at the start of a line if the last one is a newline.
  void advance(std::size_t count) {
    const std::string_view passed = rest().substr(0, count);
    line_ += static_cast<std::uint32_t>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) line_starting_ = passed.back() == '\n';
    position_ += count;
  }

  std::size_t space_length(std::size_t from) const {
    std::size_t at = from;
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(source_, next))) break;
      at = next;
    }
    return at - from;
  }

  // The text before a tag as the tag's sign and lstrip_blocks leave it.
  void push_data(std::string_view text, char sign, bool block) {
    const std::size_t begin = position_;
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip(text, nullptr, false, true);
    } else if (sign != '+' && block) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if (line_begin > 0 || line_starting_) {
        const std::string_view tail = text.substr(line_begin);
        if (!tail.empty() && space_length(begin + line_begin) >= tail.size())
          kept = text.substr(0, line_begin);
      }
    }
    if (!kept.empty()) push(TokenKind::kData, std::string(kept));
  }

  char sign_at(std::size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  // Where a tag begins after `from`, or the end of the source.
  std::size_t find_tag(std::size_t from) const {
    for (std::size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '%' || next == '{' || next == '#') return at;
    }
    return source_.size();
  }

  // If `{% raw %}` stands at `at`: its length, else 0.
  std::size_t raw_begin_length(std::size_t at) const {
    std::size_t p = at + 2;
    if (sign_at(p) != '\0') ++p;
    p += space_length(p);
    if (source_.compare(p, 3, "raw") != 0) return 0;
    p += 3;
    p += space_length(p);
    if (source_.compare(p, 3, "-%}") == 0) return p + 3 + space_length(p + 3) - at;
    return source_.compare(p, 2, "%}") == 0 ? p + 2 - at : 0;
  }

  // One stretch of text and the tag behind it. False at the end of the source.
  bool lex_data() {
    const std::size_t at = find_tag(position_);
    const std::string_view text = rest().substr(0, at - position_);
    if (at >= source_.size()) {
      if (!text.empty()) push(TokenKind::kData, std::string(text));
      advance(text.size());
      return false;
    }
    const char type = source_[at + 1];
    const char sign = sign_at(at + 2);
    push_data(text, sign, type != '{');
    if (type == '%') {
      if (const std::size_t raw = raw_begin_length(at); raw > 0) {
        advance(text.size() + raw);
        return lex_raw();
      }
    }
    advance(text.size() + 2 + (sign != '\0' ? 1 : 0));
    if (type == '#') return lex_comment();
    push(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    return lex_tag(type == '{');
  }

  // The length of a tag's end at `at`: with a sign, the close, and what it swallows. 0 if there is none.
  std::size_t end_length(std::size_t at, std::string_view close, bool trims, bool plus) const {
    const std::string_view text = std::string_view(source_).substr(at);
    if (text.starts_with('-') && text.substr(1).starts_with(close)) {
      return 1 + close.size() + space_length(at + 1 + close.size());
    }
    if (plus && text.starts_with('+') && text.substr(1).starts_with(close)) return 1 + close.size();
    if (!text.starts_with(close)) return 0;
    return close.size() + (trims && text.substr(close.size()).starts_with('\n') ? 1 : 0);
  }

  bool lex_comment() {
    const std::size_t close = source_.find("#}", position_);
    if (close == std::string::npos) return fail("Missing end of comment tag");
    // The sign belongs to the end if it stands directly before it.
    std::size_t at = close;
    if (at > position_ && (source_[at - 1] == '-' || source_[at - 1] == '+')) --at;
    advance(at - position_);
    advance(end_length(at, "#}", true, true));
    return true;
  }

  bool lex_raw() {
    for (std::size_t at = source_.find("{%", position_); at != std::string::npos;
         at = source_.find("{%", at + 1)) {
      std::size_t p = at + 2;
      const char sign = sign_at(p);
      if (sign != '\0') ++p;
      p += space_length(p);
      if (source_.compare(p, 6, "endraw") != 0) continue;
      p += 6;
      p += space_length(p);
      const std::size_t end = end_length(p, "%}", true, true);
      if (end == 0) continue;
      push_data(rest().substr(0, at - position_), sign, true);
      advance(p + end - position_);
      return true;
    }
    return fail("Missing end of raw directive");
  }

  // The inside of {{ }} or {% %}. Returns true behind the end of the tag.
  bool lex_tag(bool variable) {
    const std::string_view close = variable ? "}}" : "%}";
    std::vector<char> open;
    while (position_ < source_.size()) {
      if (open.empty()) {
        if (const std::size_t end = end_length(position_, close, !variable, !variable); end > 0) {
          push(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
          advance(end);
          return true;
        }
      }
      if (const std::size_t space = space_length(position_); space > 0) {
        advance(space);
      } else if (!lex_number() && !lex_name() && !lex_string() && !failed_ && !lex_operator(open)) {
        return false;
      }
      if (failed_) return false;
    }
    return false;  // the parser reports the missing end
  }

  // Digits with single underscores between them, from `at`; the offset behind them.
  std::size_t skip_digits(std::size_t at) const {
    while (at < source_.size() && digit(source_[at])) {
      ++at;
      if (at + 1 < source_.size() && source_[at] == '_' && digit(source_[at + 1])) ++at;
    }
    return at;
  }

  bool lex_number() {
    if (!digit(source_[position_])) return false;
    return lex_float() || lex_integer();
  }

  bool lex_float() {
    if (position_ > 0 && source_[position_ - 1] == '.') return false;
    std::size_t at = skip_digits(position_);
    bool real = false;
    if (at + 1 < source_.size() && source_[at] == '.' && digit(source_[at + 1])) {
      at = skip_digits(at + 1);
      real = true;
    }
    if (at < source_.size() && (source_[at] == 'e' || source_[at] == 'E')) {
      std::size_t exponent = at + 1;
      if (sign_at(exponent) != '\0') ++exponent;
      if (exponent < source_.size() && digit(source_[exponent])) {
        at = skip_digits(exponent);
        real = true;
      }
    }
    if (!real) return false;
    std::string digits(source_, position_, at - position_);
    std::erase(digits, '_');
    Token& token = push(TokenKind::kFloat, digits);
    token.real = std::strtod(digits.c_str(), nullptr);
    advance(at - position_);
    return true;
  }

  bool lex_integer() {
    const std::string_view text = rest();
    int base = 10;
    if (text.size() > 2 && text[0] == '0') {
      const char letter = static_cast<char>(text[1] | 0x20);
      base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    }
    std::size_t at = base == 10 ? 0 : 2;
    Integer value = 0;
    bool any = false;
    const bool zeros = base == 10 && text[0] == '0';
    while (at < text.size()) {
      std::size_t next = at;
      if (text[next] == '_' && (any || base != 10) && next + 1 < text.size()) ++next;
      std::uint32_t one = 0;
      if (read_digits(text, next, 1, base, one) == 0 || (zeros && one != 0)) break;
      if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) ||
          __builtin_add_overflow(value, static_cast<Integer>(one), &value)) {
        return fail("an integer has too many digits");
      }
      any = true;
      at = next + 1;
    }
    if (!any) {  // "0x" without digits is 0 and a name
      at = 1;
      value = 0;
    }
    Token& token = push(TokenKind::kInteger, std::string(text.substr(0, at)));
    token.integer = value;
    advance(at);
    return true;
  }

  bool lex_name() {
    std::size_t at = position_;
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_word(next_code_point(source_, next))) break;
      at = next;
    }
    if (at == position_) return false;
    push(TokenKind::kName, source_.substr(position_, at - position_));
    advance(at - position_);
    return true;
  }

  bool lex_string() {
    const char quote = source_[position_];
    if (quote != '\'' && quote != '"') return false;
    std::size_t at = position_ + 1;
    while (at < source_.size() && source_[at] != quote) at += source_[at] == '\\' ? 2 : 1;
    if (at >= source_.size()) return fail(fmt::format("unexpected char '{}'", quote));
    const std::string_view raw = std::string_view(source_).substr(position_ + 1, at - position_ - 1);
    std::string value;
    if (!unescape(raw, value)) return false;
    push(TokenKind::kString, std::move(value));
    advance(at + 1 - position_);
    return true;
  }

  bool unescape(std::string_view raw, std::string& out) {
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        out += raw[i];
        continue;
      }
      const char letter = raw[++i];
      const auto* simple =
          std::find_if(std::begin(kEscapes), std::end(kEscapes), [&](auto e) { return e.letter == letter; });
      std::uint32_t code = 0;
      if (simple != std::end(kEscapes)) {
        out += simple->byte;
      } else if (letter == '\n') {  // an escaped line end vanishes
      } else if (letter == 'x' || letter == 'u' || letter == 'U') {
        const std::size_t wanted = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
        if (read_digits(raw, i + 1, wanted, 16, code) != wanted || code > 0x10ffff) {
          return fail(fmt::format("truncated \\{} escape in a string", letter));
        }
        append_code_point(out, code);
        i += wanted;
      } else if (letter >= '0' && letter <= '7') {
        i += read_digits(raw, i, 3, 8, code) - 1;
        append_code_point(out, code);
      } else if (letter == 'N') {
        return fail("characters by name (\\N{...}) are not supported in strings");
      } else {  // an unknown escape stays as it is
        out += '\\';
        out += letter;
      }
    }
    return true;
  }

  bool lex_operator(std::vector<char>& open) {
    for (const std::string_view op : kOperators) {
      if (!starts(op)) continue;
      const char c = op[0];
      if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) return fail(fmt::format("unexpected '{}'", c));
        if (open.back() != c) return fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      push(TokenKind::kOperator, std::string(op));
      advance(op.size());
      return true;
    }
    std::size_t end = position_;
    std::string shown;
    append_code_point(shown, next_code_point(source_, end));
    return fail(fmt::format("unexpected char '{}'", shown));
  }

  std::string source_;
  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  std::uint32_t line_ = 1;
  bool line_starting_ = true;
  bool failed_ = false;
  SyntaxError error_;
};

}  // namespace

std::expected<std::vector<Token>, SyntaxError> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace doppler::chat::jinja
