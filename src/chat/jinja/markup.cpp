#include "chat/jinja/markup.h"

#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Value as_markup(Runtime& rt, const Value& value) {
  if (value.is_string()) return rt.markup(value.text());
  if (!value.is(Kind::kList) && !value.is(Kind::kTuple)) return value;
  Values items;
  for (const Value& item : value.as<ListObject>().items) {
    items.push_back(item.is_string() ? rt.markup(item.text()) : item);
  }
  return value.is(Kind::kList) ? rt.list(std::move(items)) : rt.tuple(std::move(items));
}

Result<std::string> escaped_text(Runtime& rt, const Value& value) {
  DOPPLER_ASSIGN(std::string text, to_text(rt, value));
  return is_markup(value) ? text : escape_html(text);
}

}  // namespace doppler::chat::jinja
