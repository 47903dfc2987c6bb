// doppler inspect: a model's description, tensors, ops and memory, and the GPUs.
#include <fmt/core.h>

#include "backend/gpu_report.h"
#include "base/layout.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/models.h"
#include "engine/access.h"
#include "engine/fallbacks.h"
#include "engine/info.h"
#include "formats/rdrr.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

struct InspectArguments {
  std::string model;
  bool tensors = false, plan = false, gpu = false, check = false;
};

// The op's name, and what it makes of what.
std::pair<std::string, std::string> describe_op(const Plan& plan, const Weights& weights, const Op& op) {
  std::vector<std::string> inputs, outputs, names;
  for (const ValueId id : op.inputs) inputs.push_back(value_name(plan, id));
  for (const ValueId id : op.outputs) outputs.push_back(value_name(plan, id));
  for (const WeightId id : op.weights) names.push_back(weights[id].name);
  return {std::string(op_name(op.kind)), fmt::format("{} <- {}{}{}", join(outputs, ", "), join(inputs, ", "),
                                                     names.empty() ? "" : "  with ", join(names, ", "))};
}

Json to_json(const Model& model, const Plan& plan, const ModelInfo& info, const InspectArguments& arguments) {
  Json spec = Json::array(), by_type = Json::object(), tensors = Json::array(), ops = Json::array();
  for (const Fact& fact : info.facts)
    spec.push_back({{"path", fact.name}, {"value", fact.value}, {"source", fact.because}});
  for (const TensorTypeTotal& total : info.types)
    by_type[total.type] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (arguments.tensors)
      tensors.push_back({{"name", name},
                         {"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"bytes", tensor.data.size()}});
  }
  for (const Op& op : plan.ops) {
    if (!arguments.plan) break;
    const auto [name, what] = describe_op(plan, model.weights, op);
    ops.push_back(fmt::format("{:12} {}", name, what));
  }
  Json object = {{"family", info.family},
                 {"spec", spec},
                 {"types", by_type},
                 {"memory",
                  {{"context", info.memory.context},
                   {"weight_bytes", info.memory.weights},
                   {"kv_cache_bytes", info.memory.cache},
                   {"activation_bytes", info.memory.activations},
                   {"kv_type", info.memory.kv_type}}}};
  if (const RdrrManifest* const package = model.files.rdrr.get()) {
    object["package"] = {{"id", package->model_id},
                         {"version", package->version},
                         {"hash", name_of(package->algorithm)},
                         {"shards", package->shards.size()},
                         {"groups", package->groups.size()},
                         {"bytes", package->total_size}};
  }
  if (arguments.tensors) object["tensors"] = tensors;
  if (arguments.plan) object["plan"] = ops;
  return object;
}

std::string to_text(const Model& model, const Plan& plan, const ModelInfo& info,
                    const InspectArguments& arguments) {
  using enum Column::Kind;
  const std::size_t width = table_columns();
  Table facts({{"value of"}, {"is", kText}, {"because of", kText}});
  for (const Fact& fact : info.facts) facts.add({fact.name, printable(fact.value), fact.because});
  Table types({{"tensors", kNumber}, {"of type"}, {"are", kNumber}});
  for (const TensorTypeTotal& total : info.types)
    types.add({std::to_string(total.tensors), total.type, human_bytes(total.bytes)});
  std::string text = facts.text(width) + "\n" + types.text(width) + "\n";
  text +=
      wrap(fmt::format("memory at a context of {} tokens: weights {}, KV cache {} ({}), activations {}\n",
                       info.memory.context, human_bytes(info.memory.weights), human_bytes(info.memory.cache),
                       info.memory.kv_type, human_bytes(info.memory.activations)),
           width, 4);
  if (const RdrrManifest* const package = model.files.rdrr.get()) {
    text += wrap(
        fmt::format("RDRR package {}: {} in {} and {}; loading compares their sizes, --check their hashes "
                    "({})\n",
                    printable(package->model_id), human_bytes(package->total_size),
                    counted(package->shards.size(), "shard"), counted(package->groups.size(), "group"),
                    name_of(package->algorithm)),
        width, 4);
  }
  if (arguments.tensors) {
    Table tensors({{"tensor"}, {"type"}, {"shape"}});
    for (const auto& [name, tensor] : model.files.tensors.tensors())
      tensors.add({printable(name), std::string(dtype_name(tensor.dtype)), describe_shape(tensor.shape)});
    text += "\n" + tensors.text(width);
  }
  if (arguments.plan) {
    Table ops({{"op"}, {"computes", kText}});
    for (const Op& op : plan.ops) {
      auto [name, what] = describe_op(plan, model.weights, op);
      ops.add({std::move(name), std::move(what)});
    }
    text += "\n" + ops.text(width);
  }
  return text;
}

Result<int> inspect(const InspectArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const DescribedModel described, describe_files(arguments.model, given.flags.load));
  const auto& [model, plan, info] = described;
  if (given.json)
    DOPPLER_TRY(print_json(to_json(model, plan, info, arguments)));
  else
    DOPPLER_TRY(print(to_text(model, plan, info, arguments)));
  return kDone;
}

// The folder of a package, which may be named by its manifest.
Result<std::filesystem::path> package_folder(const std::string& model) {
  const std::filesystem::path path(model);
  const std::filesystem::path folder = system::is_folder(path) ? path : path.parent_path();
  if (has_rdrr_manifest(folder)) return folder;
  return fail(ErrorCode::kUsage,
              "The model {} is no RDRR package, and no other format says what its hashes should be. Leave "
              "--check out.",
              printable(model, 200));
}

// Compares all hashes of a package; 1 if one is wrong.
Result<int> check_hashes(const InspectArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const std::filesystem::path folder, package_folder(arguments.model));
  const CancelToken token;
  const InterruptGuard guard(token);
  const Result<RdrrCheck> check = [&] {
    ProgressBar bar;
    return check_rdrr(folder, [&](double share, std::string_view file) {
      bar.update(share, file);
      return !token.cancelled();
    });
  }();
  if (!check && token.cancelled()) {
    say(Said::kError, "doppler: {}", check.error().message);
    return guard.status(kNotPossible);
  }
  if (!check) return std::unexpected(check.error());
  Json problems = Json::array();
  std::string text;
  for (const RdrrProblem& problem : check->problems) {
    problems.push_back({{"file", problem.file}, {"problem", problem.sentence}});
    text += wrap(problem.sentence + "\n", table_columns(), 4);
  }
  text += wrap(fmt::format("{}, {} and {} compared, {}: {}\n", counted(check->shards, "shard"),
                           counted(check->groups, "group"), counted(check->files, "other file"),
                           human_bytes(check->bytes),
                           check->problems.empty() ? "all hashes are those of the manifest"
                                                   : counted(check->problems.size(), "problem")),
               table_columns(), 4);
  DOPPLER_TRY(given.json ? print_json({{"shards", check->shards},
                                       {"groups", check->groups},
                                       {"files", check->files},
                                       {"bytes", check->bytes},
                                       {"problems", std::move(problems)}})
                         : print(text));
  return check->problems.empty() ? kDone : kAnswerIsNo;
}

