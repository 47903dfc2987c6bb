// doppler synth: a model file with random weights.
#include "convert/synth.h"

#include <fmt/core.h>

#include <chrono>

#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

struct SynthArguments {
  std::string shape, output, type = "Q4_0";
  std::uint64_t seed = 1, layers = 0, vocab = 0;
};

Result<int> synth(const SynthArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const convert::ModelShape* published, convert::find_shape(arguments.shape));
  DOPPLER_ASSIGN(const convert::Mix* mix, convert::find_mix(arguments.type));
  convert::ModelShape shape = *published;
  if (arguments.layers > 0) shape.layers = arguments.layers;
  if (arguments.vocab > 0) shape.vocab = arguments.vocab;
  ProgressBar bar;
  const convert::SynthOptions options{
      .seed = arguments.seed,
      .threads = given.flags.load.threads,
      .on_progress = [&](double share, std::string_view what) { bar.update(share, what); }};
  const auto start = std::chrono::steady_clock::now();
  DOPPLER_ASSIGN(const convert::SynthReport report,
                 convert::write_synthetic(shape, *mix, arguments.output, options));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (given.json) {
    DOPPLER_TRY(print_json({{"file", arguments.output},
                            {"shape", shape.name},
                            {"type", mix->name},
                            {"seed", arguments.seed},
                            {"parameters", report.parameters},
                            {"tensor_bytes", report.tensor_bytes},
                            {"token_bytes", report.token_bytes},
                            {"seconds", seconds}}));
  } else {
    say(Said::kNote, "{}: {} in {}, {:.1f} million parameters, {}, of which a token reads {}; {:.1f} s",
        arguments.output, shape.name, mix->name, static_cast<double>(report.parameters) / 1e6,
        human_bytes(report.tensor_bytes), human_bytes(report.token_bytes), seconds);
  }
  return kDone;
}

}  // namespace

Run add_synth(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<SynthArguments>();
  std::vector<std::string> shapes, mixes;
  for (const convert::ModelShape& shape : convert::all_shapes()) shapes.emplace_back(shape.name);
  for (const convert::Mix& mix : convert::all_mixes()) mixes.emplace_back(mix.name);
  command.add_option("SHAPE", arguments->shape, "one of " + join(shapes, ", ")).required().values(shapes);
  command.add_option("OUTPUT", arguments->output, "the .gguf file to write").required();
  command.add_option("--type", arguments->type, "one of " + join(mixes, ", ")).show_default().values(mixes);
  command.add_option("--seed", arguments->seed, "the same seed gives the same file").show_default();
  command.add_option("--layers", arguments->layers, "this many layers instead of the published number")
      .between(1, 1000);
  command.add_option("--vocab", arguments->vocab, "a vocabulary of this size instead of the published one")
      .between(2, 1 << 24);
  add_few_setting_flags(command, given, {"--threads"});
  return [arguments, &given] { return synth(*arguments, given); };
}

}  // namespace doppler::cli
