#include "tokenizer/regex_syntax.h"

#include <array>
#include <utility>
#include <vector>

#include "base/unicode.h"

namespace doppler::tokenizer {
namespace {

// White_Space of Unicode, for use inside brackets. PCRE2's \s also holds U+180E.
constexpr std::string_view kSpaceMembers =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// Oniguruma's word characters. PCRE2's \w lacks marks and connectors and holds all numbers.
constexpr std::string_view kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHexMembers = "0-9a-fA-F";

// General categories by their long names (UAX 44, table 12), which PCRE2 knows by their short ones only.
constexpr auto kCategories = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"surrogate", "Cs"},
    {"privateuse", "Co"},
    {"unassigned", "Cn"},
    {"alpha", "Alphabetic"},
    {"digit", "Nd"},
    {"punct", "P"},
    {"upper", "Uppercase"},
    {"lower", "Lowercase"},
});

// Properties that are neither a category nor a script, as PCRE2 spells them; everything else long is a
// script.
constexpr auto kBinaryProperties = std::to_array<std::string_view>({
    "any",
    "alphabetic",
    "uppercase",
    "lowercase",
    "whitespace",
    "emoji",
    "emojipresentation",
    "emojimodifier",
    "emojimodifierbase",
    "emojicomponent",
    "extendedpictographic",
    "ideographic",
    "unifiedideograph",
    "math",
    "dash",
    "hexdigit",
    "asciihexdigit",
    "ascii",
    "idstart",
    "idcontinue",
    "xidstart",
    "xidcontinue",
    "diacritic",
    "extender",
    "defaultignorablecodepoint",
    "joincontrol",
    "variationselector",
    "cased",
    "caseignorable",
    "quotationmark",
    "regionalindicator",
    "radical",
    "graphemebase",
    "graphemeextend",
});

