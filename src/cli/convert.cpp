// doppler convert: a GGUF file or an RDRR package of any model, in any type.
#include "convert/convert.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>

#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/models.h"

namespace doppler::cli {
namespace {

struct ConvertArguments {
  std::string model, output, type = "Q4_K_M", format = "gguf", hash = "sha256";
  bool list = false, no_tokenizer = false, nearest = false;
  Option hash_option;
};

// The word for a type that leaves every tensor as it is.
constexpr std::string_view kKeep = "keep";

// The exceptions from the base type, role by role.
std::string exceptions_of(const convert::Mix& mix) {
  std::vector<convert::TensorRole> roles;
  std::vector<std::string> exceptions;
  for (const convert::MixRule& rule : mix.rules) {
    if (rule.when == convert::MixWhen::kEightExperts) continue;  // of one model, Mixtral
    const auto known = std::ranges::find(roles, rule.role);
    if (known != roles.end()) {
      exceptions[static_cast<std::size_t>(known - roles.begin())] +=
          fmt::format("/{}", dtype_name(rule.type));
      continue;
    }
    roles.push_back(rule.role);
    exceptions.push_back(fmt::format("{} {}", convert::role_name(rule.role), dtype_name(rule.type)));
  }
  return join(exceptions, ", ");
}

bool can_write(const convert::Mix& mix) {
  return can_encode(mix.base) &&
         std::ranges::all_of(mix.rules, [](const convert::MixRule& rule) { return can_encode(rule.type); });
}

Result<int> list_mixes(bool json) {
  Json all = Json::array();
  using enum Column::Kind;
  Table table({{"type"}, {"most"}, {"bits a weight", kNumber}, {"but", kText}});
  for (const convert::Mix& mix : convert::all_mixes()) {
    if (!can_write(mix)) continue;
    const DTypeInfo& base = dtype_info(mix.base);
    const std::string bits = fmt::format("{:.2f}", static_cast<double>(base.block_bits) / base.block_values);
    const std::string exceptions = exceptions_of(mix);
    all.push_back({{"name", mix.name},
                   {"type", dtype_name(mix.base)},
                   {"file_type", mix.file_type},
                   {"description", fmt::format("{} {} bits a weight{}{}", base.name, bits,
                                               exceptions.empty() ? "" : "; ", exceptions)}});
    table.add({std::string(mix.name), std::string(base.name), bits, exceptions});
  }
  if (json) {
    DOPPLER_TRY(print_json({{"types", std::move(all)}}));
    return kDone;
  }
  const std::string rest =
      "Vectors, norms, biases and routers stay F32; rows that are no multiple of 256 get a type with blocks "
      "of 32.\n";
  DOPPLER_TRY(print(table.text(table_columns()) + wrap(rest, table_columns())));
  return kDone;
}

Json tensor_json(const convert::TensorReport& tensor) {
  Json object = {{"name", tensor.name},
                 {"shape", tensor.shape},
                 {"from", dtype_name(tensor.from)},
                 {"type", dtype_name(tensor.type)},
                 {"reason", tensor.reason},
                 {"bytes", tensor.bytes},
                 {"relative_error", nullptr},
                 {"max_error", nullptr},
                 {"worst_row", nullptr}};
  if (!tensor.error) return object;
  object["relative_error"] = tensor.error->relative_rms;
  object["max_error"] = tensor.error->max_abs;
  object["worst_row"] = tensor.error->worst_row;
  return object;
}

Status print_report(const ConvertArguments& arguments, std::string_view type,
                    const convert::ConvertReport& report, double seconds) {
  Json tensors = Json::array();
  for (const convert::TensorReport& tensor : report.tensors) tensors.push_back(tensor_json(tensor));
  return print_json({{"file", arguments.output},
                     {"model", arguments.model},
                     {"type", type},
                     {"architecture", report.architecture},
                     {"parameters", report.parameters},
                     {"tensor_bytes", report.tensor_bytes},
                     {"file_bytes", report.file_bytes},
                     {"bits_per_weight", report.bits_per_weight()},
                     {"seconds", seconds},
                     {"warnings", report.warnings},
                     {"tensors", std::move(tensors)}});
}

Status print_table(const convert::ConvertReport& report) {
  using enum Column::Kind;
  Table table({{"tensor"},
               {"shape", kNumber},
               {"from"},
               {"type"},
               {"size", kNumber},
               {"error", kNumber},
               {"row", kNumber},
               {"because", kText}});
  for (const convert::TensorReport& tensor : report.tensors) {
    const bool changed = tensor.error && tensor.error->relative_rms > 0;
    table.add({printable(tensor.name), describe_shape(tensor.shape), std::string(dtype_name(tensor.from)),
               std::string(dtype_name(tensor.type)), human_bytes(tensor.bytes),
               changed ? fmt::format("{:.2f} %", 100 * tensor.error->relative_rms) : "none",
               changed ? fmt::format("{}", tensor.error->worst_row) : "", std::string(tensor.reason)});
  }
  return print(table.text(table_columns()) +
               wrap("error: of the values, relative; row: the one with the greatest\n", table_columns()));
}

// Null for what keeps its types.
Result<const convert::Mix*> find_type(const ConvertArguments& arguments) {
  if (arguments.type != kKeep) return convert::find_mix(arguments.type);
  if (arguments.format == "rdrr") return nullptr;
  return fail(
      ErrorCode::kUsage,
      "The type {} is for --format rdrr: a GGUF file holds other tensors than a folder. Give --type BF16, or "
      "another of --list.",
      kKeep);
}

Status check_arguments(const ConvertArguments& arguments) {
  if (arguments.format != "gguf" && arguments.format != "rdrr") {
    return fail(ErrorCode::kUsage, "There is no format {}. Give gguf or rdrr.", printable(arguments.format));
  }
  if (!rdrr_hash_named(arguments.hash)) {
    return fail(ErrorCode::kUsage, "There is no hash {}. Give sha256 or blake3.", printable(arguments.hash));
  }
  if (arguments.model.empty() || arguments.output.empty()) {
    return fail(ErrorCode::kUsage, "{} Run doppler convert MODEL -o {} --type {}.",
                arguments.model.empty() ? "There is no model to convert." : "There is no output to write.",
                arguments.format == "rdrr" ? "FOLDER --format rdrr" : "OUT.gguf", arguments.type);
  }
  if (arguments.format != "rdrr" && arguments.hash_option.given()) {
    return fail(ErrorCode::kUsage, "GGUF files have no hashes. Leave --hash out, or add --format rdrr.");
  }
  if (arguments.format == "rdrr" && arguments.no_tokenizer) {
    return fail(ErrorCode::kUsage, "RDRR packages keep their tokenizer. Leave --no-tokenizer out.");
  }
  return {};
}

Result<convert::ConvertReport> write_output(const ConvertArguments& arguments, const convert::Mix* mix,
                                            const convert::ConvertOptions& options) {
  if (arguments.format != "rdrr")
    return convert::convert_model(arguments.model, *mix, arguments.output, options);
  return convert::convert_to_rdrr(arguments.model, mix, arguments.output, *rdrr_hash_named(arguments.hash),
                                  options);
}

Result<int> convert(const ConvertArguments& arguments, const SettingFlags& given) {
  if (arguments.list) return list_mixes(given.json);
  DOPPLER_TRY(check_arguments(arguments));
  DOPPLER_ASSIGN(const convert::Mix* const mix, find_type(arguments));
  const std::string_view type = mix == nullptr ? kKeep : mix->name;
  const CancelToken token;
  const InterruptGuard guard(token);
  const auto start = std::chrono::steady_clock::now();
  Result<convert::ConvertReport> report = [&] {
    ProgressBar bar;
    return write_output(arguments, mix,
                        {.with_tokenizer = !arguments.no_tokenizer,
                         .search = arguments.nearest ? EncodeSearch::kNearest : EncodeSearch::kBest,
                         .threads = given.flags.load.threads,
                         .on_progress = [&](double share, std::string_view what) { bar.update(share, what); },
                         .is_cancelled = [&] { return token.cancelled(); }});
  }();
  if (!report && token.cancelled()) {
    say(Said::kError, "doppler: {}", report.error().message);
    return guard.status(kNotPossible);
  }
  if (!report) return std::unexpected(report.error());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const std::string& warning : report->warnings) say(Said::kWarning, "Warning: {}", warning);
  if (given.json) {
    DOPPLER_TRY(print_report(arguments, type, *report, seconds));
    return kDone;
  }
  DOPPLER_TRY(print_table(*report));
  say(Said::kNote, "{}: {} in {}, {:.1f} million parameters, {}, {:.2f} bits a weight; {:.1f} s",
      arguments.output, report->architecture, mix == nullptr ? "the source's types" : mix->name,
      static_cast<double>(report->parameters) / 1e6, human_bytes(report->file_bytes),
      report->bits_per_weight(), seconds);
  return kDone;
}

}  // namespace

