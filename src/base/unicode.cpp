#include "base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/layout.h"
#include "base/text.h"

namespace doppler {
namespace {

int combining_class(utf8proc_int32_t c) {
  return utf8proc_get_property(c)->combining_class;
}

// utf8proc's own canonical ordering is an insertion sort: quadratic in a run of marks, which texts can make
// arbitrarily long. Sorting each run by class, equal ones by position, gives the same order.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  struct Mark {
    int combining_class;
    std::size_t position;
    utf8proc_int32_t point;
    auto operator<=>(const Mark&) const = default;
  };
  std::vector<Mark> run;
  for (std::size_t i = 0; i < points.size();) {
    if (points[i] < 0x300 || combining_class(points[i]) == 0) {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    while (end < points.size() && combining_class(points[end]) != 0) ++end;
    run.clear();
    for (std::size_t k = i; k < end; ++k) run.push_back({combining_class(points[k]), k, points[k]});
    std::sort(run.begin(), run.end());
    for (std::size_t k = i; k < end; ++k) points[k] = run[k - i].point;
    i = end;
  }
}

// The longest decomposition of one code point is 18 long (U+FDFA under NFKD).
constexpr std::size_t kLongestDecomposition = 32;

std::vector<utf8proc_int32_t> decompose(std::string_view text, utf8proc_option_t options) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() + kLongestDecomposition);
  std::array<utf8proc_int32_t, kLongestDecomposition> buffer;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    i += c.length;
    if (c.value < 0x80) {
      points.push_back(static_cast<utf8proc_int32_t>(c.value));
      continue;
    }
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), buffer.data(),
                                static_cast<utf8proc_ssize_t>(buffer.size()), options, &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(buffer.size())) {
      points.push_back(static_cast<utf8proc_int32_t>(c.value));
    } else {
      points.insert(points.end(), buffer.begin(), buffer.begin() + count);
    }
  }
  return points;
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {byte(0), 1};
  switch (utf8_sequence_length(text)) {
    case 2:
      return {(byte(0) & 0x1f) << 6 | (byte(1) & 0x3f), 2};
    case 3:
      return {(byte(0) & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
    case 4:
      return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
    default:
      return {0xfffd, 1};
  }
}

CodePoint last_code_point(std::string_view text) {
  for (std::size_t back = std::min<std::size_t>(4, text.size()); back > 1; --back) {
    const std::string_view tail = text.substr(text.size() - back);
    if (utf8_sequence_length(tail) == back) return first_code_point(tail);
  }
  return first_code_point(text.substr(text.size() - 1));
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  }
}

std::size_t count_code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !is_utf8_continuation(byte); }));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = utf8_sequence_length(text.substr(i, 4));
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::string to_valid_utf8(std::string&& bytes) {
  return is_valid_utf8(bytes) ? std::move(bytes) : utf8_lossy(bytes);
}

static_assert(static_cast<int>(UnicodeCategory::kLu) == UTF8PROC_CATEGORY_LU &&
              static_cast<int>(UnicodeCategory::kMn) == UTF8PROC_CATEGORY_MN &&
              static_cast<int>(UnicodeCategory::kNd) == UTF8PROC_CATEGORY_ND &&
              static_cast<int>(UnicodeCategory::kPc) == UTF8PROC_CATEGORY_PC &&
              static_cast<int>(UnicodeCategory::kSm) == UTF8PROC_CATEGORY_SM &&
              static_cast<int>(UnicodeCategory::kZs) == UTF8PROC_CATEGORY_ZS &&
              static_cast<int>(UnicodeCategory::kCc) == UTF8PROC_CATEGORY_CC &&
              static_cast<int>(UnicodeCategory::kCo) == UTF8PROC_CATEGORY_CO);

UnicodeCategory category_of(char32_t c) {
  return static_cast<UnicodeCategory>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
}

bool is_letter(char32_t c) {
  const UnicodeCategory category = category_of(c);
  return category >= UnicodeCategory::kLu && category <= UnicodeCategory::kLo;
}

bool is_mark(char32_t c) {
  const UnicodeCategory category = category_of(c);
  return category >= UnicodeCategory::kMn && category <= UnicodeCategory::kMe;
}

bool is_numeric(char32_t c) {
  const UnicodeCategory category = category_of(c);
  return category >= UnicodeCategory::kNd && category <= UnicodeCategory::kNo;
}

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

char32_t to_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t to_title(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

void append_lowercase(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    out += "i\xcc\x87";  // the one unconditional lower case that is two characters (SpecialCasing.txt)
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

std::size_t grapheme_length(std::string_view text) {
  CodePoint previous = first_code_point(text);
  std::size_t length = previous.length;
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const CodePoint next = first_code_point(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state)) {
      break;
    }
    length += next.length;
    previous = next;
  }
  return length;
}

Result<std::string> normalize_unicode(std::string_view text, UnicodeForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points = decompose(text, options);
  order_marks(points);
  if (compose) {
    const auto count =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (count < 0)
      return fail(ErrorCode::kInternal, "The text cannot be normalised: {}.", utf8proc_errmsg(count));
    points.resize(static_cast<std::size_t>(count));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t point : points) append_utf8(out, static_cast<char32_t>(point));
  return out;
}

std::size_t columns_of(char32_t c) {
  return static_cast<std::size_t>(std::max(0, utf8proc_charwidth(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace doppler
