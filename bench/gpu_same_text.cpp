// gpu_same_text MODEL [--sequences N] [--loads N] [--tokens N] [--prompt N] [--backend NAME]: whether what a
// user reads depends on what must not decide it. Continues N prompts greedily, each by itself with 1, 8 and
// 16 tokens a submission, then all of them together, after loads of which each finds an empty cache folder,
// and once in a program for a single sequence. Prints for each way how many continuations are those of the
// first one, and where one differs how far apart the logits of the two tokens were when it did: a text may
// differ only where two tokens are as likely as makes no difference.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/log.h"
#include "base/screen.h"
#include "model/family.h"

using namespace doppler;

namespace {

struct Wanted {
  std::string model, backend = "gpu";
  std::uint64_t sequences = 64, loads = 2, tokens = 64, prompt = 40;  // longer than a page
};

using Texts = std::vector<std::vector<TokenId>>;  // by sequence

class SameText {
 public:
  SameText(const Model& model, const Wanted& wanted) : model_(model), wanted_(wanted) {}

  Status run() {
    for (std::uint64_t load = 0; load < wanted_.loads; ++load) {
      for (const std::uint32_t submit : {1u, 8u, 16u}) {
        DOPPLER_ASSIGN(const auto backend, make(static_cast<std::uint32_t>(wanted_.sequences), submit));
        Texts texts;
        for (std::uint64_t s = 0; s < wanted_.sequences; ++s) {
          DOPPLER_ASSIGN(texts.emplace_back(), alone(*backend, s));
        }
        DOPPLER_TRY(compare(fmt::format("load {}, alone, {} a submission", load + 1, submit), texts));
        DOPPLER_ASSIGN(texts, together(*backend));
        DOPPLER_TRY(compare(fmt::format("load {}, together, {} a submission", load + 1, submit), texts));
      }
    }
    DOPPLER_ASSIGN(const auto backend, make(1, 8));
    Texts texts;
    for (std::uint64_t s = 0; s < wanted_.sequences; ++s) {
      DOPPLER_ASSIGN(texts.emplace_back(), alone(*backend, s));
    }
    return compare("a single slot", texts);
  }

 private:
  Result<std::unique_ptr<Backend>> make(std::uint32_t slots, std::uint32_t submit) {
    const std::filesystem::path fresh = std::filesystem::temp_directory_path() /
                                        fmt::format("gpu-same-text-{}", getpid()) / std::to_string(++made_);
    std::error_code ignored;
    std::filesystem::create_directories(fresh, ignored);
    setenv("XDG_CACHE_HOME", fresh.c_str(), 1);
    BackendOptions options;
    options.context = wanted_.prompt + tokens_of(0) + 16;
    options.slots = slots;
    options.gpu.submit_tokens = submit;
    return make_backend(wanted_.backend, model_.spec, model_.weights, options);
  }

  TokenId prompt_token(std::uint64_t sequence, std::uint64_t at) const {
    return static_cast<TokenId>((at * 7919 + 13 + sequence * 104729) % model_.spec.vocab_size);  // any primes
  }

  Status read_prompt(Backend& backend, std::uint64_t sequence, std::uint32_t slot) {
    backend.clear(slot);
    StepInput prompt;
    for (std::uint64_t i = 0; i < wanted_.prompt; ++i) {
      prompt.add(prompt_token(sequence, i), i, slot, false);
      if (prompt.size() < step_tokens(backend.options()) && i + 1 < wanted_.prompt) continue;
      DOPPLER_TRY(backend.step(prompt, nullptr));
      prompt = {};
    }
    return {};
  }

  // The first one goes on when the others have ended.
  std::uint64_t tokens_of(std::uint64_t sequence) const {
    return wanted_.tokens + (sequence == 0 ? kAloneAtLast : 0);
  }

  Continuation continuation(std::uint64_t sequence, std::uint32_t slot) {
    history_ = {prompt_token(sequence, wanted_.prompt)};
    return {.slot = slot,
            .id = history_[0],
            .most = tokens_of(sequence),
            .sampling = &greedy_,
            .history = history_,
            .stops = {}};
  }

  Result<std::vector<TokenId>> alone(Backend& backend, std::uint64_t sequence) {
    DOPPLER_TRY(read_prompt(backend, sequence, 0));
    DOPPLER_TRY(backend.continuer()->continue_sequence(continuation(sequence, 0)));
    std::vector<TokenId> text;
    for (;;) {
      DOPPLER_ASSIGN(const auto tokens, backend.continuer()->next_tokens());
      if (tokens.empty()) break;
      text.insert(text.end(), tokens.begin(), tokens.end());
    }
    DOPPLER_TRY(backend.continuer()->stop_sequence(wanted_.prompt + text.size()));
    return text;
  }

