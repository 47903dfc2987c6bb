// doppler bench: how fast a model runs here, and how well it predicts a text.
#include <fmt/core.h>

#include <algorithm>

#include "base/files.h"
#include "base/json.h"
#include "base/layout.h"
#include "bench/baseline.h"
#include "bench/kernels.h"
#include "bench/loading.h"
#include "bench/measure.h"
#include "bench/page/bench_page.h"
#include "bench/perplexity.h"
#include "bench/report.h"
#include "cli/command.h"
#include "cli/html_page.h"
#include "cli/models.h"
#include "engine/fallbacks.h"

namespace doppler::cli {
namespace {

// Far beyond any text that is worth the wait; a mistyped model file is not read whole.
constexpr std::uint64_t kMaxTextBytes = std::uint64_t{256} << 20;

struct BenchArguments {
  std::string model, save, baseline, text, html;
  double fail_over = -1;  // below 0: a baseline is compared with, nothing fails
  std::uint64_t chunks = 0, depth = 0;
  std::uint32_t together = 1;  // sequences of a step whose kernels are timed
  bench::BenchOptions options;
};

// An older measurement; whole files of more are not what this program writes.
constexpr std::uint64_t kMaxBaselineBytes = std::uint64_t{64} << 20;

Result<Json> read_baseline(const std::string& path) {
  if (path.empty()) return Json();
  DOPPLER_ASSIGN(const std::string text, read_text_file(path, kMaxBaselineBytes));
  return parse_json(text, "The file " + path);
}

Status save(const std::string& path, const Json& measured) {
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(path));
  DOPPLER_TRY(file.write(dump_json(measured, 2) + "\n"));
  return file.commit();
}

// Prints a measurement, saves it, and holds it against the baseline, which was read before.
Result<int> deliver(const BenchArguments& arguments, const SettingFlags& given, const Json& baseline,
                    Json measured, const std::string& text) {
  bench::BaselineComparison comparison;
  if (!arguments.save.empty()) DOPPLER_TRY(save(arguments.save, measured));
  if (!arguments.baseline.empty()) {
    DOPPLER_ASSIGN(comparison, bench::compare_with_baseline(baseline, measured, arguments.fail_over));
    measured["comparison"] = to_json(comparison);
  }
  if (!arguments.html.empty()) DOPPLER_TRY(write_page(arguments.html, bench::bench_html(measured)));
  if (given.json) {
    DOPPLER_TRY(print_json(measured));
  } else {
    DOPPLER_TRY(print(text));
    if (!arguments.baseline.empty()) DOPPLER_TRY(print("\n" + wrap(to_text(comparison), table_columns(), 4)));
  }
  tell_page(arguments.html);
  return comparison.failures.empty() ? kDone : kAnswerIsNo;
}

Result<int> inference(const BenchArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Json baseline, read_baseline(arguments.baseline));
  DOPPLER_ASSIGN(const bench::BenchResult result, [&] {
    ProgressBar bar;
    return bench::run_bench(arguments.model, given.flags.load, arguments.options,
                            [&](double share, std::string_view what) { bar.update(share, what); });
  }());
  tell_fallbacks(result.fallbacks);
  return deliver(arguments, given, baseline, to_json(result), to_text(result, table_columns()));
}

Result<int> loading(const BenchArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Json baseline, read_baseline(arguments.baseline));
  DOPPLER_ASSIGN(const bench::LoadingResult result, [&] {
    ProgressBar bar;
    return bench::measure_loading(arguments.model, given.flags.load, arguments.options.loads,
                                  [&](double share, std::string_view what) { bar.update(share, what); });
  }());
  tell_fallbacks(result.fallbacks);
  return deliver(arguments, given, baseline, to_json(result), wrap(to_text(result), table_columns(), 4));
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
  const Json measured = {{"suite", "perplexity"},
                         {"model", arguments.model},
                         {"text", arguments.text},
                         {"backend", loaded.backend->name()},
                         {"fallbacks", fallbacks_json(loaded.backend->fallbacks())},
                         {"context", loaded.backend->options().context},
                         {"bos", bos},
                         {"chunks", result.chunks},
                         {"tokens", result.tokens},
                         {"loss", result.loss},
                         {"chunk_losses", result.chunk_losses},
                         {"standard_error", result.standard_error},
                         {"perplexity", result.perplexity()}};
  if (!arguments.html.empty()) DOPPLER_TRY(write_page(arguments.html, bench::bench_html(measured)));
  if (given.json) {
    DOPPLER_TRY(print_json(measured));
  } else {
    DOPPLER_TRY(print(fit_lines(
        fmt::format("{}: {:.4f} nats a token (+- {:.4f}), perplexity {:.4f}: {} tokens predicted in {} "
                    "chunks of at most {}\n",
                    arguments.text, result.loss, result.standard_error, result.perplexity(), result.tokens,
                    result.chunks, loaded.backend->options().context))));
  }
  tell_page(arguments.html);
  return kDone;
}

