// Filters that make text.
#include <algorithm>
#include <limits>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/text_methods.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

Result<Value> filter_string(Call& call) {
  if (call.self.is_string()) return call.self;
  DOPPLER_ASSIGN(std::string text, to_text(call.rt, call.self));
  return call.rt.text(std::move(text));
}

template <std::string (*Change)(std::string_view)>
Result<Value> filter_changed(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  DOPPLER_TRY(call.rt.spend(text.size() / 16));
  return call.rt.text(Change(text));
}

// Jinja's own title: words begin after whitespace and - ( { [ <, and their first letter is upper case.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  std::string word;
  const auto flush = [&] {
    if (word.empty()) return;
    std::size_t first = 0;
    next_code_point(word, first);
    out += to_upper(std::string_view(word).substr(0, first)) + to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    const bool separator =
        is_space(code) || code == '-' || code == '(' || code == '{' || code == '[' || code == '<';
    if (separator && !begins) flush();
    if (separator)
      out.append(text, begin, at - begin);
    else
      word.append(text, begin, at - begin);
    begins = separator;
  }
  flush();
  return out;
}

Result<Value> filter_escape(Call& call) {
  if (is_markup(call.self)) return call.self;
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  return call.rt.markup(escape_html(text));
}

Result<Value> filter_force_escape(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  return call.rt.markup(escape_html(text));
}

Result<Value> filter_safe(Call& call) {
  DOPPLER_ASSIGN(std::string text, to_text(call.rt, call.self));
  return call.rt.markup(std::move(text));
}

Result<Value> filter_trim(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  if (call[0] == nullptr || call[0]->is_none())
    return call.rt.text(std::string(strip(text, nullptr, true, true)));
  if (!call[0]->is_string()) return type_error("strip arg must be None or str, not {}", type_name(*call[0]));
  const std::string_view set = call[0]->text();
  return call.rt.text(std::string(strip(text, &set, true, true)));
}

Result<Value> filter_replace(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  DOPPLER_ASSIGN(const std::string from, text_argument(call, 0, ""));
  DOPPLER_ASSIGN(const std::string to, text_argument(call, 1, ""));
  DOPPLER_ASSIGN(const std::int64_t count, index_argument(call, 2, -1));
  return replace_text(call.rt, text, from, to, count);
}

Result<Value> filter_indent(Call& call) {
  DOPPLER_TRY(require_defined(call.self));
  if (!call.self.is_string()) {
    return type_error("unsupported operand type(s) for +=: '{}' and 'str'", type_name(call.self));
  }
  DOPPLER_ASSIGN(std::string text, to_text(call.rt, call.self));
  std::string indent(4, ' ');
  if (call[0] != nullptr && call[0]->is_string()) {
    indent = call[0]->text();
  } else {
    DOPPLER_ASSIGN(const std::int64_t width, index_argument(call, 0, 4));
    DOPPLER_TRY(Runtime::check_text_size(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 0))));
    indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool first = flag_argument(call, 1, false), blank = flag_argument(call, 2, false);
  text += '\n';
  std::string out = first ? indent : "";
  bool begun = false;
  for (const std::string_view line : split_lines(text, false)) {
    if (begun) out += '\n';
    if (begun && (blank || !line.empty())) out += indent;
    DOPPLER_TRY(Runtime::check_text_size(out.size() + indent.size()));
    out += line;
    begun = true;
  }
  return call.rt.text(std::move(out));
}

Result<Value> filter_wordcount(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  Integer words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const bool word = is_word(next_code_point(text, at));
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::integer(words);
}

Result<Value> filter_truncate(Call& call) {
  const auto size = length_of(call.self);
  if (!size) return type_error("object of type '{}' has no len()", type_name(call.self));
  DOPPLER_ASSIGN(const std::int64_t length, index_argument(call, 0, 255));
  DOPPLER_ASSIGN(const std::string end, text_argument(call, 2, "..."));
  DOPPLER_ASSIGN(const std::int64_t leeway, index_argument(call, 3, 5));
  const auto end_length = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_length) return type_error("expected length >= {}, got {}", end_length, length);
  if (leeway < 0) return type_error("expected leeway >= 0, got {}", leeway);
  if (static_cast<std::int64_t>(*size) <= length + leeway) return call.self;
  if (!call.self.is_string()) return type_error("can only truncate str (not \"{}\")", type_name(call.self));
  const std::string& text = call.self.text();
  std::string_view kept =
      std::string_view(text).substr(0, byte_offset(text, static_cast<std::size_t>(length - end_length)));
  if (!flag_argument(call, 1, false)) kept = kept.substr(0, kept.rfind(' '));
  return call.rt.text(std::string(kept) + (is_markup(call.self) ? escape_html(end) : end));
}