  Result<Texts> together(Backend& backend) {
    Texts texts(wanted_.sequences);
    for (std::uint32_t s = 0; s < texts.size(); ++s) DOPPLER_TRY(read_prompt(backend, s, s));
    for (std::uint32_t s = 0; s < texts.size(); ++s)
      DOPPLER_TRY(backend.continuer()->join(continuation(s, s)));
    for (;;) {
      DOPPLER_ASSIGN(const auto tokens, backend.continuer()->tokens_of_all());
      if (tokens.empty()) break;
      for (const SlotToken& token : tokens) texts[token.slot].push_back(token.id);
    }
    for (std::uint32_t s = 0; s < texts.size(); ++s)
      DOPPLER_TRY(backend.continuer()->leave(s, wanted_.prompt + texts[s].size()));
    return texts;
  }

  Status compare(const std::string& way, const Texts& texts) {
    if (first_.empty()) first_ = texts;
    std::uint64_t same = 0;
    double largest = 0;
    for (std::uint64_t s = 0; s < texts.size(); ++s) {
      if (texts[s] == first_[s]) {
        ++same;
        continue;
      }
      const auto [a, b] = std::ranges::mismatch(texts[s], first_[s]);
      if (a == texts[s].end() || b == first_[s].end()) {
        fmt::print("    sequence {} has {} tokens, not {}\n", s, texts[s].size(), first_[s].size());
        largest = HUGE_VAL;
        continue;
      }
      const auto at = static_cast<std::size_t>(a - texts[s].begin());
      DOPPLER_ASSIGN(const double apart, distance(s, at, *a, *b));
      fmt::print("    sequence {}: token {} is {}, not {}, of which the logits are {:.5f} apart\n", s, at, *a,
                 *b, apart);
      largest = std::max(largest, apart);
    }
    fmt::print("{}: {} of {} texts the same", way, same, texts.size());
    if (same < texts.size()) fmt::print("; the logits of others at most {:.5f} apart", largest);
    fmt::print("\n");
    std::fflush(stdout);
    return {};
  }

  // How far apart a slow and exact backend finds the logits of two tokens behind the first `at` tokens of a
  // text.
  Result<double> distance(std::uint64_t sequence, std::size_t at, TokenId a, TokenId b) {
    if (judge_ == nullptr) {
      BackendOptions options;
      options.context = wanted_.prompt + tokens_of(0) + 16;
      options.exact = true;
      DOPPLER_ASSIGN(judge_, make_backend("cpu", model_.spec, model_.weights, options));
    }
    judge_->clear(0);
    StepInput input;
    const std::uint64_t given = wanted_.prompt + 1, length = given + at;
    for (std::uint64_t i = 0; i < length; ++i)
      input.add(i < given ? prompt_token(sequence, i) : first_[sequence][i - given], i, 0, i + 1 == length);
    DOPPLER_ASSIGN(const auto logits, judge_->step(input, nullptr));
    return std::abs(double{logits[static_cast<std::size_t>(a)]} - logits[static_cast<std::size_t>(b)]);
  }

  static constexpr std::uint64_t kAloneAtLast = 16;
  const GenerateOptions greedy_{};
  const Model& model_;
  const Wanted& wanted_;
  std::vector<TokenId> history_;
  Texts first_;
  std::unique_ptr<Backend> judge_;
  int made_ = 0;
};

Status run(const Wanted& wanted) {
  DOPPLER_ASSIGN(const Model model, load_model(wanted.model));
  return SameText(model, wanted).run();
}

}  // namespace

int main(int argc, char** argv) {
  Wanted wanted;
  const std::map<std::string_view, std::uint64_t*> numbers = {{"--sequences", &wanted.sequences},
                                                              {"--loads", &wanted.loads},
                                                              {"--tokens", &wanted.tokens},
                                                              {"--prompt", &wanted.prompt}};
  bool good = argc >= 2 && argc % 2 == 0;
  for (int i = 2; good && i < argc; i += 2) {
    const auto number = numbers.find(argv[i]);
    if (std::strcmp(argv[i], "--backend") == 0) {
      wanted.backend = argv[i + 1];
    } else if (number != numbers.end()) {
      *number->second = std::strtoull(argv[i + 1], nullptr, 10);
    } else {
      good = false;
    }
  }
  if (!good || wanted.sequences == 0 || wanted.prompt == 0) {
    say(Said::kError,
        "gpu_same_text MODEL [--sequences N] [--loads N] [--tokens N] [--prompt N] [--backend NAME]");
    return 2;
  }
  wanted.model = argv[1];
  const Status status = run(wanted);
  if (!status) say(Said::kError, "gpu_same_text: {}", status.error().message);
  return status ? 0 : 3;
}
