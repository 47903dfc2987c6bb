#include "engine/info.h"

#include <map>

#include "backend/kv_cache.h"
#include "base/checked.h"
#include "engine/loaded.h"
#include "plan/buffers.h"

namespace doppler {
namespace {

Result<MemoryPlan> plan_memory(const Model& model, const Plan& plan, const BackendOptions& options) {
  const KvType type = options.kv_type.value_or(KvType::kF32);
  MemoryPlan memory{.context = options.context,
                    .sequences = options.slots,
                    .weights = model.files.tensors.total_bytes(),
                    .cache = 0,
                    .activations = 0,
                    .kv_type = std::string(kv_type_name(type))};
  DOPPLER_ASSIGN(memory.cache, KvCache::bytes_needed(plan.kv_layers, cache_extent(options), type));
  const BufferPlan buffers = plan_buffers(plan);
  memory.activations = ((Checked(buffers.extent(Rows::kAll)) * Checked(step_tokens(options)) +
                         Checked(buffers.extent(Rows::kWanted))) *
                        Checked(sizeof(float)))
                           .value_or(UINT64_MAX);
  return memory;
}

}  // namespace

Result<ModelInfo> describe(const Model& model, const Plan& plan, const BackendOptions& options) {
  const ModelSpec& spec = model.spec;
  ModelInfo info{.family = spec.family,
                 .layers = static_cast<std::uint32_t>(spec.layers.size()),
                 .hidden = spec.hidden,
                 .vocab_size = spec.vocab_size,
                 .context_length = spec.context_length,
                 .facts = {},
                 .types = {},
                 .memory = {}};
  for (const SpecSource& source : spec.sources)
    info.facts.push_back({source.path, source.value, source.source});
  std::map<std::string, TensorTypeTotal> types;
  for (const auto& [name, tensor] : model.files.tensors.tensors()) {
    TensorTypeTotal& total = types[std::string(dtype_name(tensor.dtype))];
    ++total.tensors;
    total.bytes += tensor.bytes();
  }
  for (auto& [type, total] : types) {
    total.type = type;
    info.types.push_back(total);
  }
  DOPPLER_ASSIGN(info.memory, plan_memory(model, plan, options));
  return info;
}

Result<DescribedModel> describe_files(const std::filesystem::path& path, const LoadOptions& options) {
  DescribedModel made;
  DOPPLER_ASSIGN(made.model, load_model_for_description(path, options.family));
  DOPPLER_ASSIGN(BackendOptions backend, backend_options(options, made.model.spec, 1 + options.sequences));
  DOPPLER_ASSIGN(made.plan, build_plan(made.model.spec, made.model.weights, backend.context));
  backend.kv_type = choose_kv_type(backend, made.plan, made.model.weights);
  DOPPLER_ASSIGN(made.info, describe(made.model, made.plan, backend));
  return made;
}

Result<ModelInfo> describe_model(const std::filesystem::path& path, const LoadOptions& options) {
  DOPPLER_ASSIGN(DescribedModel described, describe_files(path, options));
  return std::move(described.info);
}

}  // namespace doppler
