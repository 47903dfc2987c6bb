#include "chat/jinja/text_form.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "chat/jinja/merge_sort.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

Status append_repr(Runtime& rt, std::string& out, const Value& value);

Status append_sequence(Runtime& rt, std::string& out, const Values& items, const char* open,
                       const char* close) {
  out += open;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    DOPPLER_TRY(append_repr(rt, out, items[i]));
  }
  out += close;
  return {};
}

Status append_dict(Runtime& rt, std::string& out, const DictObject& dict) {
  out += '{';
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out += ", ";
    DOPPLER_TRY(append_repr(rt, out, dict.entries[i].first));
    out += ": ";
    DOPPLER_TRY(append_repr(rt, out, dict.entries[i].second));
  }
  out += '}';
  return {};
}

std::string object_text(const Value& value) {
  switch (value.kind()) {
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      if (range.step == 1) return fmt::format("range({}, {})", range.start, range.stop);
      return fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
    }
    case Kind::kNamespace:
      return "<Namespace>";
    case Kind::kLoop:
      return "<LoopContext>";
    default:
      return fmt::format("<{} object>", type_name(value));
  }
}

Status append_repr(Runtime& rt, std::string& out, const Value& value) {
  DOPPLER_TRY(rt.spend(1));
  DOPPLER_TRY(Runtime::check_text_size(out.size()));
  switch (value.kind()) {
    case Kind::kString:
      out += value.as<StringObject>().markup ? "Markup(" + quoted_text(value.text()) + ")"
                                             : quoted_text(value.text());
      return {};
    case Kind::kUndefined:
      out += "Undefined";
      return {};
    default:
      return append_text(rt, out, value);
  }
}

void append_json_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    switch (c) {
      case '"':
        out += "\\\"";
        ++at;
        continue;
      case '\\':
        out += "\\\\";
        ++at;
        continue;
      case '\n':
        out += "\\n";
        ++at;
        continue;
      case '\r':
        out += "\\r";
        ++at;
        continue;
      case '\t':
        out += "\\t";
        ++at;
        continue;
      case '\f':
        out += "\\f";
        ++at;
        continue;
      case '\b':
        out += "\\b";
        ++at;
        continue;
      default:
        break;
    }
    const std::size_t begin = at;
    const std::uint32_t code = next_code_point(text, at);
    if (code < 0x20 || (ascii && code == 0x7f)) {
      if (code == 0x7f)
        out += c;
      else
        out += fmt::format("\\u{:04x}", code);
    } else if (!ascii || code < 0x7f) {
      out.append(text, begin, at - begin);
    } else if (code < 0x10000) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                         0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  out += '"';
}

std::string json_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return float_text(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& rt, const JsonStyle& style) : rt_(rt), style_(style) {}

  Status write(const Value& value, std::size_t level) {
    DOPPLER_TRY(rt_.spend(1));
    DOPPLER_TRY(Runtime::check_text_size(out_.size()));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return {};
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return {};
      case Kind::kInt:
        out_ += integer_text(value.as_integer());
        return {};
      case Kind::kFloat:
        out_ += json_float(value.as_real());
        return {};
      case Kind::kString:
        append_json_string(out_, value.text(), style_.ascii);
        return {};
      case Kind::kList:
      case Kind::kTuple:
        return write_list(value.as<ListObject>().items, level);
      case Kind::kDict:
        return write_dict(value.as<DictObject>(), level);
      default:
        return type_error("Object of type {} is not JSON serializable", type_name(value));
    }
  }
  std::string take() { return std::move(out_); }

 private:
  Status line(std::size_t level) {
    if (!style_.indented) return {};
    DOPPLER_TRY(Runtime::check_text_size(out_.size() + level * style_.indent.size()));
    out_ += '\n';
    for (std::size_t i = 0; i < level; ++i) out_ += style_.indent;
    return {};
  }

  Status write_list(const Values& items, std::size_t level) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      DOPPLER_TRY(line(level + 1));
      DOPPLER_TRY(write(items[i], level + 1));
    }
    if (!items.empty()) DOPPLER_TRY(line(level));
    out_ += ']';
    return {};
  }

  Result<std::string> key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        return key.text();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_bool() ? "true" : "false";
      case Kind::kInt:
        return integer_text(key.as_integer());
      case Kind::kFloat:
        return json_float(key.as_real());
      default:
        return type_error("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  Status write_dict(const DictObject& dict, std::size_t level) {
    std::vector<const DictObject::Entry*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) DOPPLER_TRY(sort(entries));
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      DOPPLER_TRY(line(level + 1));
      DOPPLER_ASSIGN(const std::string key, key_text(entries[i]->first));
      append_json_string(out_, key, style_.ascii);
      out_ += style_.key_separator;
      DOPPLER_TRY(write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) DOPPLER_TRY(line(level));
    out_ += '}';
    return {};
  }

  Status sort(std::vector<const DictObject::Entry*>& entries) {
    return merge_sort(entries, [&](const auto* a, const auto* b) -> Result<bool> {
      DOPPLER_ASSIGN(const int sign, compare(rt_, a->first, b->first, "<"));
      return sign < 0;
    });
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string integer_text(Integer value) {
  if (value == 0) return "0";
  std::string digits;
  const bool negative = value < 0;
  for (; value != 0; value /= 10)
    digits += static_cast<char>('0' + static_cast<int>(value < 0 ? -(value % 10) : value % 10));
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<std::size_t>(shortest.ptr - buffer));
  std::string out;
  if (text.starts_with('-')) {
    out = "-";
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  int exponent = 0;
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  // Python's repr uses an exponent below 1e-4 and from 1e16.
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quoted_text(std::string_view text) {
  const bool doubled = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubled ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const std::uint32_t code = next_code_point(text, at);
    if (code == '\\' || code == static_cast<std::uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out.append(text, begin, at - begin);
    } else {
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    }
  }
  return out + quote;
}

Status append_text(Runtime& rt, std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      if (value.object() && value.as<UndefinedObject>().unsafe) return require_defined(value);
      return {};
    case Kind::kNone:
      out += "None";
      return {};
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return {};
    case Kind::kInt:
      out += integer_text(value.as_integer());
      return {};
    case Kind::kFloat:
      out += float_text(value.as_real());
      return {};
    case Kind::kString:
      out += value.text();
      return Runtime::check_text_size(out.size());
    case Kind::kList:
      return append_sequence(rt, out, value.as<ListObject>().items, "[", "]");
    case Kind::kTuple: {
      const Values& items = value.as<ListObject>().items;
      return append_sequence(rt, out, items, "(", items.size() == 1 ? ",)" : ")");
    }
    case Kind::kView:
      out += value.as<ListObject>().type;
      return append_sequence(rt, out, value.as<ListObject>().items, "([", "])");
    case Kind::kDict:
      return append_dict(rt, out, value.as<DictObject>());
    default:
      out += object_text(value);
      return {};
  }
}

Result<std::string> to_text(Runtime& rt, const Value& value) {
  std::string out;
  DOPPLER_TRY(append_text(rt, out, value));
  return out;
}

Result<std::string> to_repr(Runtime& rt, const Value& value) {
  std::string out;
  DOPPLER_TRY(append_repr(rt, out, value));
  return out;
}

Result<std::string> to_json(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(rt, style);
  DOPPLER_TRY(writer.write(value, 0));
  return writer.take();
}

}  // namespace doppler::chat::jinja
