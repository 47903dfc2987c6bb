// doppler bench: how fast a model runs here, and how well it predicts a text.
#include <fmt/core.h>

#include "base/files.h"
#include "base/json.h"
#include "bench/kernels.h"
#include "bench/measure.h"
#include "bench/perplexity.h"
#include "bench/report.h"
#include "cli/command.h"
#include "cli/models.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

// Far beyond any text that is worth the wait; a mistyped model file is not read whole.
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{256} << 20;

struct BenchArguments {
  std::string model, compare, text;
  std::uint64_t chunks = 0, depth = 0;
  bench::BenchOptions options;
};

Result<Json> read_old(const std::string& path) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, std::uint64_t{64} << 20));
  return parse_json(text, "The file " + path);
}

Result<int> speed(const BenchArguments& arguments, const SettingFlags& given) {
  Json old;
  if (!arguments.compare.empty()) {
    DOPPLER_ASSIGN(old, read_old(arguments.compare));
  }
  DOPPLER_ASSIGN(const bench::BenchResult result, [&] {
    ProgressBar bar;
    return bench::run_bench(arguments.model, given.flags.load, arguments.options,
                            [&](double share, std::string_view what) { bar.update(share, what); });
  }());
  tell_fallbacks(result.fallbacks);
  const Json now = to_json(result);
  DOPPLER_TRY(given.json ? print_json(now) : print(to_text(result)));
  if (arguments.compare.empty()) return kDone;
  DOPPLER_ASSIGN(const std::string lines, bench::compare_text(old, now));
  if (given.json)
    fmt::print(stderr, "{}", lines);
  else
    DOPPLER_TRY(print("\n" + lines));
  return kDone;
}

// The id that the tokenizer puts in front of a text by itself, or -1.
Result<TokenId> added_bos(const tokenizer::Tokenizer& tokenizer) {
  DOPPLER_ASSIGN(const std::vector<TokenId> with, tokenizer.encode("a"));
  DOPPLER_ASSIGN(const std::vector<TokenId> without, tokenizer.encode("a", {.add_special = false}));
  const bool added =
      !with.empty() && with.size() > without.size() && (without.empty() || with[0] != without[0]);
  return added ? with[0] : -1;
}

Result<int> perplexity(const BenchArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(arguments.text, kMaxTextBytes));
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, given.flags, 1));
  DOPPLER_TRY(need_tokenizer(loaded));
  DOPPLER_ASSIGN(const TokenId bos, added_bos(*loaded.tokenizer));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, loaded.tokenizer->encode(text, {.add_special = false}));
  auto chunks = bench::chunk_text(ids, loaded.backend->options().context, bos);
  if (arguments.chunks > 0 && chunks.size() > arguments.chunks) chunks.resize(arguments.chunks);
  DOPPLER_ASSIGN(const bench::PerplexityResult result, [&] {
    ProgressBar bar;
    return bench::measure_perplexity(*loaded.backend, chunks,
                                     [&](double share) { bar.update(share, "predicting"); });
  }());
  if (given.json) {
    DOPPLER_TRY(print_json({{"model", arguments.model},
                            {"text", arguments.text},
                            {"backend", loaded.backend->name()},
                            {"fallbacks", fallbacks_json(loaded.backend->fallbacks())},
                            {"context", loaded.backend->options().context},
                            {"bos", bos},
                            {"chunks", result.chunks},
                            {"tokens", result.tokens},
                            {"loss", result.loss},
                            {"standard_error", result.standard_error},
                            {"perplexity", result.perplexity()}}));
  } else {
    DOPPLER_TRY(
        print(fmt::format("{}: {:.4f} nats a token (+- {:.4f}), perplexity {:.4f}: {} tokens predicted in {} "
                          "chunks of at most {}\n",
                          arguments.text, result.loss, result.standard_error, result.perplexity(),
                          result.tokens, result.chunks, loaded.backend->options().context)));
  }
  return kDone;
}

Result<int> kernels(const BenchArguments& arguments, const SettingFlags& given) {
  Settings settings = given.flags;
  if (!settings.given("runtime.backend")) settings.load.backend = "gpu";
  settings.load.context = std::max<std::uint64_t>(settings.load.context, arguments.depth + 1);
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, settings, 1));
  DOPPLER_ASSIGN(const bench::KernelTable table,
                 bench::measure_kernels(loaded, arguments.depth, arguments.options.yardstick_bytes));
  if (given.json) {
    Json json = to_json(table);
    json["fallbacks"] = fallbacks_json(loaded.backend->fallbacks());
    DOPPLER_TRY(print_json(json));
  } else {
    DOPPLER_TRY(print(to_text(table)));
  }
  return kDone;
}

// `doppler bench kernels MODEL`.
Command add_kernels(Command& command, BenchArguments& arguments) {
  Command part = command.add_part("kernels", "time every kernel of a decode step on the GPU");
  part.add_option("MODEL", arguments.model, "a model folder or file").required();
  part.add_option("--depth", arguments.depth, "tokens in the cache before").show_default();
  return part;
}

}  // namespace

Run add_bench(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<BenchArguments>();
  bench::BenchOptions& o = arguments->options;
  add_model(command, given, "MODEL", arguments->model, "a model folder or file");
  const Command by_kernel = add_kernels(command, *arguments);
  command.add_option("--prefill", o.prefill, "tokens of the prompt").show_default().positive();
  command.add_option("--decode", o.decode, "tokens generated in each repetition").show_default().positive();
  command.add_option("--depths", o.depths, "tokens in the cache before, such as 0,2000")
      .separator(',')
      .show_default();
  command.add_option("--sequences", o.sequences, "sequences that share each step, such as 1,2,4,8")
      .separator(',')
      .positive()
      .show_default();
  command.add_option("--repetitions", o.repetitions).show_default().positive();
  command.add_option("--warm-up", o.warm_up, "repetitions before those that count").show_default();
  command.add_option("--loads", o.loads, "times that the model is loaded").show_default().positive();
  command.add_flag("!--no-ops", o.ops, "leave the breakdown by op out");
  command.add_option("--compare", arguments->compare,
                     "print ratios to an older measurement, made with --json");
  command.add_option(
      "--perplexity", arguments->text,
      "measure the loss on this text instead: chunks of --context tokens from an empty cache, each with "
      "the BOS that the tokenizer adds; a BOS in the text begins a chunk");
  command.add_option("--chunks", arguments->chunks, "with --perplexity: stop after so many; 0: never");
  add_setting_flags(command, given, false, true);
  return [arguments, &given, by_kernel]() -> Result<int> {
    if (by_kernel.chosen()) return kernels(*arguments, given);
    if (arguments->model.empty())
      return fail(ErrorCode::kUsage, "No MODEL is given. Run doppler bench --help.");
    return arguments->text.empty() ? speed(*arguments, given) : perplexity(*arguments, given);
  };
}

}  // namespace doppler::cli
