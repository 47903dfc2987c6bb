#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/unicode.h"
#include "tokenizer/regex_syntax.h"

namespace doppler::tokenizer {
namespace {

// The patterns of published models known to need a bounded number of steps a character. They run as machine
// code, where PCRE2 counts few of its steps; every other pattern runs in PCRE2's interpreter, which counts
// them all.
constexpr auto kLinearPatterns = std::to_array<std::string_view>({
    // GPT-2, and ByteLevel's own
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    // Llama 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Qwen 2 and 3
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // o200k
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
});

// Backtracking steps allowed for a text: enough for patterns that try each character a few dozen times, and a
// constant for short texts. A step costs some 20 ns, so this is about a second for a megabyte.
constexpr std::uint64_t kStepsPerByte = 64, kStepsAlways = 100'000;
// The first try of each match gets few steps; a try that runs out is repeated with eight times as many.
constexpr std::uint64_t kFirstTry = 2'000, kTryGrowth = 8;
// Backtracking points kept by PCRE2 while matching, in KiB.
constexpr std::uint32_t kHeapLimit = 64 * 1024;

struct Free {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

// One pass over one text.
class Search {
 public:
  Search(const pcre2_code* code, bool fast, std::string_view text)
      : code_(code),
        fast_(fast),
        text_(text),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        budget_(kStepsAlways + kStepsPerByte * text.size()) {
    if (context_) pcre2_set_heap_limit(context_.get(), kHeapLimit);
  }
  bool ready() const { return data_ != nullptr && context_ != nullptr; }

  // The first match at or behind `from`: >0 found, PCRE2_ERROR_NOMATCH, or another PCRE2 error.
  int next(std::size_t from, Range& found) {
    for (std::size_t at = from;; at += first_code_point(text_.substr(at)).length) {
      int rc = fast_ ? match(at, UINT32_MAX, 0) : match_within_budget(at);
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
        fast_ = false;
        rc = match_within_budget(at);
      }
      if (rc >= 0) {
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
        found = {ends[0], std::max(ends[0], ends[1])};
        return 1;
      }
      // The interpreter counts its steps from zero at every start, so it is given one start at a time.
      if (rc != PCRE2_ERROR_NOMATCH || fast_ || at >= text_.size()) return rc;
    }
  }

 private:
  int match(std::size_t at, std::uint32_t limit, std::uint32_t options) {
    pcre2_set_match_limit(context_.get(), limit);
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), at,
                       PCRE2_NO_UTF_CHECK | options, data_.get(), context_.get());
  }

  int match_within_budget(std::size_t at) {
    for (std::uint64_t limit = kFirstTry;; limit *= kTryGrowth) {
      const std::uint64_t allowed = std::min(limit, budget_);
      const int rc = match(at, static_cast<std::uint32_t>(allowed), PCRE2_ANCHORED | PCRE2_NO_JIT);
      if (rc != PCRE2_ERROR_MATCHLIMIT) return rc;
      budget_ -= allowed;
      if (budget_ == 0) return rc;
    }
  }

  const pcre2_code* code_;
  bool fast_;
  std::string_view text_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
  std::uint64_t budget_;
};

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 160> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  Regex regex;
  regex.pattern_ = pattern;
  DOPPLER_ASSIGN(const std::string translated, translate_regex(pattern));
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                       PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                       &code, &offset, nullptr);
  if (compiled == nullptr) {
    return fail(
        ErrorCode::kCorrupt,
        "The pattern {} does not compile: {} at offset {} of {}. Correct the pattern in the tokenizer file.",
        printable(pattern, 200), pcre2_message(code), offset, printable(translated, 400));
  }
  regex.code_ = std::shared_ptr<const void>(
      compiled, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
  const bool linear =
      std::find(kLinearPatterns.begin(), kLinearPatterns.end(), pattern) != kLinearPatterns.end();
  regex.fast_ = linear && pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

Result<std::vector<Range>> Regex::find_all(std::string_view text) const {
  std::vector<Range> matches;
  Search search(static_cast<const pcre2_code*>(code_.get()), fast_, text);
  if (!search.ready())
    return fail(ErrorCode::kLimit, "There is no memory left to match a pattern. Free some.");
  std::size_t from = 0;
  while (from <= text.size()) {
    Range found;
    const int rc = search.next(from, found);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return fail(ErrorCode::kLimit,
                  "The pattern {} takes too many steps on a text of {} bytes ({}). Simplify it in the "
                  "tokenizer file.",
                  printable(pattern_, 200), text.size(), pcre2_message(rc));
    }
    // \K and lookbehind can move a match's ends to before its start; such a match would not advance.
    if (found.begin < from) found.begin = from;
    if (found.end < found.begin) found.end = found.begin;
    if (found.begin == found.end && !matches.empty() && matches.back().end == found.end) {
      if (from >= text.size()) break;
      from += first_code_point(text.substr(from)).length;
      continue;
    }
    matches.push_back(found);
    from = found.end;
  }
  return matches;
}

}  // namespace doppler::tokenizer
