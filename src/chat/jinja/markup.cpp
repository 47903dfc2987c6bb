#include "chat/jinja/markup.h"

#include "chat/jinja/text_form.h"

namespace doppler::chat::jinja {

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