Result<int> kernels(const BenchArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Json baseline, read_baseline(arguments.baseline));
  Settings settings = given.flags;
  if (!settings.given("runtime.backend")) settings.load.backend = "gpu";
  settings.load.context = std::max<std::uint64_t>(settings.load.context, arguments.depth + 1);
  DOPPLER_ASSIGN(Loaded loaded, load_with_bar(arguments.model, settings, arguments.together));
  DOPPLER_ASSIGN(
      const bench::KernelTable table,
      bench::measure_kernels(loaded, arguments.depth, arguments.together, arguments.options.yardstick_bytes));
  Json json = to_json(table);
  json["fallbacks"] = fallbacks_json(loaded.backend->fallbacks());
  return deliver(arguments, given, baseline, std::move(json), to_text(table, table_columns()));
}

// A suite: `doppler bench NAME MODEL`.
Command add_suite(Command& command, SettingFlags& given, const char* name, const char* what,
                  BenchArguments& arguments) {
  Command part = command.add_part(name, what);
  add_model(part, given, "MODEL", arguments.model, "a model folder or file").required();
  return part;
}

}  // namespace

Run add_bench(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<BenchArguments>();
  bench::BenchOptions& o = arguments->options;
  add_model(command, given, "MODEL", arguments->model, "a model folder or file");
  add_suite(command, given, "inference", "time prompts and generating, the same as without a suite",
            *arguments);
  Command by_kernel =
      add_suite(command, given, "kernels", "time every kernel of a decode step on the GPU", *arguments);
  by_kernel.add_option("--depth", arguments->depth, "tokens in the cache before").show_default();
  by_kernel.add_option("--sequences", arguments->together, "sequences that share the step")
      .show_default()
      .positive();
  const Command by_loading =
      add_suite(command, given, "loading", "time loading, from the disk and from memory, to the first token",
                *arguments);
  const std::vector<Option> of_inference = {
      command.add_option("--prefill", o.prefill, "tokens of the prompt").show_default().positive(),
      command.add_option("--decode", o.decode, "tokens generated in each repetition")
          .show_default()
          .positive(),
      command.add_option("--depths", o.depths, "tokens in the cache before, such as 0,2000")
          .separator(',')
          .one_value_each()
          .show_default(),
      command.add_option("--sequences", o.sequences, "sequences that share each step, such as 1,2,4,8")
          .separator(',')
          .one_value_each()
          .positive()
          .show_default(),
      command.add_flag("--drawn", o.drawn,
                       "draw tokens instead of taking the likeliest: a GPU does so by itself"),
      command.add_option("--repetitions", o.repetitions).show_default().positive(),
      command.add_option("--warm-up", o.warm_up, "repetitions before those that count").show_default(),
      command.add_flag("!--no-ops", o.ops, "leave the breakdown by op out")};
  const Option loads =
      command.add_option("--loads", o.loads, "times that the model is loaded").show_default().positive();
  const Option save = command.add_option("--save", arguments->save,
                                         "write the measurement to this file, as a baseline for later");
  const Option baseline =
      command.add_option("--baseline", arguments->baseline,
                         "print every figure beside that of an older measurement, made with --save");
  Option fail_over = command.call_option(
      "--fail-over",
      [arguments](const std::string& text) -> Status {
        DOPPLER_ASSIGN(arguments->fail_over, bench::parse_share(text));
        return {};
      },
      "with --baseline: exit with 1 if a figure is certainly worse by more than this, such as 5%, or the "
      "answers are wrong");
  fail_over.only_with({baseline});
  Option text = command.add_option(
      "--perplexity", arguments->text,
      "measure the loss on this text instead: chunks of --context tokens from an empty cache, each with "
      "the BOS that the tokenizer adds; a BOS in the text begins a chunk");
  text.not_with(of_inference).not_with({loads, save, baseline});
  add_html_flag(command, arguments->html, "the measurement");
  command.add_option("--chunks", arguments->chunks, "with --perplexity: stop after so many; 0: never")
      .only_with({text});
  add_setting_flags(command, given, false, true);
  return [arguments, &given, by_kernel, by_loading, of_inference, loads, text]() -> Result<int> {
    if (arguments->model.empty())
      return fail(ErrorCode::kUsage, "No MODEL is given. Run doppler bench --help.");
    const bool suite = by_kernel.chosen() || by_loading.chosen();
    const auto is_given = [](const Option& option) { return option.given(); };
    if (suite && (std::ranges::any_of(of_inference, is_given) || text.given() ||
                  (by_kernel.chosen() && loads.given()))) {
      return fail(ErrorCode::kUsage,
                  "A flag of doppler bench inference has no effect on bench {}, which takes {}, --save, "
                  "--baseline, --fail-over and --html. Leave it out.",
                  by_kernel.chosen() ? "kernels" : "loading",
                  by_kernel.chosen() ? "--depth, --sequences" : "--loads");
    }
    for (const std::string& path : {arguments->html, arguments->save}) DOPPLER_TRY(check_page(path));
    if (!arguments->text.empty()) return perplexity(*arguments, given);
    if (by_kernel.chosen()) return kernels(*arguments, given);
    return by_loading.chosen() ? loading(*arguments, given) : inference(*arguments, given);
  };
}

}  // namespace doppler::cli
