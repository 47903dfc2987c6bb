// vs_llama_cpp --library FOLDER MODEL...: llama.cpp and Doppler in turns on the same file, with the same
// threads and the same tokens, never at the same time; medians of both, and the ratios with their spread.
// Both compute on the CPU unless --backend and --peer-backend say otherwise. The script of the same name,
// without the ending, installs and builds what this needs.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "base/json.h"
#include "base/screen.h"
#include "bench/statistics.h"
#include "child.h"

namespace {

using namespace doppler;
using ::bench::Child;

struct Options {
  std::string library, drivers, label = "best", target, json, backend = "cpu", peer_backend = "cpu";
  std::vector<std::string> models, doppler_sets;
  std::size_t threads = 2, rounds = 9, loads = 3;
  std::size_t prefill = 512, depth = 2000;
  std::optional<std::size_t> decode_given, deep_given;
  bool logits = false, swa_full = false;
  std::size_t logit_tokens = 16;

  bool gpu() const { return backend == "gpu" || peer_backend != "cpu"; }
  // A GPU answers in a tenth of the time: with four times the tokens a turn still takes a tenth of a second,
  // long enough against its start-up and the clock's resolution.
  std::size_t decode() const { return decode_given.value_or(gpu() ? 256 : 64); }
  std::size_t deep() const { return deep_given.value_or(gpu() ? 64 : 16); }
  // Positions that the longest sequence reaches, and a few to spare.
  std::size_t context() const {
    return std::max({prefill, decode() + 1, depth + rounds * deep(), logit_tokens}) + 64;
  }
};

enum Side { kLlama, kDoppler };
constexpr std::array<const char*, 2> kSideNames = {"llama.cpp", "Doppler"};

std::vector<std::string> command_of(Side side, const Options& o, const std::string& model,
                                    const std::string& backend) {
  std::vector<std::string> words = {o.drivers + (side == kLlama ? "/llama_cpp_driver" : "/doppler_driver")};
  if (side == kLlama) words.push_back(o.library);
  words.push_back(model);
  for (const auto& [flag, value] : {std::pair("--threads", o.threads), std::pair("--context", o.context())}) {
    words.emplace_back(flag);
    words.push_back(std::to_string(value));
  }
  if (side == kLlama && o.swa_full) words.emplace_back("--swa-full");
  if (side == kLlama && o.peer_backend != "cpu") words.emplace_back("--gpu");
  if (side == kLlama) return words;
  words.insert(words.end(), {"--backend", backend});
  if (!o.target.empty()) words.insert(words.end(), {"--target", o.target});
  for (const std::string& set : o.doppler_sets) words.insert(words.end(), {"--set", set});
  return words;
}

// The number in "seconds 1.25" or "bytes 12".
Result<double> number_in(const std::string& answer, std::string_view word) {
  if (answer.starts_with(word)) return std::strtod(answer.c_str() + word.size(), nullptr);
  return fail(ErrorCode::kInternal, "A driver answers {} where {}NUMBER is due.", answer, word);
}

// llama.cpp's threads wait actively for a while after their work; nothing is measured meanwhile. A GPU must
// not be left alone for so long that it lowers its clocks.
void let_it_rest(const Options& o) {
  std::this_thread::sleep_for(std::chrono::milliseconds(o.gpu() ? 20 : 300));
}

struct Started {
  Child child;
  double load_seconds, first_token_seconds;
  std::string name;
};

Result<Started> start(Side side, const Options& o, const std::string& model) {
  DOPPLER_ASSIGN(Child child, Child::start(command_of(side, o, model, o.backend)));
  DOPPLER_ASSIGN(const std::string ready, child.read());
  DOPPLER_ASSIGN(const double load, number_in(ready, "ready "));
  const std::size_t name = ready.find(' ', 6);
  DOPPLER_ASSIGN(const std::string answer, child.ask("prefill 1"));
  DOPPLER_ASSIGN(const double first, number_in(answer, "seconds "));
  return Started{std::move(child), load, load + first, name == ready.npos ? "" : ready.substr(name + 1)};
}

// One kind of measurement: its name, its requests, and the meaning of its seconds.
struct Measurement {
  std::string name, request;
  double tokens;                              // of one request; 0: the values are seconds, and less is better
  std::array<std::vector<double>, 2> values;  // tokens per second, or seconds, by side and round
  std::size_t requests = 1;                   // of a turn, one after another; their mean is the turn's value
};

struct ModelResult {
  std::string model;
  std::array<std::string, 2> names;
  std::array<double, 2> peak_bytes{};
  std::vector<Measurement> measurements;
};

using Children = std::array<std::optional<Child>, 2>;

Result<double> seconds_of(Child& child, const std::string& request) {
  DOPPLER_ASSIGN(const std::string answer, child.ask(request));
  return number_in(answer, "seconds ");
}

// Loads the model as often as asked, in turns, and keeps the last of each side running.
Result<Children> load_in_turns(const Options& o, const std::string& model, ModelResult& result) {
  Measurement load{"load, s", "", 0, {}}, first{"load to first token, s", "", 0, {}};
  Children children;
  for (std::size_t round = 0; round < o.loads; ++round) {
    for (const Side side : {kLlama, kDoppler}) {
      children[side].reset();
      DOPPLER_ASSIGN(Started started, start(side, o, model));
      load.values[side].push_back(started.load_seconds);
      first.values[side].push_back(started.first_token_seconds);
      result.names[side] = started.name;
      if (round + 1 == o.loads) children[side].emplace(std::move(started.child));
    }
  }
  result.measurements = {std::move(load), std::move(first)};
  return children;
}

std::vector<Measurement> measurements_of(const Options& o) {
  const auto tokens_of = [](std::size_t count) { return static_cast<double>(count); };
  return {
      {"decode @0, tok/s", fmt::format("decode {}", o.decode()), tokens_of(o.decode()), {}},
      {fmt::format("decode @{}, tok/s", o.depth), fmt::format("deep {}", o.deep()), tokens_of(o.deep()), {}},
      // A GPU reads a prompt within hundredths of a second.
      {fmt::format("prefill {}, tok/s", o.prefill),
       fmt::format("prefill {}", o.prefill),
       tokens_of(o.prefill),
       {},
       o.gpu() ? std::size_t{4} : std::size_t{1}}};
}

// Everything once; it also fills the deep sequence. A GPU is kept busy for a second until its clocks are up.
Status warm_up(const Options& o, Children& children) {
  constexpr double kGpuSeconds = 1;
  for (const Side side : {kLlama, kDoppler}) {
    DOPPLER_TRY(children[side]->ask(fmt::format("deepen {}", o.depth)));
    double seconds = 0;
    do {
      for (const std::string& request : {fmt::format("prefill {}", o.prefill), std::string("decode 8")}) {
        DOPPLER_ASSIGN(const double more, seconds_of(*children[side], request));
        seconds += more;
      }
    } while (o.gpu() && seconds < kGpuSeconds);
    let_it_rest(o);
  }
  return {};
}

Status take_turn(const Options& o, Measurement& turn, std::size_t side, Child& child) {
  // While the other side computed, this process left the GPU idle.
  if (o.gpu()) DOPPLER_TRY(child.ask("decode 16"));
  double seconds = 0;
  for (std::size_t i = 0; i < turn.requests; ++i) {
    DOPPLER_ASSIGN(const double more, seconds_of(child, turn.request));
    seconds += more;
  }
  turn.values[side].push_back(turn.tokens * static_cast<double>(turn.requests) / seconds);
  let_it_rest(o);
  return {};
}

Result<ModelResult> measure(const Options& o, const std::string& model) {
  ModelResult result{.model = std::filesystem::path(model).filename().string()};
  DOPPLER_ASSIGN(Children children, load_in_turns(o, model, result));
  DOPPLER_TRY(warm_up(o, children));
  std::vector<Measurement> turns = measurements_of(o);
  for (std::size_t round = 0; round < o.rounds; ++round) {
    for (Measurement& turn : turns) {
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t side = (round + i) % 2;  // who begins changes from round to round
        DOPPLER_TRY(take_turn(o, turn, side, *children[side]));
      }
    }
    if (isatty(STDERR_FILENO) != 0)
      draw_bar(fmt::format("{}: round {} of {}", result.model, round + 1, o.rounds));
  }
  if (isatty(STDERR_FILENO) != 0) draw_bar("");
  for (const Side side : {kLlama, kDoppler}) {
    DOPPLER_ASSIGN(const std::string answer, children[side]->ask("memory"));
    DOPPLER_ASSIGN(result.peak_bytes[side], number_in(answer, "bytes "));
  }
  result.measurements.insert(result.measurements.begin(), turns.begin(), turns.end());
  return result;
}

