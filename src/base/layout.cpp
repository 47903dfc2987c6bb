#include "base/layout.h"

#include <algorithm>
#include <numeric>

#include "base/unicode.h"

namespace doppler {
namespace {

constexpr std::string_view kAsEmoji = "\xef\xb8\x8f";  // U+FE0F: the character before it is drawn as an emoji
constexpr std::size_t kGap = 2;                        // between columns
constexpr std::size_t kLeastWords = 24;  // columns of a wrapped text, below which it reads badly

// The bytes of an escape sequence of colours, "\033[31m", at the start of the text; 0: there is none.
std::size_t escape_length(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

// Where a path or a dotted name may be divided: better after these marks than after those that join words.
bool divides(char c) {
  return std::string_view("./,;:=|\\").find(c) != std::string_view::npos;
}
bool joins(char c) {
  return c == '_' || c == '-';
}

// The bytes of a word that fit: up to a mark after which it may be broken; all of it if there is none.
std::size_t fitting_part(std::string_view word, std::size_t width) {
  std::size_t columns = 0, divided = 0, joined = 0;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t escape = escape_length(word.substr(at));
    const CodePoint c = first_code_point(word.substr(at));
    if (escape == 0) columns += columns_of(c.value);
    if (columns > width && divided + joined > 0) return divided > 0 ? divided : joined;
    at += escape > 0 ? escape : c.length;
    if (escape > 0 || at >= word.size()) continue;
    if (divides(word[at - 1])) divided = at;
    if (joins(word[at - 1])) joined = at;
  }
  return word.size();
}

class Wrapper {
 public:
  Wrapper(std::size_t width, std::size_t indent) : width_(width), indent_(indent) {}

  void line(std::string_view line) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string_view::npos) return;
    out_.append(first, ' ');  // a paragraph's own indentation
    used_ = start_ = first;
    for (std::size_t at = first; at < line.size();) {
      const std::size_t end = std::min(line.find(' ', at), line.size());
      const std::size_t next = std::min(line.find_first_not_of(' ', end), line.size());
      word(line.substr(at, end - at), spaces_);
      spaces_ = next - end;
      at = next;
    }
    spaces_ = 0;
  }
  void newline() {
    out_ += '\n';
    used_ = start_ = 0;
  }
  std::string take() { return std::move(out_); }

 private:
  void word(std::string_view word, std::size_t spaces) {
    std::size_t columns = text_columns(word);
    if (used_ > start_ && used_ + spaces + columns > width_) {
      break_line();
    } else {
      out_.append(spaces, ' ');
      used_ += spaces;
    }
    while (used_ + columns > width_) {
      const std::size_t part = fitting_part(word, width_ > used_ ? width_ - used_ : 1);
      if (part == word.size()) break;
      out_ += word.substr(0, part);
      word.remove_prefix(part);
      columns = text_columns(word);
      break_line();
    }
    out_ += word;
    used_ += columns;
  }
  void break_line() {
    out_ += '\n';
    out_.append(indent_, ' ');
    used_ = start_ = indent_;
  }

  const std::size_t width_, indent_;
  std::string out_;
  std::size_t used_ = 0, start_ = 0, spaces_ = 0;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void trim_end(std::string& text) {
  while (text.ends_with(' ')) text.pop_back();
}

}  // namespace

std::size_t text_columns(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t escape = escape_length(text.substr(at)); escape > 0) {
      at += escape;
      continue;
    }
    // What is drawn as one, such as a letter and its marks, counts as its first character.
    const std::string_view cluster = text.substr(at, grapheme_length(text.substr(at)));
    const bool emoji = cluster.find(kAsEmoji) != std::string_view::npos;
    columns += emoji ? 2 : columns_of(first_code_point(cluster).value);
    at += cluster.size();
  }
  return columns;
}

std::string wrap(std::string_view text, std::size_t width, std::size_t indent) {
  Wrapper wrapper(width, std::min(indent, width / 2));
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (at > 0) wrapper.newline();
    wrapper.line(text.substr(at, end - at));
    at = end + 1;
  }
  return wrapper.take();
}

