// String methods that make strings or lists of them.
#include <algorithm>
#include <limits>

#include "chat/jinja/arguments.h"
#include "chat/jinja/format.h"
#include "chat/jinja/markup.h"
#include "chat/jinja/text_methods.h"
#include "chat/jinja/unicode.h"

namespace doppler::chat::jinja {
namespace {

Result<std::string_view> string_argument(const Call& call, std::size_t i, std::string_view method) {
  if (call[i]->is_string()) return call[i]->text();
  return type_error("{}() argument {} must be str, not {}", method, i + 1, type_name(*call[i]));
}

template <std::string (*Change)(std::string_view)>
Result<Value> method_changed(Call& call) {
  DOPPLER_TRY(call.rt.spend(call.self.text().size() / 16));
  return call.rt.text(Change(call.self.text()));
}

template <bool kLeft, bool kRight>
Result<Value> stripped(Call& call) {
  const std::string& text = call.self.text();
  DOPPLER_TRY(call.rt.spend(text.size() / 64));
  if (call[0] == nullptr || call[0]->is_none())
    return call.rt.text(std::string(strip(text, nullptr, kLeft, kRight)));
  if (!call[0]->is_string()) return type_error("strip arg must be None or str, not {}", type_name(*call[0]));
  const std::string_view set = call[0]->text();
  return call.rt.text(std::string(strip(text, &set, kLeft, kRight)));
}

// The pieces between whitespace; at most `most` cuts, from the left or from the right.
std::vector<std::string_view> split_on_space(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  text = strip(text, nullptr, true, true);
  while (!text.empty()) {
    std::size_t cut = std::string_view::npos, after = 0;
    if (static_cast<std::int64_t>(parts.size()) < most) {
      std::size_t run = 0;  // where the current run of whitespace began
      bool inside = false;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const bool space = is_space(next_code_point(text, at));
        if (space && !inside) run = begin;
        if (!space && inside) {
          cut = run;
          after = begin;
          if (!from_right) break;
        }
        inside = space;
      }
    }
    if (cut == std::string_view::npos) {
      parts.push_back(text);
      break;
    }
    parts.push_back(from_right ? text.substr(after) : text.substr(0, cut));
    text = from_right ? text.substr(0, cut) : text.substr(after);
  }
  return parts;
}

std::vector<std::string_view> split_on(std::string_view text, std::string_view separator, std::int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    const std::size_t after = found + separator.size();
    parts.push_back(from_right ? text.substr(after) : text.substr(0, found));
    text = from_right ? text.substr(0, found) : text.substr(after);
  }
  parts.push_back(text);
  return parts;
}

Result<Value> text_list(Runtime& rt, const std::vector<std::string_view>& parts) {
  DOPPLER_TRY(Runtime::check_list_size(parts.size()));
  Values out;
  for (const std::string_view part : parts) out.push_back(rt.text(std::string(part)));
  return rt.list(std::move(out));
}

template <bool kFromRight>
Result<Value> split(Call& call) {
  const std::string& text = call.self.text();
  DOPPLER_ASSIGN(std::int64_t most, index_argument(call, 1, -1));
  if (most < 0) most = std::numeric_limits<std::int64_t>::max();
  DOPPLER_TRY(call.rt.spend(text.size() / 16));
  std::vector<std::string_view> parts;
  if (call[0] == nullptr || call[0]->is_none()) {
    // A cut from the right reads all that is left, so the work is cuts times length.
    if (kFromRight && most < std::numeric_limits<std::int64_t>::max()) {
      DOPPLER_TRY(call.rt.spend(std::min<std::uint64_t>(static_cast<std::uint64_t>(most), text.size()) *
                                text.size() / 64));
      parts = split_on_space(text, most, true);
    } else {
      parts = split_on_space(text, most, false);
      std::reverse(parts.begin(), parts.end());
      if (!kFromRight) std::reverse(parts.begin(), parts.end());
    }
  } else {
    DOPPLER_ASSIGN(const std::string_view separator, string_argument(call, 0, "split"));
    if (separator.empty()) return type_error("empty separator");
    parts = split_on(text, separator, most, kFromRight);
  }
  if (kFromRight) std::reverse(parts.begin(), parts.end());
  return text_list(call.rt, parts);
}

Result<Value> splitlines(Call& call) {
  DOPPLER_TRY(call.rt.spend(call.self.text().size() / 16));
  return text_list(call.rt, split_lines(call.self.text(), flag_argument(call, 0, false)));
}

Result<Value> replace(Call& call) {
  DOPPLER_ASSIGN(const std::string_view from, string_argument(call, 0, "replace"));
  DOPPLER_ASSIGN(const std::string_view to, string_argument(call, 1, "replace"));
  DOPPLER_ASSIGN(const std::int64_t count, index_argument(call, 2, -1));
  return replace_text(call.rt, call.self.text(), from,
                      is_markup(call.self) ? escape_html(to) : std::string(to), count);
}