Run add_convert(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<ConvertArguments>();
  std::vector<std::string> mixes;
  for (const convert::Mix& mix : convert::all_mixes()) {
    if (can_write(mix)) mixes.emplace_back(mix.name);
  }
  mixes.emplace_back(kKeep);
  Option model = add_model(command, given, "MODEL", arguments->model, "the model to convert, of any kind");
  Option output = command.add_option("-o,--output", arguments->output,
                                     "the .gguf file to write, or the folder of a package");
  Option type =
      command.add_option("--type", arguments->type, "a type or mix of types, see --list; keep: the source's")
          .show_default()
          .values(mixes);
  Option format =
      command.add_option("--format", arguments->format, "gguf, or rdrr: a package of hashed shards")
          .show_default()
          .values({"gguf", "rdrr"});
  arguments->hash_option =
      command.add_option("--hash", arguments->hash, "of a package's shards: sha256 or blake3")
          .show_default()
          .values({"sha256", "blake3"});
  Option no_tokenizer = command.add_flag("--no-tokenizer", arguments->no_tokenizer,
                                         "leave the tokenizer out: the file then runs on token ids only");
  Option nearest = command.add_flag(
      "--nearest", arguments->nearest,
      "take scales from the extremes of each block instead of searching the best: several times "
      "faster, and worse");
  command.add_flag("--list", arguments->list, "print the types, a line each")
      .not_with({model, output, type, format, arguments->hash_option, no_tokenizer, nearest});
  add_few_setting_flags(command, given, {"--threads"});
  return [arguments, &given]() -> Result<int> {
    if (arguments->list) DOPPLER_TRY(refuse_flags(given, {}, "with --list"));
    return convert(*arguments, given);
  };
}

}  // namespace doppler::cli