std::string cut(std::string_view text, std::size_t width) {
  if (text_columns(text) <= width) return std::string(text);
  std::size_t columns = 0, end = 0, word = 0;
  while (end < text.size()) {
    const CodePoint c = first_code_point(text.substr(end));
    columns += columns_of(c.value);
    if (columns >= width) break;  // the mark takes the last one
    if (c.value == ' ') word = end;
    end += c.length;
  }
  std::string_view kept = text.substr(0, word > 0 ? word : end);
  kept = kept.substr(0, kept.find_last_not_of(' ') + 1);
  return std::string(kept) + "…";
}

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

bool Table::has_titles() const {
  return std::ranges::any_of(columns_, [](const Column& column) { return !column.title.empty(); });
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    widths.push_back(text_columns(columns_[c].title));
    for (const auto& row : rows_) widths[c] = std::max(widths[c], text_columns(row[c]));
  }
  return widths;
}

std::string Table::text(std::size_t width, std::size_t indent) const {
  if (rows_.empty()) return "";
  std::vector<std::size_t> widths = natural_widths();
  const auto total = [&] {
    return std::accumulate(widths.begin(), widths.end(), indent + kGap * (widths.size() - 1));
  };
  // The widest text gives way first.
  while (total() > width) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const bool gives = columns_[c].kind == Column::Kind::kText && widths[c] > kLeastWords;
      if (gives && (widest == columns_.size() || widths[c] > widths[widest])) widest = c;
    }
    if (widest == columns_.size()) return stacked(width, indent);
    widths[widest] -= std::min(total() - width, widths[widest] - kLeastWords);
  }
  return aligned(widths, indent);
}

std::string Table::aligned_row(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                               std::size_t indent) const {
  std::vector<std::vector<std::string>> parts;
  std::size_t height = 1;
  for (std::size_t c = 0; c < cells.size(); ++c) {
    const bool words = columns_[c].kind == Column::Kind::kText;
    parts.push_back(lines_of(words ? wrap(cells[c], widths[c]) : cells[c]));
    height = std::max(height, parts.back().size());
  }
  std::string text;
  for (std::size_t y = 0; y < height; ++y) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = y < parts[c].size() ? parts[c][y] : "";
      const std::string space(widths[c] - std::min(widths[c], text_columns(cell)), ' ');
      if (c > 0) line.append(kGap, ' ');
      line += columns_[c].kind == Column::Kind::kNumber ? space + cell : cell + space;
    }
    trim_end(line);
    text += line + '\n';
  }
  return text;
}

std::string Table::aligned(const std::vector<std::size_t>& widths, std::size_t indent) const {
  std::string text;
  if (has_titles()) {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    text += aligned_row(titles, widths, indent);
  }
  for (const auto& row : rows_) text += aligned_row(row, widths, indent);
  return text;
}

// The first cell; below it "title value" of the short ones; below them the texts, each from a line of its
// own.
std::string Table::stacked(std::size_t width, std::size_t indent) const {
  const std::size_t inner = indent + 2;
  std::string text;
  const auto paragraph = [&](const std::string& words, std::size_t by) {
    const std::size_t room = width > by + 8 ? width - by : 8;
    for (std::string& line : lines_of(wrap(words, room, 2))) {
      trim_end(line);
      text += std::string(by, ' ') + line + '\n';
    }
  };
  for (const auto& row : rows_) {
    const auto is_long = [&](std::size_t c) {
      return columns_[c].kind == Column::Kind::kText &&
             (c + 1 == row.size() || text_columns(row[c]) > kLeastWords ||
              row[c].find('\n') != std::string::npos);
    };
    if (!row[0].empty()) paragraph(row[0], indent);
    std::vector<std::string> pairs;
    for (std::size_t c = 1; c < row.size(); ++c) {
      if (is_long(c) || row[c].empty()) continue;
      pairs.push_back(columns_[c].title.empty() ? row[c] : columns_[c].title + " " + row[c]);
    }
    std::string line;
    for (const std::string& pair : pairs) {
      if (!line.empty() && inner + text_columns(line) + kGap + text_columns(pair) > width) {
        paragraph(line, inner);
        line.clear();
      }
      line += (line.empty() ? "" : "  ") + pair;
    }
    if (!line.empty()) paragraph(line, inner);
    for (std::size_t c = 1; c < row.size(); ++c) {
      if (!is_long(c) || row[c].empty()) continue;
      const bool named = !columns_[c].title.empty() && c + 1 < row.size();
      paragraph(named ? columns_[c].title + " " + row[c] : row[c], inner);
    }
  }
  return text;
}

}  // namespace doppler
