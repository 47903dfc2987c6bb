#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/unicode.h"

namespace doppler {
namespace {

// RFC 3629, table of section 4: what the first byte allows for the second.
struct Lead {
  std::size_t length;
  unsigned char second_low, second_high;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// How many bytes at the start agree with a well-formed sequence (its full length if it is one).
std::size_t valid_prefix(std::string_view text, std::size_t& wanted) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return wanted = 0;
  const Lead lead = lead_of(byte(0));
  wanted = lead.length;
  if (lead.length == 0) return 0;
  std::size_t n = 1;
  while (n < lead.length && n < text.size()) {
    const unsigned char low = n == 1 ? lead.second_low : 0x80, high = n == 1 ? lead.second_high : 0xbf;
    if (byte(n) < low || byte(n) > high) break;
    ++n;
  }
  return n;
}

}  // namespace

std::size_t utf8_sequence_length(std::string_view text) {
  std::size_t wanted = 0;
  const std::size_t valid = valid_prefix(text, wanted);
  return wanted != 0 && valid == wanted ? wanted : 0;
}

std::size_t incomplete_utf8_suffix(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const std::string_view tail = text.substr(text.size() - back);
    if (is_utf8_continuation(tail[0])) continue;  // look further back
    std::size_t wanted = 0;
    const std::size_t valid = valid_prefix(tail, wanted);
    return wanted > back && valid == back ? back : 0;
  }
  return 0;
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    std::size_t wanted = 0;
    const std::size_t valid = valid_prefix(bytes, wanted);
    if (wanted != 0 && valid == wanted) {
      out.append(bytes.substr(0, wanted));
      bytes.remove_prefix(wanted);
    } else {
      out += "\xef\xbf\xbd";
      bytes.remove_prefix(std::max<std::size_t>(valid, 1));
    }
  }
  return out;
}

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) value /= 1000.0, ++unit;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= max_bytes) return out + "…";
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_sequence_length(text.substr(i));
    const bool c1_control = length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (length == 0 || byte < 0x20 || byte == 0x7f || c1_control) {
      out += byte == '\n' ? "\\n" : byte == '\t' ? "\\t" : fmt::format("\\x{:02x}", byte);
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out;
}

namespace {

// Letters to insert, drop, replace, or swap with their neighbour, each once: "q_nrom" is nearer to "q_norm"
// than to "q_proj". Source: Damerau (1964), in the restricted form.
std::size_t typing_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j < row.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  // Names of models and options are short; the cap keeps the quadratic comparison harmless for hostile ones.
  constexpr std::size_t kMaxName = 256;
  std::string best;
  if (name.size() > kMaxName) return best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > name.size() + best_distance || name.size() > candidate.size() + best_distance)
      continue;
    const std::size_t distance = typing_distance(name, candidate);
    if (distance < best_distance) best_distance = distance, best = candidate;
  }
  return best;
}

std::string inside_sentence(std::string_view subject) {
  std::string text(subject);
  if (text.starts_with("The ")) text[0] = 't';
  return text;
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

std::string ascii_upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_upper(c);
  return out;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

}  // namespace doppler