// How many times better Doppler is.
doppler::bench::Summary ratio_of(const Measurement& m) {
  return m.tokens > 0 ? doppler::bench::summarise_ratios(m.values[kDoppler], m.values[kLlama])
                      : doppler::bench::summarise_ratios(m.values[kLlama], m.values[kDoppler]);
}

void print_result(const ModelResult& result) {
  fmt::print("{}: {} and {}\n", result.model, result.names[kLlama], result.names[kDoppler]);
  fmt::print("  {:24} {:>12} {:>12}   {}\n", "", kSideNames[kLlama], kSideNames[kDoppler],
             "ratio, 95% interval, all rounds");
  for (const Measurement& m : result.measurements) {
    const doppler::bench::Summary ratio = ratio_of(m);
    fmt::print("  {:24} {:12.2f} {:12.2f}   {:.3f}x  {:.3f}..{:.3f}  {:.3f}..{:.3f}\n", m.name,
               doppler::bench::median(m.values[kLlama]), doppler::bench::median(m.values[kDoppler]),
               ratio.median, ratio.low, ratio.high, ratio.min, ratio.max);
  }
  fmt::print("  {:24} {:12.3f} {:12.3f}\n", "peak memory, GB", result.peak_bytes[kLlama] / 1e9,
             result.peak_bytes[kDoppler] / 1e9);
}

