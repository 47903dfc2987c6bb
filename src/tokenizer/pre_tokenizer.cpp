#include "tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "base/unicode.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/character_classes.h"
#include "tokenizer/overloaded.h"

namespace doppler::tokenizer {
namespace {

// A stretch of a piece, and whether it is a match or what lies between matches.
struct Part {
  Range range;
  bool match = false;
};

std::vector<Part> parts_of(const std::vector<Range>& matches, std::size_t size) {
  std::vector<Part> parts;
  parts.reserve(matches.size() * 2 + 1);
  std::size_t done = 0;
  for (const Range match : matches) {
    if (done != match.begin) parts.push_back({{done, match.begin}, false});
    parts.push_back({match, true});
    done = match.end;
  }
  if (done != size) parts.push_back({{done, size}, false});
  return parts;
}

// Glues a match to the part before it: the first match of a run only, as the original does.
void merge_with_previous(std::vector<Part>& parts) {
  std::vector<Part> out;
  bool previous = false;
  for (const Part& part : parts) {
    if (part.match && !previous && !out.empty())
      out.back().range.end = part.range.end;
    else
      out.push_back({part.range, false});
    previous = part.match;
  }
  parts = std::move(out);
}

void merge_with_next(std::vector<Part>& parts) {
  std::vector<Part> out;
  bool previous = false;
  for (const Part& part : std::vector<Part>(parts.rbegin(), parts.rend())) {
    if (part.match && !previous && !out.empty())
      out.back().range.begin = part.range.begin;
    else
      out.push_back({part.range, false});
    previous = part.match;
  }
  std::reverse(out.begin(), out.end());
  parts = std::move(out);
}

void merge_equal_neighbours(std::vector<Part>& parts) {
  std::vector<Part> out;
  bool previous = false;
  for (const Part& part : parts) {
    if (!out.empty() && part.match == previous)
      out.back().range.end = part.range.end;
    else
      out.push_back({part.range, false});
    previous = part.match;
  }
  parts = std::move(out);
}

// Appends the pieces that `behavior` makes of the parts of a piece that begins at `base`.
void append_split(std::vector<Part> parts, SplitBehavior behavior, std::size_t base,
                  std::vector<Range>& out) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.match; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(parts);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(parts);
      break;
    case SplitBehavior::kContiguous:
      merge_equal_neighbours(parts);
      break;
  }
  for (const Part& part : parts) {
    if (part.range.begin < part.range.end) out.push_back({base + part.range.begin, base + part.range.end});
  }
}

// Each character for which `matches` holds, as a match of its own.
template <typename Matches>
std::vector<Range> find_characters(std::string_view text, Matches&& matches) {
  std::vector<Range> found;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = first_code_point(text.substr(i));
    if (matches(c.value)) found.push_back({i, i + c.length});
    i += c.length;
  }
  return found;
}

// Cuts every piece at the matches that find(piece) gives.
template <typename Find>
void split_pieces(Pieces& pieces, SplitBehavior behavior, Find&& find) {
  std::vector<Range> out;
  out.reserve(pieces.ranges.size());
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    append_split(parts_of(find(pieces[i]), pieces[i].size()), behavior, pieces.ranges[i].begin, out);
  }
  pieces.ranges = std::move(out);
}

// Pieces rewritten into a new text; the text's start stays known as long as its piece is there.
struct Rewritten {
  explicit Rewritten(const Pieces& from) {
    pieces.at_start = from.at_start && !from.ranges.empty() && from.ranges.front().begin == 0;
    pieces.text.reserve(from.text.size() + from.text.size() / 4);
  }
  Pieces pieces;
};

}  // namespace

Status PreTokenizer::add_step(const PreTokenizerStep& step, std::vector<Step>& out) {
  return std::visit(
      Overloaded{
          [&](const pre_tokenizers::Split& s) -> Status {
            DOPPLER_ASSIGN(Finder finder, Finder::create(s.pattern));
            out.push_back(Split{std::move(finder), s.behavior, s.invert});
            return {};
          },
          [&](const pre_tokenizers::ByteLevel& s) -> Status {
            ByteLevel made{std::nullopt, s.add_prefix_space};
            if (s.use_regex) {
              DOPPLER_ASSIGN(made.regex, Regex::compile(kGpt2Pattern));
            }
            out.push_back(std::move(made));
            return {};
          },
          [&](const pre_tokenizers::Metaspace& s) -> Status { return out.push_back(s), Status(); },
          [&](const pre_tokenizers::Whitespace&) -> Status { return out.push_back(Words{}), Status(); },
          [&](const pre_tokenizers::WhitespaceSplit&) -> Status {
            return out.push_back(ByClass{is_white_space, SplitBehavior::kRemoved}), Status();
          },
          [&](const pre_tokenizers::Digits& s) -> Status {
            const auto behavior = s.individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
            return out.push_back(ByClass{is_numeric, behavior}), Status();
          },
          [&](const pre_tokenizers::Punctuation& s) -> Status {
            return out.push_back(ByClass{is_punctuation, s.behavior}), Status();
          },
          [&](const pre_tokenizers::Bert&) -> Status {
            out.push_back(ByClass{is_white_space, SplitBehavior::kRemoved});
            return out.push_back(ByClass{is_punctuation, SplitBehavior::kIsolated}), Status();
          },
          [&](const pre_tokenizers::CharDelimiter& s) -> Status {
            return out.push_back(Delimiter{s.delimiter}), Status();
          },
      },
      step);
}

