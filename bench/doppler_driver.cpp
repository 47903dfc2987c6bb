// doppler_driver MODEL [--target T] [settings]: Doppler behind the requests of driver.h.
#include <fmt/core.h>

#include <array>

#include "base/screen.h"
#include "cli/settings.h"
#include "driver.h"
#include "engine/loaded.h"

namespace {

using namespace doppler;

class DopplerRunner final : public bench::Runner {
 public:
  explicit DopplerRunner(Loaded loaded) : loaded_(std::move(loaded)) {}

  std::uint64_t vocab() const override { return loaded_.model->spec.vocab_size; }
  void clear(int sequence) override {
    loaded_.backend->clear(static_cast<std::uint32_t>(sequence));
    history_[sequence].clear();
  }
  std::string feed(int sequence, const std::vector<std::int32_t>& tokens) override {
    const auto slot = static_cast<std::uint32_t>(sequence);
    const std::size_t most = step_tokens(loaded_.backend->options());
    for (std::size_t begin = 0; begin < tokens.size(); begin += most) {
      const std::size_t end = std::min(begin + most, tokens.size());
      const std::uint64_t first = loaded_.backend->length(slot);
      StepInput input;
      for (std::size_t i = begin; i < end; ++i)
        input.add(tokens[i], first + i - begin, slot, i + 1 == tokens.size());
      const auto logits = loaded_.backend->step(input, nullptr);
      if (!logits) return logits.error().message;
      logits_ = logits->data();
    }
    history_[sequence].insert(history_[sequence].end(), tokens.begin(), tokens.end());
    return {};
  }
  // As the engine generates: by the backend itself where it can. It then chooses the likeliest token after
  // each, too, and goes on with that one; only the first of `tokens` is read.
  std::string grow(int sequence, const std::vector<std::int32_t>& tokens) override {
    const GenerateOptions greedy{.ignore_eos = true};
    if (tokens.empty() || !loaded_.backend->can_continue(greedy)) return Runner::grow(sequence, tokens);
    const auto slot = static_cast<std::uint32_t>(sequence);
    const std::uint64_t before = loaded_.backend->length(slot);
    std::vector<TokenId>& history = history_[sequence];
    history.push_back(tokens.front());
    Continuer& continuer = *loaded_.backend->continuer();
    const Status begun = continuer.continue_sequence(
        {.slot = slot, .id = tokens.front(), .most = tokens.size(), .sampling = &greedy, .history = history});
    if (!begun) return begun.error().message;
    std::vector<TokenId> generated;
    while (true) {
      const auto some = continuer.next_tokens();
      if (!some) return some.error().message;
      if (some->empty()) break;
      generated.insert(generated.end(), some->begin(), some->end());
    }
    if (generated.size() != tokens.size())
      return fmt::format("the backend generated {} of {} tokens", generated.size(), tokens.size());
    history.insert(history.end(), generated.begin(), generated.end() - 1);
    const Status stopped = continuer.stop_sequence(before + tokens.size());
    return stopped ? std::string() : stopped.error().message;
  }
  const float* logits() const override { return logits_; }

 private:
  Loaded loaded_;
  const float* logits_ = nullptr;
  std::array<std::vector<TokenId>, 2> history_;  // of each sequence, as far as the cache holds it
};

// Settings that this version lacks are left out, with a message.
void add_target(const std::string& target, cli::SettingFlags& given) {
  constexpr std::string_view kPath = "runtime.cpu.target";
  if (target.empty()) return;
  if (config::find_setting(kPath) != nullptr)
    return given.input.sets.push_back(fmt::format("{}={}", kPath, target));
  say(Said::kError, "doppler_driver: there is no setting {}; the target {} is not used", kPath, target);
}

int run(int argc, char** argv) {
  cli::CommandLine line("doppler_driver", "Doppler behind the requests of driver.h", "", "");
  std::string model, target;
  cli::SettingFlags given;
  cli::Command command = line.add_command("serve", "the only command, which is not typed");
  command.add_option("MODEL", model).required();
  command.add_option("--target", target, "the CPU instructions to use");
  cli::add_setting_flags(command, given, false);
  std::string serve = "serve";
  std::vector<char*> words(argv, argv + argc);
  words.insert(words.begin() + 1, serve.data());
  const auto help = line.parse(static_cast<int>(words.size()), words.data(), 80);
  if (!help || *help) {
    say(Said::kError, help ? **help : "doppler_driver: " + help.error().message);
    return 2;
  }
  add_target(target, given);
  const auto settings = cli::resolve_settings(given);
  if (!settings) {
    say(Said::kError, "doppler_driver: {}", settings.error().message);
    return 2;
  }
  const auto start = bench::Clock::now();
  Result<Loaded> loaded = load_all(model, settings->load, 2);
  if (!loaded) {
    say(Said::kError, "doppler_driver: {}", loaded.error().message);
    return 3;
  }
  const std::string name = fmt::format("Doppler ({})", loaded->backend->name());
  DopplerRunner runner(std::move(*loaded));
  return bench::Server(runner).serve(bench::seconds_since(start), name);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
