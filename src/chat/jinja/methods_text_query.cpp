// String methods that answer questions.
#include <algorithm>
#include <limits>

#include "chat/jinja/arguments.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

// The part of the string that `start` and `end` leave, and its first character's index. Nothing if start is
// behind the end of the string: not even the empty string is found there.
struct Window {
  std::string_view text;
  std::int64_t offset = 0;
  bool possible = true;
};

Result<Window> window_of(const Call& call) {
  const auto& string = call.self.as<StringObject>();
  const auto size = static_cast<std::int64_t>(string.characters);
  DOPPLER_ASSIGN(std::int64_t start, index_argument(call, 1, 0));
  DOPPLER_ASSIGN(std::int64_t end, index_argument(call, 2, size));
  if (start < 0) start = std::max<std::int64_t>(0, start + size);
  if (end < 0) end = std::max<std::int64_t>(0, end + size);
  end = std::min(end, size);
  Window window;
  window.offset = start;
  window.possible = start <= end;
  if (!window.possible) return window;
  const std::string_view text = string.text;
  const std::size_t begin = byte_offset(text, static_cast<std::size_t>(start));
  window.text = text.substr(begin, byte_offset(text.substr(begin), static_cast<std::size_t>(end - start)));
  return window;
}

// The character index of the argument in the string, or -1.
Result<std::int64_t> position_of(Call& call, bool from_right) {
  if (!call[0]->is_string()) return type_error("must be str, not {}", type_name(*call[0]));
  DOPPLER_ASSIGN(const Window window, window_of(call));
  DOPPLER_TRY(call.rt.spend(call.self.text().size() / 64));
  if (!window.possible) return -1;
  const std::string& wanted = call[0]->text();
  const std::size_t found = from_right ? window.text.rfind(wanted) : window.text.find(wanted);
  if (found == std::string_view::npos) return -1;
  return window.offset + static_cast<std::int64_t>(count_code_points(window.text.substr(0, found)));
}

template <bool kFromRight>
Result<Value> find(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t position, position_of(call, kFromRight));
  return Value::integer(position);
}

template <bool kFromRight>
Result<Value> index(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t position, position_of(call, kFromRight));
  if (position < 0) return type_error("substring not found");
  return Value::integer(position);
}

Result<Value> count(Call& call) {
  if (!call[0]->is_string()) return type_error("must be str, not {}", type_name(*call[0]));
  DOPPLER_ASSIGN(const Window window, window_of(call));
  DOPPLER_TRY(call.rt.spend(call.self.text().size() / 16));
  if (!window.possible) return Value::integer(0);
  const std::string& wanted = call[0]->text();
  if (wanted.empty()) return Value::integer(static_cast<Integer>(count_code_points(window.text)) + 1);
  Integer times = 0;
  for (std::size_t at = window.text.find(wanted); at != std::string_view::npos;
       at = window.text.find(wanted, at + wanted.size())) {
    ++times;
  }
  return Value::integer(times);
}

template <bool kStart>
Result<Value> has_affix(Call& call) {
  DOPPLER_ASSIGN(const Window window, window_of(call));
  const auto matches = [&](const Value& affix) {
    return window.possible &&
           (kStart ? window.text.starts_with(affix.text()) : window.text.ends_with(affix.text()));
  };
  if (call[0]->is_string()) return Value::boolean(matches(*call[0]));
  const char* name = kStart ? "startswith" : "endswith";
  if (!call[0]->is(Kind::kTuple)) {
    return type_error("{} first arg must be str or a tuple of str, not {}", name, type_name(*call[0]));
  }
  for (const Value& affix : call[0]->as<ListObject>().items) {
    if (!affix.is_string())
      return type_error("tuple for {} must only contain str, not {}", name, type_name(affix));
    if (matches(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

// True if there is a character and all of them pass.
template <bool (*Passes)(char32_t)>
Result<Value> all_are(Call& call) {
  const auto codes = code_points(call.self.text());
  return Value::boolean(!codes.empty() && std::all_of(codes.begin(), codes.end(), Passes));
}

bool alphanumeric(char32_t code) {
  return is_letter(code) || is_numeric(code);
}
bool not_lower(char32_t code) {
  return !is_lower(code) && !is_title(code);
}
bool not_upper(char32_t code) {
  return !is_upper(code) && !is_title(code);
}

template <bool (*Wanted)(char32_t), bool (*Allowed)(char32_t)>
Result<Value> cased(Call& call) {
  const auto codes = code_points(call.self.text());
  return Value::boolean(std::any_of(codes.begin(), codes.end(), Wanted) &&
                        std::all_of(codes.begin(), codes.end(), Allowed));
}

Result<Value> is_titled(Call& call) {
  bool any = false, after_cased = false;
  for (const char32_t code : code_points(call.self.text())) {
    const bool upper = is_upper(code) || is_title(code), lower = is_lower(code);
    if ((upper && after_cased) || (lower && !after_cased)) return Value::boolean(false);
    any |= upper || lower;
    after_cased = upper || lower;
  }
  return Value::boolean(any);
}

Result<Value> is_ascii(Call& call) {
  return Value::boolean(call.self.as<StringObject>().ascii());
}

Result<Value> is_all_printable(Call& call) {
  const auto codes = code_points(call.self.text());
  return Value::boolean(std::all_of(codes.begin(), codes.end(), is_printable));
}

Result<Value> is_identifier(Call& call) {
  const auto codes = code_points(call.self.text());
  const bool starts = !codes.empty() && (is_letter(codes[0]) || codes[0] == '_');
  return Value::boolean(starts && std::all_of(codes.begin(), codes.end(), is_word));
}

constexpr Builtin kTextQueryMethods[] = {
    {"startswith", "prefix start? end?", has_affix<true>},
    {"endswith", "suffix start? end?", has_affix<false>},
    {"find", "sub start? end?", find<false>},
    {"rfind", "sub start? end?", find<true>},
    {"index", "sub start? end?", index<false>},
    {"rindex", "sub start? end?", index<true>},
    {"count", "sub start? end?", count},
    {"isdigit", "", all_are<is_digit>},
    {"isdecimal", "", all_are<is_decimal>},
    {"isnumeric", "", all_are<is_numeric>},
    {"isalpha", "", all_are<is_letter>},
    {"isalnum", "", all_are<alphanumeric>},
    {"isspace", "", all_are<is_space>},
    {"isupper", "", cased<is_upper, not_lower>},
    {"islower", "", cased<is_lower, not_upper>},
    {"istitle", "", is_titled},
    {"isascii", "", is_ascii},
    {"isprintable", "", is_all_printable},
    {"isidentifier", "", is_identifier},
};

}  // namespace

std::span<const Builtin> text_query_methods() {
  return kTextQueryMethods;
}

}  // namespace doppler::chat::jinja