Json to_json(const ModelResult& result) {
  Json rows = Json::array();
  for (const Measurement& m : result.measurements) {
    const doppler::bench::Summary ratio = ratio_of(m);
    rows.push_back({{"name", m.name},
                    {"llama_cpp", m.values[kLlama]},
                    {"doppler", m.values[kDoppler]},
                    {"ratio", {{"median", ratio.median}, {"low", ratio.low}, {"high", ratio.high}}}});
  }
  return {
      {"model", result.model},
      {"llama_cpp", result.names[kLlama]},
      {"doppler", result.names[kDoppler]},
      {"peak_bytes", {{"llama_cpp", result.peak_bytes[kLlama]}, {"doppler", result.peak_bytes[kDoppler]}}},
      {"measurements", rows}};
}

// --- accuracy

Result<std::vector<float>> logits_of(const std::vector<std::string>& command, const Options& o) {
  const std::string file =
      (std::filesystem::temp_directory_path() / fmt::format("doppler-logits-{}", getpid())).string();
  DOPPLER_ASSIGN(Child child, Child::start(command));
  DOPPLER_TRY(child.read());
  DOPPLER_ASSIGN(const std::string answer, child.ask(fmt::format("logits {} {}", o.logit_tokens, file)));
  DOPPLER_ASSIGN(const double count, number_in(answer, "written "));
  std::vector<float> logits(static_cast<std::size_t>(count));
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(logits.data()),
          static_cast<std::streamsize>(logits.size() * sizeof(float)));
  const bool complete = static_cast<bool>(in);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  if (!complete) return fail(ErrorCode::kIo, "The logits in {} cannot be read.", file);
  return logits;
}