Result<Value> filter_format(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  const bool named = !call.given.named.empty();
  if (named && !call.given.positional.empty()) {
    return type_error("can't handle positional and keyword arguments at the same time");
  }
  Value values = call.rt.tuple(call.given.positional);
  if (named) {
    std::vector<DictObject::Entry> entries;
    for (const auto& [name, value] : call.given.named) entries.emplace_back(call.rt.text(name), value);
    values = call.rt.dict(std::move(entries));
  }
  DOPPLER_ASSIGN(std::string out, format_percent(call.rt, text, values, is_markup(call.self)));
  return call.rt.text(std::move(out));
}

std::string percent_encode(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query))
      out += c;
    else if (c == ' ' && query)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Result<Value> filter_urlencode(Call& call) {
  if (!call.self.is(Kind::kDict) && !call.self.is(Kind::kList) && !call.self.is(Kind::kTuple)) {
    DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
    return call.rt.text(percent_encode(text, false));
  }
  Values pairs;
  if (call.self.is(Kind::kDict)) {
    for (const auto& [key, value] : call.self.as<DictObject>().entries)
      pairs.push_back(call.rt.tuple({key, value}));
  } else {
    pairs = call.self.as<ListObject>().items;
  }
  std::string out;
  for (const Value& pair : pairs) {
    DOPPLER_ASSIGN(const Items parts, iterate(call.rt, pair));
    if (parts->size() != 2)
      return type_error("not enough values to unpack (expected 2, got {})", parts->size());
    DOPPLER_ASSIGN(const std::string key, to_text(call.rt, (*parts)[0]));
    DOPPLER_ASSIGN(const std::string value, to_text(call.rt, (*parts)[1]));
    if (!out.empty()) out += '&';
    out += percent_encode(key, true) + "=" + percent_encode(value, true);
  }
  return call.rt.text(std::move(out));
}

Result<Value> filter_center(Call& call) {
  DOPPLER_ASSIGN(const std::string text, to_text(call.rt, call.self));
  DOPPLER_ASSIGN(const std::int64_t width, index_argument(call, 0, 80));
  return pad_text(call.rt, text, width, " ", Alignment::kCenter);
}

Result<Value> filter_tojson(Call& call) {
  JsonStyle style;
  style.ascii = flag_argument(call, 0, false);
  style.sort_keys = flag_argument(call, 3, false);
  if (const Value* indent = call[1]; indent != nullptr && !indent->is_none()) {
    style.indented = true;
    style.item_separator = ",";
    if (indent->is_string()) {
      style.indent = indent->text();
    } else {
      DOPPLER_ASSIGN(const std::int64_t width, to_index(*indent));
      DOPPLER_TRY(Runtime::check_text_size(static_cast<std::uint64_t>(std::max<std::int64_t>(width, 0))));
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  if (const Value* separators = call[2]; separators != nullptr && !separators->is_none()) {
    DOPPLER_ASSIGN(const Items both, iterate(call.rt, *separators));
    if (both->size() != 2)
      return type_error("not enough values to unpack (expected 2, got {})", both->size());
    DOPPLER_ASSIGN(style.item_separator, to_text(call.rt, (*both)[0]));
    DOPPLER_ASSIGN(style.key_separator, to_text(call.rt, (*both)[1]));
  }
  DOPPLER_ASSIGN(std::string out, to_json(call.rt, call.self, style));
  return call.rt.text(std::move(out));
}

Result<Value> filter_pprint(Call& call) {
  DOPPLER_ASSIGN(std::string out, to_repr(call.rt, call.self));
  return call.rt.text(std::move(out));
}

constexpr Builtin kTextFilters[] = {
    {"tojson", "ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"trim", "chars?", filter_trim, true},
    {"string", "", filter_string},
    {"upper", "", filter_changed<to_upper>, true},
    {"lower", "", filter_changed<to_lower>, true},
    {"title", "", filter_changed<title_words>},
    {"capitalize", "", filter_changed<to_capitalized>, true},
    {"replace", "old new count?", filter_replace},
    {"indent", "width? first? blank?", filter_indent, true},
    {"escape", "", filter_escape},
    {"e", "", filter_escape},
    {"forceescape", "", filter_force_escape},
    {"safe", "", filter_safe},
    {"wordcount", "", filter_wordcount},
    {"truncate", "length? killwords? end? leeway?", filter_truncate, true},
    {"format", "*", filter_format, true},
    {"urlencode", "", filter_urlencode},
    {"center", "width?", filter_center, true},
    {"pprint", "", filter_pprint},
};

}  // namespace

std::span<const Builtin> text_filters() {
  return kTextFilters;
}

}  // namespace doppler::chat::jinja
