// How fast tokenizers load and encode: a synthetic vocabulary of Gemma's size, or a given tokenizer file.
// Usage: tokenizer_bench [TOKENIZER [TEXT_FILE]]
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/screen.h"
#include "tokenizer/tokenizer.h"

namespace {

using doppler::Said;
using doppler::say;
using doppler::tokenizer::Tokenizer;

double seconds_of(auto&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Random {
 public:
  std::uint32_t below(std::uint32_t bound) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 33) % bound;
  }

 private:
  std::uint64_t state_ = 42;
};

// English-like words by syllables, short ones more often.
std::string make_text(std::size_t bytes) {
  static const char* kSyllables[] = {"the", "re", "in", "on", "an", "er", "al", "ti", "es", "or",
                                     "te",  "of", "ed", "is", "it", "ar", "st", "to", "nt", "ng",
                                     "se",  "ha", "as", "ou", "io", "le", "ve", "co"};
  Random random;
  std::string text;
  while (text.size() < bytes) {
    for (std::uint32_t n = 1 + random.below(2) * random.below(4); n > 0; --n)
      text += kSyllables[random.below(28)];
    text += random.below(12) == 0 ? ", " : random.below(40) == 0 ? ".\n" : " ";
  }
  return text;
}

// A tokenizer.json of Gemma's size and kind, without pre-tokenization: words of make_text() and other
// letters, each grown letter by letter, so that merges chain as trained ones do.
std::string make_tokenizer_json(std::size_t size) {
  const std::string mark = "\xe2\x96\x81";
  std::unordered_map<std::string, std::size_t> ids;
  std::string vocab, merges;
  const auto add = [&](const std::string& piece) {
    if (!ids.emplace(piece, ids.size()).second) return false;
    vocab +=
        fmt::format("{}\"{}\":{}", vocab.empty() ? "" : ",", piece == "\n" ? "\\n" : piece, ids.size() - 1);
    return true;
  };
  const auto merge = [&](const std::string& a, const std::string& b) {
    if (ids.contains(a) && ids.contains(b))
      merges += fmt::format("{}[\"{}\",\"{}\"]", merges.empty() ? "" : ",", a, b);
  };
  for (const char c : std::string("abcdefghijklmnopqrstuvwxyz,.\n")) add(std::string(1, c));
  add(mark);
  for (std::string run = "a"; run.size() <= 64; run += run) {
    if (add(run + run)) merge(run, run);
  }
  Random random;
  const std::string text = make_text(4'000'000);
  for (std::size_t at = 0; ids.size() < size;) {
    const std::size_t end = std::min(text.find_first_of(" ,.\n", at), text.size());
    std::string word = at < text.size() ? text.substr(at, end - at) : "";
    at = end + 1;
    const std::size_t letters = at > text.size() ? 7 : 3;
    while (word.size() < letters) word += static_cast<char>('a' + random.below(26));
    std::string grown = mark;
    for (std::size_t i = 0; i < word.size() && ids.size() < size; ++i) {
      const std::string letter(1, word[i]), next = grown + letter;
      if (add(next)) {
        merge(grown, letter);
        if (i > 0) merge(grown.substr(0, grown.size() - 1), word.substr(i - 1, 2));
      }
      grown = next;
    }
    if (add(word.substr(0, 2))) merge(word.substr(0, 1), word.substr(1, 1));
  }
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[],"normalizer":{{"type":"Replace","pattern":{{"String":" "}},)"
      R"("content":"▁"}},"pre_tokenizer":null,"post_processor":null,"decoder":null,)"
      R"("model":{{"type":"BPE","fuse_unk":true,"byte_fallback":true,"vocab":{{{}}},"merges":[{}]}}}})",
      vocab, merges);
}

int report(const doppler::Result<Tokenizer>& tokenizer, const std::string& text, double load_seconds) {
  if (!tokenizer) {
    say(Said::kError, tokenizer.error().message);
    return 3;
  }
  fmt::print("load: {:.3f} s, {} ids, {} merges\n", load_seconds, tokenizer->vocab_size(),
             tokenizer->spec().merges.size());
  const std::string run(text.size(), 'a');
  for (const auto& [name, input] :
       {std::pair<const char*, const std::string&>("text", text), {"one character", run}}) {
    doppler::Result<std::vector<doppler::TokenId>> ids;
    const double encode = seconds_of([&] { ids = tokenizer->encode(input); });
    if (!ids) {
      say(Said::kError, ids.error().message);
      return 3;
    }
    const double decode = seconds_of([&] { (void)tokenizer->decode(*ids); });
    fmt::print("{} of {} bytes: encode {:.3f} s ({} ids), decode {:.3f} s\n", name, input.size(), encode,
               ids->size(), decode);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string text = make_text(1'000'000);
  if (argc > 2) {
    auto read = doppler::read_text_file(argv[2], 1u << 30);
    if (!read) {
      say(Said::kError, read.error().message);
      return 3;
    }
    text = std::move(*read);
  }
  const std::string json = argc > 1 ? "" : make_tokenizer_json(262'144);
  if (argc <= 1) fmt::print("synthetic tokenizer.json: {} bytes\n", json.size());
  doppler::Result<Tokenizer> tokenizer = std::unexpected(doppler::Error{});
  const double load = seconds_of([&] {
    tokenizer =
        argc > 1 ? Tokenizer::load(argv[1]) : Tokenizer::from_json(json, "The synthetic tokenizer.json");
  });
  return report(tokenizer, text, load);
}