Status compare_logits(const Options& o, const std::string& model) {
  DOPPLER_ASSIGN(const std::vector<float> exact, logits_of(command_of(kDoppler, o, model, "reference"), o));
  double squares = 0;
  for (const float v : exact) squares += static_cast<double>(v) * v;
  const auto top = [](const std::vector<float>& v) {
    return std::max_element(v.begin(), v.end()) - v.begin();
  };
  fmt::print(
      "{}: logits after {} tokens against Doppler's reference backend (float activations, double sums; rms "
      "{:.3f})\n",
      std::filesystem::path(model).filename().string(), o.logit_tokens,
      std::sqrt(squares / static_cast<double>(exact.size())));
  for (const Side side : {kLlama, kDoppler}) {
    DOPPLER_ASSIGN(const std::vector<float> logits, logits_of(command_of(side, o, model, o.backend), o));
    if (logits.size() != exact.size())
      return fail(ErrorCode::kMismatch, "The vocabularies have {} and {} tokens.", logits.size(),
                  exact.size());
    double worst = 0, sum = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double off = std::fabs(static_cast<double>(logits[i]) - exact[i]);
      worst = std::max(worst, off);
      sum += off * off;
    }
    fmt::print("  {:10} largest difference {:.5f}, rms {:.6f}, top token {}\n", kSideNames[side], worst,
               std::sqrt(sum / static_cast<double>(exact.size())),
               top(logits) == top(exact) ? "equal" : "differs");
  }
  return {};
}

// --- the machine

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  utsname system{};
  uname(&system);
  return system.machine;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", std::gmtime(&now));
  return text.data();
}

Status run(const Options& o) {
  const std::string machine =
      fmt::format("{}, {} hardware threads, {} used; llama.cpp's libraries: {}", cpu_name(),
                  std::thread::hardware_concurrency(), o.threads, o.label);
  if (o.logits) {
    for (const std::string& model : o.models) DOPPLER_TRY(compare_logits(o, model));
    return {};
  }
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.5)
    say(Said::kError, "vs_llama_cpp: the machine is busy (load {:.1f}); figures will be lower and wider",
        load);
  fmt::print("{}; {}\nmedians of {} rounds taken in turns; @{} grows by {} tokens a round\n", today(),
             machine, o.rounds, o.depth, o.deep());
  std::fflush(stdout);
  Json results = Json::array();
  for (const std::string& model : o.models) {
    DOPPLER_ASSIGN(const ModelResult result, measure(o, model));
    print_result(result);
    std::fflush(stdout);
    results.push_back(to_json(result));
  }
  if (o.json.empty()) return {};
  std::ofstream out(o.json);
  out << Json{{"date", today()}, {"machine", machine}, {"models", results}}.dump(1) << "\n";
  out.close();
  if (!out) return fail(ErrorCode::kIo, "The file {} cannot be written.", o.json);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  Options o;
  o.drivers = std::filesystem::path(argv[0]).parent_path().string();
  CLI::App app("llama.cpp and Doppler in turns on the same file");
  app.add_option("MODEL", o.models, "GGUF files")->required();
  app.add_option("--library", o.library, "the folder with libllama and the backends it may use")->required();
  app.add_option("--label", o.label, "what the report calls those backends");
  app.add_option("--backend", o.backend, "what computes in Doppler: cpu, gpu or reference")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "gpu", "reference"}));
  app.add_option("--peer-backend", o.peer_backend, "what computes in llama.cpp: cpu or vulkan")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "vulkan"}));
  app.add_option("--target", o.target, "the CPU instructions Doppler may use (runtime.cpu.target)");
  app.add_option("--set", o.doppler_sets, "a setting for Doppler, PATH=VALUE");
  app.add_option("--threads", o.threads)->capture_default_str()->check(CLI::Range(1, 1024));
  app.add_option("--rounds", o.rounds)->capture_default_str()->check(CLI::Range(1, 1000));
  app.add_option("--loads", o.loads, "times that the model is loaded")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--prefill", o.prefill)->capture_default_str();
  app.add_option("--decode", o.decode_given, "tokens decoded a round; 64, or 256 with a GPU");
  app.add_option("--depth", o.depth)->capture_default_str();
  app.add_option("--deep", o.deep_given, "tokens decoded a round at that depth; 16, or 64 with a GPU");
  app.add_flag("--swa-full", o.swa_full, "llama.cpp keeps every position of windowed layers, too");
  app.add_flag("--logits", o.logits, "compare accuracy instead of speed");
  app.add_option("--logit-tokens", o.logit_tokens)->capture_default_str();
  app.add_option("--json", o.json, "also write every value to this file");
  CLI11_PARSE(app, argc, argv);
  const Status status = run(o);
  if (status) return 0;
  say(Said::kError, "vs_llama_cpp: {}", status.error().message);
  return 3;
}
