// doppler inspect: what a model is.
#include <fmt/core.h>

#include <map>

#include "backend/kv_cache.h"
#include "base/text.h"
#include "cli/command.h"

namespace doppler::cli {
namespace {

struct InspectArguments {
  std::string model;
  bool tensors = false, plan = false;
};

struct TypeTotal {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
};

// What the model takes in memory at a context.
struct MemoryPlan {
  std::uint64_t context = 0, weight_bytes = 0, kv_bytes = 0;
  KvType kv_type = KvType::kF32;
};

Result<MemoryPlan> plan_memory(const Model& model, const Plan& plan, const Settings& settings) {
  MemoryPlan memory;
  memory.context = choose_context(settings.context.value_or(0), model.spec);
  memory.weight_bytes = model.files.tensors.total_bytes();
  DOPPLER_ASSIGN(const BackendOptions options, backend_options(settings.load_options(), model.spec, 1));
  memory.kv_type = choose_kv_type(options, plan, model.weights);
  DOPPLER_ASSIGN(memory.kv_bytes, KvCache::bytes_needed(plan.kv_layers, memory.context, 1,
                                                        options.max_step_tokens, memory.kv_type));
  return memory;
}

std::string describe_op(const Plan& plan, const Weights& weights, const Op& op) {
  std::vector<std::string> inputs, outputs, names;
  for (const ValueId id : op.inputs) inputs.push_back(value_name(plan, id));
  for (const ValueId id : op.outputs) outputs.push_back(value_name(plan, id));
  for (const WeightId id : op.weights) names.push_back(weights[id].name);
  return fmt::format("{:12} {} <- {}{}{}", op_name(op.kind), join(outputs, ", "), join(inputs, ", "),
                     names.empty() ? "" : "  with ", join(names, ", "));
}

Json to_json(const Model& model, const Plan& plan, const MemoryPlan& memory,
             const std::map<std::string, TypeTotal>& types, const InspectArguments& arguments) {
  Json spec = Json::array(), by_type = Json::object(), tensors = Json::array(), ops = Json::array();
  for (const SpecSource& s : model.spec.sources)
    spec.push_back({{"path", s.path}, {"value", s.value}, {"source", s.source}});
  for (const auto& [name, total] : types) by_type[name] = {{"tensors", total.count}, {"bytes", total.bytes}};
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    if (arguments.tensors)
      tensors.push_back({{"name", name},
                         {"dtype", dtype_name(tensor.dtype)},
                         {"shape", tensor.shape},
                         {"bytes", tensor.data.size()}});
  }
  for (const Op& op : plan.ops) {
    if (arguments.plan) ops.push_back(describe_op(plan, model.weights, op));
  }
  Json object = {{"family", model.spec.family},
                 {"spec", spec},
                 {"types", by_type},
                 {"memory",
                  {{"context", memory.context},
                   {"weight_bytes", memory.weight_bytes},
                   {"kv_cache_bytes", memory.kv_bytes},
                   {"kv_type", kv_type_name(memory.kv_type)}}}};
  if (arguments.tensors) object["tensors"] = tensors;
  if (arguments.plan) object["plan"] = ops;
  return object;
}

std::string to_text(const Model& model, const Plan& plan, const MemoryPlan& memory,
                    const std::map<std::string, TypeTotal>& types, const InspectArguments& arguments) {
  std::size_t path_width = 0, value_width = 0;
  for (const SpecSource& s : model.spec.sources) {
    path_width = std::max(path_width, s.path.size());
    value_width = std::max(value_width, s.value.size());
  }
  std::string text =
      fmt::format("{:{}}  {:{}}  {}\n", "value of", path_width, "is", value_width, "because of");
  for (const SpecSource& s : model.spec.sources) {
    text += fmt::format("{:{}}  {:{}}  {}\n", s.path, path_width, printable(s.value), value_width, s.source);
  }
  text += "\n";
  for (const auto& [name, total] : types)
    text += fmt::format("{:5} tensors of {:8} {:>10}\n", total.count, name, human_bytes(total.bytes));
  text += fmt::format("\nmemory at a context of {} tokens: weights {}, KV cache {} ({})\n", memory.context,
                      human_bytes(memory.weight_bytes), human_bytes(memory.kv_bytes),
                      kv_type_name(memory.kv_type));
  if (arguments.tensors) {
    text += "\n";
    for (const auto& [name, tensor] : model.files.tensors.tensors()) {
      text += fmt::format("{:60} {:5} {}\n", printable(name), dtype_name(tensor.dtype),
                          describe_shape(tensor.shape));
    }
  }
  if (arguments.plan) {
    text += "\n";
    for (const Op& op : plan.ops) text += describe_op(plan, model.weights, op) + "\n";
  }
  return text;
}

Result<int> inspect(const InspectArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const Model model, load_model(arguments.model));
  DOPPLER_ASSIGN(const Plan plan, build_plan(model.spec, model.weights,
                                             choose_context(given.flags.context.value_or(0), model.spec)));
  DOPPLER_ASSIGN(const MemoryPlan memory, plan_memory(model, plan, given.flags));
  std::map<std::string, TypeTotal> types;
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    TypeTotal& total = types[std::string(dtype_name(tensor.dtype))];
    ++total.count;
    total.bytes += tensor.data.size();
  }
  if (given.json)
    DOPPLER_TRY(print_json(to_json(model, plan, memory, types, arguments)));
  else
    DOPPLER_TRY(print(to_text(model, plan, memory, types, arguments)));
  return kDone;
}

}  // namespace

Run add_inspect(CLI::App& command, SettingFlags& given) {
  auto arguments = std::make_shared<InspectArguments>();
  command.add_option("MODEL", arguments->model, "a model folder or file")->required();
  command.add_flag("--tensors", arguments->tensors, "list every tensor");
  command.add_flag("--plan", arguments->plan, "list every op of the forward pass");
  add_setting_flags(command, given, false);
  return [arguments, &given] { return inspect(*arguments, given); };
}

}  // namespace doppler::cli
