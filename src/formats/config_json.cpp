#include "formats/config_json.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace doppler {
namespace {

constexpr std::array<std::string_view, 3> kWords = {"-Infinity", "Infinity", "NaN"};

struct Found {
  std::size_t at;
  std::string_view word;
};

bool continues_word(std::string_view text, std::size_t at) {
  if (at >= text.size()) return false;
  const char c = text[at];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// The words outside strings.
std::vector<Found> find_words(std::string_view text) {
  std::vector<Found> found;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        in_string = false;
      continue;
    }
    if (text[i] == '"') in_string = true;
    const auto word = std::ranges::find_if(
        kWords, [&](std::string_view candidate) { return text.substr(i).starts_with(candidate); });
    if (word == kWords.end() || continues_word(text, i + word->size())) continue;
    if (i > 0 && (continues_word(text, i - 1) || text[i - 1] == '-')) continue;
    found.push_back({i, *word});
    i += word->size() - 1;
  }
  return found;
}

}  // namespace

Result<Json> parse_config_json(std::string_view text, std::string_view what) {
  const std::vector<Found> words = find_words(text);
  if (words.empty()) return parse_json(text, what);
  // With numbers of the same length in their place, so that errors name places of the file.
  std::string checked(text), spelled;
  std::size_t copied = 0;
  for (const Found& found : words) {
    checked.replace(found.at, found.word.size(), std::string(found.word.size(), '1'));
    spelled += text.substr(copied, found.at - copied);
    spelled += fmt::format(R"({{"__float__": "{}"}})", found.word);
    copied = found.at + found.word.size();
  }
  spelled += text.substr(copied);
  if (Result<Json> shown = parse_json(checked, what); !shown) return shown;
  return parse_json(spelled, what);
}

}  // namespace doppler
