#include "page/page.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/html.h"
#include "base/json.h"
#include "base/sha256.h"

namespace doppler::page {
namespace {

using Marks = std::map<std::string, std::string, std::less<>>;

// The common parts of the program, in the order in which they build on each other.
constexpr std::string_view kScripts[] = {"base.js", "grids.js", "charts.js"};

constexpr std::string_view kOutcomes[] = {"good", "bad", "note"};

// JSON that may stand inside a script element: no character there can end it or open a comment. Inside
// JSON, these characters only occur in strings.
std::string script_json(const Json& json) {
  std::string safe;
  for (const char c : dump_json(json)) {
    if (c == '<' || c == '>' || c == '&')
      safe += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      safe += c;
  }
  return safe;
}

// The text with every {mark} of `marks` replaced, in one pass: replacements are not searched for marks.
std::string filled(std::string_view text, const Marks& marks) {
  std::string out;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string_view::npos ? open : text.find('}', open);
    if (close == std::string_view::npos) break;
    const auto mark = marks.find(text.substr(open + 1, close - open - 1));
    const std::size_t keep = mark == marks.end() ? open + 1 : open;
    out += text.substr(0, keep);
    if (mark != marks.end()) out += mark->second;
    text.remove_prefix(mark == marks.end() ? keep : close + 1);
  }
  return out += text;
}

// The SHA-256 of a text in base64, as a page's policy names the one script that may run there. Nothing else
// can, whatever text came into the page.
std::string policy_hash(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = sha256_hex(std::as_bytes(std::span(text)));
  const auto bits_at = [&](std::size_t nibble) {  // beyond the end: zeros
    const std::size_t value =
        nibble < hex.size() ? std::string_view("0123456789abcdef").find(hex[nibble]) : 0;
    return static_cast<unsigned>(value);
  };
  std::string base64;
  for (std::size_t i = 0; i < hex.size(); i += 3) {  // three hexadecimal digits are two of base64
    const unsigned bits = bits_at(i) << 8 | bits_at(i + 1) << 4 | bits_at(i + 2);
    base64 += kDigits[bits >> 6];
    base64 += kDigits[bits & 63];
  }
  base64.back() = '=';  // 256 bits are 42 digits and four bits: the 43rd digit, and padding
  return base64;
}

std::string sentences_html(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) out += fmt::format("<p>{}</p>\n", escape_html(sentence));
  return out;
}

std::string facts_html(const Head& head) {
  std::string out;
  for (const auto& [name, value] : head.facts) {
    if (value.empty()) continue;
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape_html(name), escape_html(value));
  }
  return out;
}

}  // namespace

std::string html(const Parts& parts, const Head& head, const Json& data) {
  std::string script;
  for (const std::string_view name : kScripts) script += find_file(page_files(), name);
  for (const std::string_view part : parts.scripts) script += part;
  const Marks marks = {{"kind", std::string(parts.kind)},
                       {"style", std::string(find_file(page_files(), "page.css"))},
                       {"script-hash", policy_hash(script)},
                       {"script", script},
                       {"body", std::string(parts.body)},
                       {"title", escape_html(head.title)},
                       {"outcome", std::string(kOutcomes[static_cast<std::size_t>(head.outcome)])},
                       {"word", escape_html(head.word)},
                       {"verdict", escape_html(head.verdict)},
                       {"more", sentences_html(head.more)},
                       {"facts", facts_html(head)},
                       {"data", script_json(data)}};
  return filled(find_file(page_files(), "page.html"), marks);
}

std::string_view find_file(std::span<const PageFile> files, std::string_view name) {
  for (const PageFile& file : files) {
    if (file.name == name) return file.text;
  }
  return {};
}

Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.3e}", value).c_str(), nullptr);
}

std::string last_part(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
}

}  // namespace doppler::page
