#include "tokenizer/normalizer.h"

#include "base/unicode.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/overloaded.h"

namespace doppler::tokenizer {
namespace {

// Calls each(out, code_point) for every character of `text`.
template <typename Each>
std::string map_characters(std::string_view text, Each&& each) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    each(out, c.value);
    text.remove_prefix(c.length);
  }
  return out;
}

std::string lowercase(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) { append_lowercase(out, c); });
}

std::string strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_white_space(first_code_point(text).value)) {
    text.remove_prefix(first_code_point(text).length);
  }
  while (right && !text.empty() && is_white_space(last_code_point(text).value)) {
    text.remove_suffix(last_code_point(text).length);
  }
  return std::string(text);
}

// The table of NMT's training data: control characters go, exotic spaces become spaces.
std::string nmt(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) {
    if ((c >= 0x1 && c <= 0x8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
      return;
    const bool space = c == 0x9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xfeff || c == 0xfffd;
    append_utf8(out, space ? U' ' : c);
  });
}

Result<std::string> bert(const normalizers::Bert& step, std::string text) {
  if (step.clean_text) {
    text = map_characters(text, [](std::string& out, char32_t c) {
      const bool line_space = c == '\t' || c == '\n' || c == '\r';
      if (c == 0 || c == 0xfffd || (is_other(c) && !line_space)) return;
      append_utf8(out, is_white_space(c) ? U' ' : c);
    });
  }
  if (step.chinese_chars) {
    text = map_characters(text, [](std::string& out, char32_t c) {
      if (is_chinese(c)) out.push_back(' ');
      append_utf8(out, c);
      if (is_chinese(c)) out.push_back(' ');
    });
  }
  if (step.strip_accents) {
    DOPPLER_ASSIGN(text, normalize_unicode(text, UnicodeForm::kNfd));
    text = map_characters(text, [](std::string& out, char32_t c) {
      if (!is_nonspacing_mark(c)) append_utf8(out, c);
    });
  }
  return step.lowercase ? lowercase(text) : text;
}

}  // namespace

std::unexpected<Error> growth_failure(std::size_t limit) {
  return fail(ErrorCode::kLimit,
              "The normalizer makes the text longer than {} bytes. Check the tokenizer file.", limit);
}

Result<Normalizer> Normalizer::create(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (const NormalizerStep& step : steps) {
    if (const auto* replace = std::get_if<normalizers::Replace>(&step)) {
      DOPPLER_ASSIGN(Finder finder, Finder::create(replace->pattern));
      normalizer.steps_.push_back(Replace{std::move(finder), replace->content});
    } else if (const auto* precompiled = std::get_if<normalizers::Precompiled>(&step)) {
      DOPPLER_ASSIGN(Charsmap charsmap, Charsmap::parse(precompiled->charsmap));
      normalizer.steps_.push_back(Precompiled{std::move(charsmap)});
    } else {
      std::visit(
          [&](const auto& same) {
            if constexpr (std::is_constructible_v<Step, decltype(same)>) normalizer.steps_.push_back(same);
          },
          step);
    }
  }
  return normalizer;
}

Result<std::string> Normalizer::apply(std::string text) const {
  const std::size_t limit = growth_limit(text.size());
  for (const Step& step : steps_) {
    if (text.empty()) break;
    DOPPLER_ASSIGN(text, run(step, std::move(text), limit));
    if (text.size() > limit) return growth_failure(limit);
  }
  return text;
}

Result<std::string> Normalizer::run(const Step& step, std::string text, std::size_t limit) {
  return std::visit(
      Overloaded{
          [&](const normalizers::Form& s) { return normalize_unicode(text, s.form); },
          [&](const normalizers::Lowercase&) { return Result<std::string>(lowercase(text)); },
          [&](const normalizers::StripAccents&) {
            return Result<std::string>(map_characters(text, [](std::string& out, char32_t c) {
              if (!is_mark(c)) append_utf8(out, c);
            }));
          },
          [&](const normalizers::Nmt&) { return Result<std::string>(nmt(text)); },
          [&](const normalizers::ByteLevel&) { return Result<std::string>(to_byte_level(text)); },
          [&](const normalizers::Prepend& s) { return Result<std::string>(s.content + text); },
          [&](const normalizers::Strip& s) { return Result<std::string>(strip(text, s.left, s.right)); },
          [&](const normalizers::Bert& s) { return bert(s, std::move(text)); },
          [&](const Replace& s) { return run_replace(s, text, limit); },
          [&](const Precompiled& s) { return run_precompiled(s, text, limit); },
      },
      step);
}

Result<std::string> Normalizer::run_replace(const Replace& step, std::string_view text, std::size_t limit) {
  DOPPLER_ASSIGN(const std::vector<Range> matches, step.finder.find_all(text));
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (const Range match : matches) {
    out += text.substr(done, match.begin - done);
    out += step.content;
    done = match.end;
    if (out.size() > limit) return growth_failure(limit);
  }
  out += text.substr(done);
  return out;
}

// Hugging Face's reading of a charsmap goes by grapheme clusters: a short one is replaced whole by its
// shortest matching prefix's replacement, a longer one character by character.
Result<std::string> Normalizer::run_precompiled(const Precompiled& step, std::string_view text,
                                                std::size_t limit) {
  constexpr std::size_t kShortCluster = 6;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (out.size() > limit) return growth_failure(limit);
    const std::string_view cluster = text.substr(0, grapheme_length(text));
    text.remove_prefix(cluster.size());
    if (cluster.size() < kShortCluster) {
      if (const auto match = step.charsmap.shortest(cluster)) {
        out += match->replacement;
        continue;
      }
    }
    for (std::size_t i = 0; i < cluster.size();) {
      const std::size_t length = first_code_point(cluster.substr(i)).length;
      const auto match = step.charsmap.shortest(cluster.substr(i, length));
      out += match ? match->replacement : cluster.substr(i, length);
      i += length;
    }
  }
  return to_valid_utf8(std::move(out));
}

}  // namespace doppler::tokenizer
