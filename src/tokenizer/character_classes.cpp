#include "tokenizer/character_classes.h"

#include "base/unicode.h"

namespace doppler::tokenizer {

bool is_nonspacing_mark(char32_t c) {
  return category_of(c) == UnicodeCategory::kMn;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const UnicodeCategory category = category_of(c);
  return category >= UnicodeCategory::kPc && category <= UnicodeCategory::kPo;
}

bool is_other(char32_t c) {
  const UnicodeCategory category = category_of(c);
  return category == UnicodeCategory::kCc || category == UnicodeCategory::kCf ||
         category == UnicodeCategory::kCo;
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  // Circled and squared letters are Alphabetic although they are symbols; ZWNJ and ZWJ are Join_Control.
  if (c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
      (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189)) {
    return true;
  }
  const UnicodeCategory category = category_of(c);
  return (category >= UnicodeCategory::kLu && category <= UnicodeCategory::kNl) ||
         category == UnicodeCategory::kPc;
}

bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

}  // namespace doppler::tokenizer