Result<PreTokenizer> PreTokenizer::create(const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer pre_tokenizer;
  for (const PreTokenizerStep& step : steps) DOPPLER_TRY(add_step(step, pre_tokenizer.steps_));
  return pre_tokenizer;
}

Status PreTokenizer::apply(Pieces& pieces) const {
  for (const Step& step : steps_) {
    DOPPLER_TRY(std::visit([&](const auto& s) { return run(s, pieces); }, step));
  }
  return {};
}

Status PreTokenizer::run(const Split& step, Pieces& pieces) {
  std::vector<Range> out;
  out.reserve(pieces.ranges.size());
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    DOPPLER_ASSIGN(const std::vector<Range> matches, step.finder.find_all(pieces[i]));
    std::vector<Part> parts = parts_of(matches, pieces[i].size());
    if (step.invert) {
      for (Part& part : parts) part.match = !part.match;
    }
    append_split(std::move(parts), step.behavior, pieces.ranges[i].begin, out);
  }
  pieces.ranges = std::move(out);
  return {};
}

Status PreTokenizer::run(const ByteLevel& step, Pieces& pieces) {
  Rewritten next(pieces);
  std::string& out = next.pieces.text;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    std::string spaced;
    std::string_view piece = pieces[i];
    if (step.add_prefix_space && !piece.starts_with(' ')) piece = spaced = " " + std::string(piece);
    std::vector<Range> cuts;
    if (step.regex) {
      DOPPLER_ASSIGN(const std::vector<Range> matches, step.regex->find_all(piece));
      append_split(parts_of(matches, piece.size()), SplitBehavior::kIsolated, 0, cuts);
    } else {
      cuts.push_back({0, piece.size()});
    }
    for (const Range cut : cuts) {
      const std::size_t begin = out.size();
      for (std::size_t k = cut.begin; k < cut.end; ++k) {
        append_utf8(out, byte_level_char(static_cast<unsigned char>(piece[k])));
      }
      next.pieces.ranges.push_back({begin, out.size()});
    }
  }
  pieces = std::move(next.pieces);
  return {};
}

Status PreTokenizer::run(const pre_tokenizers::Metaspace& step, Pieces& pieces) {
  Rewritten next(pieces);
  std::string& out = next.pieces.text;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::string_view piece = pieces[i];
    const std::size_t begin = out.size();
    const bool first = pieces.at_start && pieces.ranges[i].begin == 0;
    const bool wanted =
        step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && first);
    if (wanted && !piece.starts_with(step.replacement) && !piece.starts_with(' ')) out += step.replacement;
    for (const char c : piece) {
      if (c == ' ')
        out += step.replacement;
      else
        out.push_back(c);
    }
    next.pieces.ranges.push_back({begin, out.size()});
  }
  pieces = std::move(next.pieces);
  if (!step.split) return {};
  const char32_t mark = first_code_point(step.replacement).value;
  split_pieces(pieces, SplitBehavior::kMergedWithNext, [&](std::string_view piece) {
    return find_characters(piece, [&](char32_t c) { return c == mark; });
  });
  return {};
}

Status PreTokenizer::run(const ByClass& step, Pieces& pieces) {
  split_pieces(pieces, step.behavior,
               [&](std::string_view piece) { return find_characters(piece, step.matches); });
  return {};
}

Status PreTokenizer::run(const Delimiter& step, Pieces& pieces) {
  split_pieces(pieces, SplitBehavior::kRemoved, [&](std::string_view piece) {
    return find_characters(piece, [&](char32_t c) { return c == step.delimiter; });
  });
  return {};
}

Status PreTokenizer::run(const Words&, Pieces& pieces) {
  enum class Kind { kSpace, kWord, kVisible };
  std::vector<Range> out;
  for (std::size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::string_view piece = pieces[i];
    const std::size_t base = pieces.ranges[i].begin;
    Kind previous = Kind::kSpace;
    for (std::size_t k = 0; k < piece.size();) {
      const CodePoint c = first_code_point(piece.substr(k));
      const Kind kind = is_word(c.value)          ? Kind::kWord
                        : is_white_space(c.value) ? Kind::kSpace
                                                  : Kind::kVisible;
      if (kind != Kind::kSpace) {
        if (kind == previous)
          out.back().end = base + k + c.length;
        else
          out.push_back({base + k, base + k + c.length});
      }
      previous = kind;
      k += c.length;
    }
  }
  pieces.ranges = std::move(out);
  return {};
}

}  // namespace doppler::tokenizer