Json to_json(const GpuReport& report) {
  const gpu::Limits& l = report.limits;
  return {{"name", report.adapter.name},
          {"kind", report.adapter.kind},
          {"api", report.adapter.api},
          {"driver", report.adapter.driver},
          {"vendor_id", report.adapter.vendor_id},
          {"device_id", report.adapter.device_id},
          {"problem", report.problem.empty() ? Json(nullptr) : Json(report.problem)},
          {"features",
           {{"f16", report.features.f16},
            {"subgroups", report.features.subgroups},
            {"subgroup_size", report.features.subgroup_size},
            {"fma_rounds_once", report.features.fma_rounds_once},
            {"tensor_cores", report.features.tiles != gpu::Tiles::kNone}}},
          {"limits",
           {{"buffer_bytes", l.buffer_bytes},
            {"binding_bytes", l.binding_bytes},
            {"binding_alignment", l.binding_alignment},
            {"workgroup_bytes", l.workgroup_bytes},
            {"workgroup_invocations", l.workgroup_invocations},
            {"workgroups_per_dimension", l.workgroups_per_dimension},
            {"storage_buffers", l.storage_buffers}}}};
}

std::string to_text(const GpuReport& report, std::size_t number) {
  const gpu::Limits& l = report.limits;
  std::string text =
      fmt::format("{}  {}, {}\n", number, info_of(report.adapter).describe(), report.adapter.kind);
  if (!report.problem.empty()) return text + fmt::format("   cannot be opened: {}\n", report.problem);
  text += fmt::format("   features: f16 {}, subgroups {}, tensor cores {}, fma rounds {}\n",
                      report.features.f16 ? "yes" : "no",
                      report.features.subgroups ? fmt::format("of {}", report.features.subgroup_size) : "no",
                      report.features.tiles != gpu::Tiles::kNone ? "yes" : "no",
                      report.features.fma_rounds_once ? "once" : "twice");
  text += fmt::format("   limits: buffers of {}, bindings of {} at multiples of {} B, {} in a kernel;\n",
                      human_bytes(l.buffer_bytes), human_bytes(l.binding_bytes), l.binding_alignment,
                      l.storage_buffers);
  return text + fmt::format("           workgroups of {} threads with {}, {} in a dimension\n",
                            l.workgroup_invocations, human_bytes(l.workgroup_bytes),
                            l.workgroups_per_dimension);
}

