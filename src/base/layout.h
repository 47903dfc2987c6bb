// Text for a width: words wrapped, and tables that change their form rather than their words when the width
// is too small for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

// Columns that a terminal gives the character: 0 (marks, controls), 1 or 2. In unicode.cpp, where Unicode's
// data are.
std::size_t columns_of(char32_t c);

// What a terminal gives the text, in columns; escape sequences for colours take none.
std::size_t text_columns(std::string_view text);

// Lines of at most `width` columns, broken at spaces, or after a mark such as / or . inside of what alone is
// longer than a line; what has no such place is left whole. Lines after the first begin with `indent` spaces.
// Newlines of the text stay.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent = 0);

// At most `width` columns, cut after a word; "…" marks the cut.
std::string cut(std::string_view text, std::size_t width);

struct Column {
  enum class Kind : std::uint8_t {
    kName,    // to the left; the first column tells rows apart
    kNumber,  // to the right
    kText,    // words, wrapped if need be
  };
  std::string title;  // empty: its cells speak for themselves
  Kind kind = Kind::kName;
};

// Rows of cells. Where the columns do not fit beside each other, words are wrapped; where that leaves too
// little for them, each row becomes a paragraph: the first cell, then the others with their titles.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as there are columns; missing ones are empty.
  void add(std::vector<std::string> cells);
  // The titles are left out if all are empty. `indent` spaces begin each line. Ends with a newline unless
  // there are no rows.
  std::string text(std::size_t width, std::size_t indent = 0) const;

 private:
  std::vector<std::size_t> natural_widths() const;
  std::string aligned(const std::vector<std::size_t>& widths, std::size_t indent) const;
  std::string stacked(std::size_t width, std::size_t indent) const;
  std::string aligned_row(const std::vector<std::string>& cells, const std::vector<std::size_t>& widths,
                          std::size_t indent) const;
  bool has_titles() const;

  const std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace doppler