Result<Value> join(Call& call) {
  DOPPLER_ASSIGN(const Items items, iterate(call.rt, *call[0]));
  std::string out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const Value& item = (*items)[i];
    if (!item.is_string() && !is_markup(call.self)) {
      return type_error("sequence item {}: expected str instance, {} found", i, type_name(item));
    }
    if (i > 0) out += call.self.text();
    if (is_markup(call.self)) {
      DOPPLER_ASSIGN(const std::string text, escaped_text(call.rt, item));
      out += text;
    } else {
      out += item.text();
    }
    DOPPLER_TRY(Runtime::check_text_size(out.size()));
  }
  return call.rt.text(std::move(out));
}

Result<Value> format(Call& call) {
  DOPPLER_ASSIGN(std::string out, format_braces(call.rt, call.self.text(), call.given, is_markup(call.self)));
  return call.rt.text(std::move(out));
}

template <bool kPrefix>
Result<Value> without_affix(Call& call) {
  DOPPLER_ASSIGN(const std::string_view affix,
                 string_argument(call, 0, kPrefix ? "removeprefix" : "removesuffix"));
  std::string_view text = call.self.text();
  if (kPrefix && text.starts_with(affix))
    text.remove_prefix(affix.size());
  else if (!kPrefix && text.ends_with(affix))
    text.remove_suffix(affix.size());
  return call.rt.text(std::string(text));
}

template <bool kFromRight>
Result<Value> partition(Call& call) {
  DOPPLER_ASSIGN(const std::string_view separator, string_argument(call, 0, "partition"));
  if (separator.empty()) return type_error("empty separator");
  const std::string_view text = call.self.text();
  const std::size_t found = kFromRight ? text.rfind(separator) : text.find(separator);
  const auto made = [&](std::string_view part) { return call.rt.text(std::string(part)); };
  if (found == std::string_view::npos) {
    return kFromRight ? call.rt.tuple({made(""), made(""), made(text)})
                      : call.rt.tuple({made(text), made(""), made("")});
  }
  return call.rt.tuple(
      {made(text.substr(0, found)), made(separator), made(text.substr(found + separator.size()))});
}

template <Alignment kAlignment>
Result<Value> padded(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t width, to_index(*call[0]));
  std::string_view fill = " ";
  if (call[1] != nullptr) {
    DOPPLER_ASSIGN(fill, string_argument(call, 1, "center"));
    if (count_code_points(fill) != 1)
      return type_error("The fill character must be exactly one character long");
  }
  return pad_text(call.rt, call.self.text(), width, fill, kAlignment);
}

Result<Value> zfill(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t width, to_index(*call[0]));
  std::string_view text = call.self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const std::string kept(text.substr(0, sign ? 1 : 0));
  if (sign) text.remove_prefix(1);
  DOPPLER_ASSIGN(const Value digits, pad_text(call.rt, text, width - (sign ? 1 : 0), "0", Alignment::kRight));
  return call.rt.text(kept + digits.text());
}

Result<Value> expandtabs(Call& call) {
  DOPPLER_ASSIGN(const std::int64_t size, index_argument(call, 0, 8));
  std::string out;
  std::int64_t column = 0;
  const std::string& text = call.self.text();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (code == '\t') {
      const std::int64_t spaces = size > 0 ? size - column % size : 0;
      DOPPLER_TRY(Runtime::check_text_size(out.size() + static_cast<std::uint64_t>(spaces)));
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
    } else {
      out.append(text, begin, at - begin);
      column = code == '\n' || code == '\r' ? 0 : column + 1;
    }
  }
  return call.rt.text(std::move(out));
}

constexpr Builtin kTextMethods[] = {
    {"strip", "chars?", stripped<true, true>},
    {"lstrip", "chars?", stripped<true, false>},
    {"rstrip", "chars?", stripped<false, true>},
    {"split", "sep? maxsplit?", split<false>},
    {"rsplit", "sep? maxsplit?", split<true>},
    {"splitlines", "keepends?", splitlines},
    {"replace", "old new count?", replace},
    {"join", "iterable", join},
    {"format", "*", format},
    {"upper", "", method_changed<to_upper>},
    {"lower", "", method_changed<to_lower>},
    {"casefold", "", method_changed<to_lower>},
    {"title", "", method_changed<to_title>},
    {"capitalize", "", method_changed<to_capitalized>},
    {"swapcase", "", method_changed<swap_case>},
    {"removeprefix", "prefix", without_affix<true>},
    {"removesuffix", "suffix", without_affix<false>},
    {"partition", "sep", partition<false>},
    {"rpartition", "sep", partition<true>},
    {"center", "width fillchar?", padded<Alignment::kCenter>},
    {"ljust", "width fillchar?", padded<Alignment::kLeft>},
    {"rjust", "width fillchar?", padded<Alignment::kRight>},
    {"zfill", "width", zfill},
    {"expandtabs", "tabsize?", expandtabs},
};

}  // namespace

std::span<const Builtin> text_methods() {
  return kTextMethods;
}

}  // namespace doppler::chat::jinja
