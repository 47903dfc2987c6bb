// SentencePiece's precompiled_charsmap: a double-array trie from byte strings to their replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler::tokenizer {

class Charsmap {
 public:
  Charsmap() = default;
  // Layout: uint32 length of the trie in bytes, little endian; the trie, uint32 units as darts-clone lays
  // them out; the replacements, each ended by NUL. Errors: kCorrupt when the lengths do not fit.
  static Result<Charsmap> parse(std::string_view blob);

  bool empty() const { return units_.empty(); }

  struct Match {
    std::size_t length = 0;  // bytes of text
    std::string_view replacement;
  };
  std::optional<Match> longest(std::string_view text) const { return find(text, /*first=*/false); }
  std::optional<Match> shortest(std::string_view text) const { return find(text, /*first=*/true); }

 private:
  std::optional<Match> find(std::string_view text, bool first) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace doppler::tokenizer