std::string to_text(std::span<const VariantRow> rows) {
  using enum Column::Kind;
  Table table({{"what"}, {"kernel", kText}, {"because", kText}});
  for (const VariantRow& row : rows) table.add({row.what, row.variant, row.why});
  return table.text(table_columns());
}

// The GPU adapters, and with a model the kernels that it uses.
Result<int> inspect_gpu(const InspectArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const std::vector<GpuReport> reports, report_gpus());
  Json adapters = Json::array(), variants = Json::array();
  std::string text = fmt::format("{} through {}\n", counted(reports.size(), "adapter"), gpu_library());
  for (const GpuReport& report : reports) {
    text += wrap(to_text(report, adapters.size()), table_columns(), 11);
    adapters.push_back(to_json(report));
  }
  Json object = {{"library", gpu_library()}, {"adapters", std::move(adapters)}};
  if (!arguments.model.empty()) {
    Settings settings = given.flags;
    settings.load.backend = "gpu";
    DOPPLER_ASSIGN(const Engine engine, load_engine(arguments.model, settings));
    Backend& backend = *EngineAccess::loaded(engine).backend;
    DOPPLER_ASSIGN(const std::vector<VariantRow> rows, backend.describe());
    for (const VariantRow& row : rows)
      variants.push_back({{"what", row.what}, {"variant", row.variant}, {"why", row.why}});
    object["model"] = arguments.model;
    object["variants"] = std::move(variants);
    object["fallbacks"] = fallbacks_json(backend.fallbacks());
    text += "\n" + to_text(rows);
  }
  DOPPLER_TRY(given.json ? print_json(object) : print(text));
  return kDone;
}

}  // namespace

Run add_inspect(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<InspectArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file");
  Option tensors = command.add_flag("--tensors", arguments->tensors, "list every tensor");
  Option plan = command.add_flag("--plan", arguments->plan, "list every op of the forward pass");
  Option check =
      command
          .add_flag("--check", arguments->check,
                    "of an RDRR package: compute the hashes of all its files instead, and compare them")
          .not_with({tensors, plan});
  command
      .add_flag("--gpu", arguments->gpu,
                "list the GPUs instead, what they offer, and with a MODEL the kernels that it takes")
      .not_with({tensors, plan, check});
  add_few_setting_flags(command, given, {"--context", "--family", "--kv-type", "--gpu-adapter"});
  return [arguments, &given]() -> Result<int> {
    if (!arguments->gpu) DOPPLER_TRY(refuse_flags(given, {"--gpu-adapter"}, "without --gpu"));
    if (arguments->gpu && arguments->model.empty())
      DOPPLER_TRY(refuse_flags(given, {"--context", "--kv-type"}, "without a MODEL"));
    if (arguments->gpu) return inspect_gpu(*arguments, given);
    if (arguments->model.empty())
      return fail(ErrorCode::kUsage, "No MODEL is given. Give one, or --gpu to list the GPUs.");
    if (arguments->check) {
      DOPPLER_TRY(refuse_flags(given, {"--context", "--family", "--kv-type"}, "with --check"));
      return check_hashes(*arguments, given);
    }
    return inspect(*arguments, given);
  };
}

}  // namespace doppler::cli
