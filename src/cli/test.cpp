// doppler test kernels: whether this machine's GPU computes what it should, on a given model or on small ones
// made for it.
#include <fmt/core.h>

#include <filesystem>

#include "base/json.h"
#include "base/layout.h"
#include "bench/kernel_checks.h"
#include "bench/report.h"
#include "cli/command.h"
#include "cli/models.h"
#include "convert/mix.h"
#include "convert/synth.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::cli {
namespace {

// Small models whose kernels are those of published shapes: one layer and a short vocabulary. Between them
// every form in which weights lie on a GPU, norms of heads, windows, a tied and an untied head.
struct Probe {
  std::string_view shape, type;
};
constexpr Probe kProbes[] = {{"gemma3-1b", "Q4_0"},     {"llama3.2-1b", "Q4_K_M"}, {"qwen3-0.6b", "Q8_0"},
                             {"llama3.2-1b", "Q5_K_M"}, {"qwen3-0.6b", "F16"},     {"gemma3-1b", "BF16"}};
constexpr std::uint64_t kProbeLayers = 1, kProbeVocab = 4096;

// A model file of this run alone, gone at the end.
class ProbeFile {
 public:
  explicit ProbeFile(const Probe& probe)
      : path_(system::temporary_folder() /
              fmt::format("doppler-test-{}-{}-{}.gguf", system::process_id(), probe.shape, probe.type)) {}
  ~ProbeFile() { (void)system::remove_file(path_); }
  ProbeFile(const ProbeFile&) = delete;
  ProbeFile& operator=(const ProbeFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  const std::filesystem::path path_;
};

struct TestArguments {
  std::string model;
};

Result<bench::KernelChecks> check_probe(const Probe& probe, const Settings& settings) {
  const std::string name = fmt::format("{} in {}", probe.shape, probe.type);
  DOPPLER_ASSIGN(const convert::ModelShape* published, convert::find_shape(probe.shape));
  DOPPLER_ASSIGN(const convert::Mix* mix, convert::find_mix(probe.type));
  convert::ModelShape shape = *published;
  shape.layers = kProbeLayers;
  shape.vocab = kProbeVocab;
  const ProbeFile file(probe);
  DOPPLER_TRY(convert::write_synthetic(shape, *mix, file.path(), {.threads = settings.load.threads}));
  DOPPLER_ASSIGN(Loaded loaded, load_all(file.path(), settings.load, 1));
  return bench::check_kernels(loaded, name);
}

Result<int> test_kernels(const TestArguments& arguments, const SettingFlags& given) {
  Settings settings = given.flags;
  if (!settings.given("runtime.backend")) settings.load.backend = "gpu";
  if (!settings.given("runtime.inference.kvcache.maxSeqLen")) settings.load.context = 1024;
  Json all = Json::array();
  bool right = true, named = false;
  const auto tell = [&](const Result<bench::KernelChecks>& checks) -> Status {
    DOPPLER_TRY(checks);
    right = right && checks->right();
    all.push_back(to_json(*checks));
    if (given.json) return {};
    if (!std::exchange(named, true) && checks->device)
      DOPPLER_TRY(
          print(fit_lines(fmt::format("{} adapter {}\n", checks->device->kind, checks->device->describe()))));
    return print(wrap(to_text(*checks), table_columns(), 4));
  };
  if (!arguments.model.empty()) {
    DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, settings, 1));
    DOPPLER_TRY(tell(bench::check_kernels(loaded, arguments.model)));
  } else {
    for (const Probe& probe : kProbes) DOPPLER_TRY(tell(check_probe(probe, settings)));
  }
  if (given.json)
    DOPPLER_TRY(print_json({{"right", right}, {"models", all}}));
  else
    DOPPLER_TRY(
        print(right ? "This device computes right.\n"
                    : "This device computes WRONG results. Update its driver, or use --backend cpu.\n"));
  return right ? kDone : kAnswerIsNo;
}

}  // namespace

Run add_test(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<TestArguments>();
  Command kernels = command.add_part("kernels",
                                     "run every kernel on inputs of its own and compare it with plain loops, "
                                     "and whole models with the reference backend");
  add_model(kernels, given, "MODEL", arguments->model,
            "check the kernels of this model, instead of those of six small ones made for it");
  command.require_part();
  add_setting_flags(command, given, false, true);
  return [arguments, &given] { return test_kernels(*arguments, given); };
}

}  // namespace doppler::cli
