#include "convert/pre_name.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/unicode.h"
#include "tokenizer/pre_tokenizer.h"

namespace doppler::convert {
namespace {

// Preferred where several names stand for the same steps: names of widely used models, which old programs
// know.
constexpr auto kBestKnown = std::to_array<std::string_view>(
    {"gpt-2", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3", "qwen35", "smollm", "command-r",
     "smaug-bpe", "hunyuan", "olmo", "falcon"});

constexpr std::string_view kDigit = R"(\p{N})", kDigits = R"(\p{N}+)";

// A step as the pattern whose matches it isolates; "" for a step that cuts nothing, nothing for others.
struct AsPattern {
  std::optional<std::string_view> operator()(const tokenizer::pre_tokenizers::Split& step) const {
    // Removing the text between matches is the same as isolating them, for patterns that match everything.
    const bool isolates = (step.behavior == tokenizer::SplitBehavior::kIsolated && !step.invert) ||
                          (step.behavior == tokenizer::SplitBehavior::kRemoved && step.invert);
    if (!isolates || !step.pattern.is_regex) return std::nullopt;
    return step.pattern.text;
  }
  std::optional<std::string_view> operator()(const tokenizer::pre_tokenizers::ByteLevel& step) const {
    if (step.add_prefix_space) return std::nullopt;
    return step.use_regex ? tokenizer::kGpt2Pattern : std::string_view();
  }
  std::optional<std::string_view> operator()(const tokenizer::pre_tokenizers::Digits& step) const {
    return step.individual ? kDigit : kDigits;
  }
  template <typename Other>
  std::optional<std::string_view> operator()(const Other&) const {
    return std::nullopt;
  }
};

std::size_t count_patterns(const tokenizer::GgufPreTokenizer& row) {
  return static_cast<std::size_t>(
      std::ranges::count_if(row.patterns, [](std::string_view pattern) { return !pattern.empty(); }));
}

bool same_patterns(const tokenizer::GgufPreTokenizer& row, const std::vector<std::string_view>& patterns) {
  return count_patterns(row) == patterns.size() &&
         std::equal(patterns.begin(), patterns.end(), row.patterns.begin());
}

// Smaller is better.
std::size_t rank(const tokenizer::GgufPreTokenizer& row, bool nfc) {
  const auto known = std::ranges::find(kBestKnown, row.name);
  const auto place = static_cast<std::size_t>(known - kBestKnown.begin());
  return place + (row.form.nfc == nfc ? 0 : kBestKnown.size() + 1);
}

}  // namespace

bool normalises_to_nfc(const tokenizer::TokenizerSpec& spec) {
  if (spec.normalizer.size() != 1) return false;
  const auto* form = std::get_if<tokenizer::normalizers::Form>(&spec.normalizer[0]);
  return form != nullptr && form->form == UnicodeForm::kNfc;
}

Result<const tokenizer::GgufPreTokenizer*> name_pre_tokenizer(const tokenizer::TokenizerSpec& spec) {
  const bool nfc = normalises_to_nfc(spec);
  if (!spec.normalizer.empty() && !nfc) {
    return fail(ErrorCode::kUnsupported,
                "The tokenizer normalises its text in a way that no GGUF pre-tokenizer does.");
  }
  std::vector<std::string_view> patterns;
  for (std::size_t i = 0; i < spec.pre_tokenizer.size(); ++i) {
    const auto pattern = std::visit(AsPattern(), spec.pre_tokenizer[i]);
    if (!pattern) {
      return fail(ErrorCode::kUnsupported,
                  "Step {} of the tokenizer's pre-tokenizer cuts in a way that no GGUF pre-tokenizer does.",
                  i + 1);
    }
    if (!pattern->empty()) patterns.push_back(*pattern);
  }
  const tokenizer::GgufPreTokenizer* best = nullptr;
  for (const tokenizer::GgufPreTokenizer& row : tokenizer::gguf_pre_tokenizers()) {
    if (row.ignore_merges != spec.ignore_merges || !same_patterns(row, patterns)) continue;
    if (best == nullptr || rank(row, nfc) < rank(*best, nfc)) best = &row;
  }
  if (best != nullptr) return best;
  std::vector<std::string> quoted;
  for (const std::string_view pattern : patterns) quoted.push_back(printable(pattern, 400));
  return fail(ErrorCode::kUnsupported, "No GGUF pre-tokenizer has the tokenizer's patterns ({}){}.",
              join(quoted, " then "), spec.ignore_merges ? " with ignore_merges" : "");
}

}  // namespace doppler::convert