std::string loose_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '_' || c == '-') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
  }
  return out;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) DOPPLER_TRY(step());
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }

  std::unexpected<Error> unsupported(std::string_view construct) const {
    return fail(ErrorCode::kUnsupported,
                "The pattern {} uses {} at offset {}, which Doppler does not support. Rewrite the pattern "
                "without it.",
                in_, construct, at_);
  }

  Status step() {
    const char c = peek();
    if (c == '\\') return escape(/*in_class=*/false);
    if (c == '[') {
      atom_ = out_.size();
      return char_class();
    }
    if (c == '(') return open_group();
    if (c == ')') {
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
    } else if (c == '{') {
      return interval();
    } else if (c != '*' && c != '+' && c != '?') {
      atom_ = out_.size();
    }
    // A whole character moves at once, so that an atom never starts inside one.
    do out_.push_back(in_[at_++]);
    while (at_ < in_.size() && is_utf8_continuation(in_[at_]));
    return {};
  }

  Status open_group() {
    groups_.push_back(out_.size());
    out_.push_back(in_[at_++]);
    if (peek() == '*') return unsupported("a verb (*...)");
    if (peek() == '?' && peek(1) == '#') return unsupported("a comment (?#...)");
    if (peek() == '?' && (peek(1) == 'C' || peek(1) == 'R' || peek(1) == '&' || peek(1) == '0')) {
      return unsupported("recursion or a callout");
    }
    if (peek() == '?') out_.push_back(in_[at_++]);
    return {};
  }

  // {n,m} repeats the last atom. Followed by + it is a repeat of that repeat in Ruby, and possessive in Perl.
  Status interval() {
    std::size_t end = at_ + 1;
    while (end < in_.size() && ((in_[end] >= '0' && in_[end] <= '9') || in_[end] == ',')) ++end;
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    if (end >= in_.size() || in_[end] != '}' || body.empty() || body == ",") {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return {};
    }
    at_ = end + 1;
    out_ += body.front() == ',' ? fmt::format("{{0{}}}", body) : fmt::format("{{{}}}", body);
    if (peek() == '+') {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return {};
  }

  // [...] with classes inside it flattened: a union is what nesting means.
  Status char_class() {
    int depth = 0;
    do {
      if (at_ >= in_.size()) return unsupported("a class without its ]");
      const char c = in_[at_];
      if (next_is("[:")) {  // [:alpha:]
        const std::size_t end = in_.find(":]", at_);
        if (end == std::string_view::npos) return unsupported("a class without its ]");
        out_ += in_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else if (c == '[') {
        const bool negated = peek(1) == '^';
        if (depth > 0 && negated) return unsupported("a negated class inside a class");
        if (depth++ == 0) out_ += negated ? "[^" : "[";
        at_ += negated ? 2 : 1;
        if (peek() == ']') {  // a ] that comes first is a member
          out_ += "\\]";
          ++at_;
        }
      } else if (c == ']') {
        if (--depth == 0) out_.push_back(']');
        ++at_;
      } else if (next_is("&&")) {
        return unsupported("a class intersection (&&)");
      } else if (c == '\\') {
        DOPPLER_TRY(escape(/*in_class=*/true));
      } else {
        out_.push_back(in_[at_++]);
      }
    } while (depth > 0);
    return {};
  }

  void members(std::string_view set, bool negated, bool in_class) {
    at_ += 2;
    out_ += in_class ? std::string(set) : fmt::format("[{}{}]", negated ? "^" : "", set);
  }

  Status escape(bool in_class) {
    if (!in_class) atom_ = out_.size();
    const char c = peek(1);
    switch (c) {
      case 's':
        members(kSpaceMembers, false, in_class);
        return {};
      case 'w':
        members(kWordMembers, false, in_class);
        return {};
      case 'h':
        members(kHexMembers, false, in_class);
        return {};
      case 'S':
        if (in_class) {  // PCRE2's \S lacks U+180E, which is no space in Unicode
          out_ += "\\S\\x{180e}";
          at_ += 2;
        } else {
          members(kSpaceMembers, true, false);
        }
        return {};
      case 'W':
      case 'H':
        if (in_class) return unsupported(c == 'W' ? "\\W inside a class" : "\\H inside a class");
        members(c == 'W' ? kWordMembers : kHexMembers, true, false);
        return {};
      case 'b':
      case 'B':
        if (!in_class) return word_boundary(c == 'B');
        break;
      case 'p':
      case 'P':
        return property();
      case 'u':
        return hex_escape();
      case 'C':
        return unsupported("\\C");
      case 'g':
        return unsupported("\\g");
      default:
        break;
    }
    out_ += in_.substr(at_, 2);
    at_ += 2;
    // The rest of a character of several bytes follows as it is.
    while (at_ < in_.size() && is_utf8_continuation(in_[at_])) out_.push_back(in_[at_++]);
    return {};
  }

  Status word_boundary(bool negated) {
    at_ += 2;
    const std::string_view w = kWordMembers;
    out_ += negated ? fmt::format("(?:(?<=[{}])(?=[{}])|(?<![{}])(?![{}]))", w, w, w, w)
                    : fmt::format("(?:(?<=[{}])(?![{}])|(?<![{}])(?=[{}]))", w, w, w, w);
    return {};
  }

  Status hex_escape() {  // \u00e9 and \u{e9}
    const bool braced = peek(2) == '{';
    const std::size_t begin = at_ + (braced ? 3 : 2);
    std::size_t end = begin;
    while (end < in_.size() && end - begin < 6 &&
           std::string_view("0123456789abcdefABCDEF").contains(in_[end]) && (braced || end - begin < 4)) {
      ++end;
    }
    if (end == begin || (braced && (end >= in_.size() || in_[end] != '}')))
      return unsupported("an unfinished \\u");
    out_ += fmt::format("\\x{{{}}}", in_.substr(begin, end - begin));
    at_ = end + (braced ? 1 : 0);
    return {};
  }

  // \p{Name}, \p{^Name}, \P{Name}, \pL.
  Status property() {
    if (peek(2) != '{') {
      out_ += in_.substr(at_, 3);
      at_ += std::min<std::size_t>(3, in_.size() - at_);
      return {};
    }
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return unsupported("\\p without its }");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    bool negated = peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    at_ = end + 1;
    out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', property_name(name));
    return {};
  }

  static std::string property_name(std::string_view name) {
    if (name.size() <= 2 || name.contains('=') || name.contains(':')) return std::string(name);
    const std::string loose = loose_name(name);
    for (const auto& [known, short_name] : kCategories) {
      if (loose == known) return std::string(short_name);
    }
    for (const std::string_view known : kBinaryProperties) {
      if (loose == known) return std::string(name);
    }
    return "sc:" + std::string(name);  // a bare name would also match the script's extensions
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where in out_ the last atom begins
  std::vector<std::size_t> groups_;  // where in out_ the open groups begin
};

}  // namespace

Result<std::string> translate_regex(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace doppler::tokenizer
