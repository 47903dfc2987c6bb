#include "diagnosis/look/text_quality.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "base/text.h"

namespace doppler::diagnosis {
namespace {

// Scripts by the blocks that hold nearly all their letters: enough to count how many one answer mixes.
// Chinese and Japanese share theirs, so Han and the kana are one.
struct Script {
  std::uint32_t first, last;
  int script;
};
constexpr std::array<Script, 14> kScripts = {{{0x41, 0x24F, 1},      // Latin
                                              {0x370, 0x3FF, 2},     // Greek
                                              {0x400, 0x52F, 3},     // Cyrillic
                                              {0x530, 0x58F, 4},     // Armenian
                                              {0x590, 0x5FF, 5},     // Hebrew
                                              {0x600, 0x77F, 6},     // Arabic
                                              {0x900, 0x97F, 7},     // Devanagari
                                              {0x980, 0x9FF, 8},     // Bengali
                                              {0xB80, 0xC7F, 9},     // Tamil, Telugu
                                              {0xC80, 0xD7F, 10},    // Kannada, Malayalam
                                              {0xE00, 0xE7F, 11},    // Thai
                                              {0x10A0, 0x10FF, 12},  // Georgian
                                              {0x3040, 0x9FFF, 13},  // kana, Han
                                              {0xAC00, 0xD7AF, 14}}};

std::uint32_t code_point(std::string_view bytes) {
  const auto at = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i]));
  };
  switch (bytes.size()) {
    case 1:
      return at(0);
    case 2:
      return (at(0) & 0x1F) << 6 | (at(1) & 0x3F);
    case 3:
      return (at(0) & 0x0F) << 12 | (at(1) & 0x3F) << 6 | (at(2) & 0x3F);
    default:
      return (at(0) & 0x07) << 18 | (at(1) & 0x3F) << 12 | (at(2) & 0x3F) << 6 | (at(3) & 0x3F);
  }
}

void judge_characters(TextQuality& quality, std::string_view text) {
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(i));
    const std::uint32_t c = length == 0 ? 0xFFFD : code_point(text.substr(i, length));
    i += std::max<std::size_t>(length, 1);
    if (c == 0xFFFD) ++quality.replacement_chars;
    const bool spacing = c == '\n' || c == '\t' || c == '\r';
    if ((c < 0x20 && !spacing) || (c >= 0x7F && c < 0xA0)) ++quality.control_chars;
    // Of the Latin block, what is no letter: punctuation and signs.
    if ((c > 0x5A && c < 0x61) || (c > 0x7A && c < 0xC0) || c == 0xD7 || c == 0xF7) continue;
    for (const Script& script : kScripts) {
      if (c >= script.first && c <= script.last) seen |= 1u << script.script;
    }
  }
  quality.scripts = static_cast<std::size_t>(std::popcount(seen));
}

// The shortest period in which the ids end, if they went through it three times and at least eight tokens
// long.
std::size_t period_of(std::span<const std::int32_t> ids) {
  constexpr std::size_t kLongest = 16, kTimes = 3, kLeast = 8;
  for (std::size_t period = 1; period <= kLongest; ++period) {
    const std::size_t length = std::max(kLeast, kTimes * period);
    if (ids.size() < length) continue;
    const auto tail = ids.last(length);
    if (std::equal(tail.begin() + static_cast<std::ptrdiff_t>(period), tail.end(), tail.begin()))
      return period;
  }
  return 0;
}

}  // namespace

TextQuality judge_text(std::span<const std::int32_t> ids, std::string_view text, bool has_text) {
  TextQuality quality{.tokens = ids.size()};
  std::map<std::int32_t, std::size_t> counts;
  for (const std::int32_t id : ids) ++counts[id];
  quality.unique = counts.size();
  std::size_t most = 0;
  for (const auto& [id, count] : counts) {
    if (count > most) most = count, quality.most_frequent = id;
  }
  if (!ids.empty()) {
    quality.unique_ratio = static_cast<double>(quality.unique) / static_cast<double>(ids.size());
    quality.most_frequent_ratio = static_cast<double>(most) / static_cast<double>(ids.size());
  }
  quality.period = period_of(ids);
  if (ids.empty()) quality.reasons.emplace_back("no_tokens");
  if (has_text && !ids.empty()) {
    judge_characters(quality, text);
    if (text.empty()) quality.reasons.emplace_back("empty_text");
    if (quality.replacement_chars > 0) quality.reasons.emplace_back("replacement_chars");
    if (quality.control_chars > 0) quality.reasons.emplace_back("control_chars");
    // An answer quotes a second script, seldom a third; noise over a large vocabulary has many.
    if (quality.scripts > 3) quality.reasons.emplace_back("many_scripts");
  }
  // The bounds of Doppler's quality gate: eight tokens, of which one makes six in ten.
  if ((ids.size() >= 8 && quality.most_frequent_ratio >= 0.6) || quality.period > 0)
    quality.reasons.emplace_back("repetition");
  if (ids.size() >= 8 && quality.unique_ratio < 0.2) quality.warnings.emplace_back("low_unique_ratio");
  return quality;
}

}  // namespace doppler::diagnosis
