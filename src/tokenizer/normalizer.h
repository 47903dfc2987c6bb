// Normalizer: the steps that a text goes through before it is cut into pieces.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/finder.h"
#include "tokenizer/spec.h"

namespace doppler::tokenizer {

class Normalizer {
 public:
  // Errors: patterns that do not compile, charsmaps that contradict themselves.
  static Result<Normalizer> create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, and so is the result. Errors: kLimit when a step makes the text absurdly long, or
  // a pattern backtracks too much.
  Result<std::string> apply(std::string text) const;

 private:
  struct Replace {
    Finder finder;
    std::string content;
  };
  struct Precompiled {
    Charsmap charsmap;
  };
  using Step = std::variant<normalizers::Form, normalizers::Lowercase, normalizers::StripAccents,
                            normalizers::Nmt, normalizers::ByteLevel, normalizers::Prepend,
                            normalizers::Strip, normalizers::Bert, Replace, Precompiled>;
  static Result<std::string> run(const Step& step, std::string text, std::size_t limit);
  static Result<std::string> run_replace(const Replace& step, std::string_view text, std::size_t limit);
  static Result<std::string> run_precompiled(const Precompiled& step, std::string_view text,
                                             std::size_t limit);

  std::vector<Step> steps_;
};

// The most bytes that `bytes` of text may grow to. Real steps at most triple a text; a hostile file could
// ask for a megabyte in place of each character.
constexpr std::size_t growth_limit(std::size_t bytes) {
  return bytes * 32 + (std::size_t{1} << 20);
}
std::unexpected<Error> growth_failure(std::size_t limit);

}  // namespace doppler::tokenizer
