#include "model/families/experts.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace doppler {
namespace {

// 384 experts in each of 61 layers are the most that is published; the bound keeps a lying config from
// allocating.
constexpr std::uint64_t kMostExperts = 1 << 17;

// Families spell the same number differently; GGUF's keys are translated to the last.
constexpr std::string_view kCountKeys[] = {"num_local_experts", "n_routed_experts", "moe_num_experts",
                                           "num_experts"};
constexpr std::string_view kTopKKeys[] = {"moe_topk", "moe_k", "num_experts_per_token", "top_k_experts",
                                          "num_experts_per_tok"};

std::string_view first_key(const ConfigReader& config, std::span<const std::string_view> keys) {
  const auto found = std::ranges::find_if(keys, [&](std::string_view key) { return config.has(key); });
  return found == keys.end() ? keys.back() : *found;
}

// Hunyuan may list a number for each layer, all the same.
Result<std::uint32_t> read_equal(SpecBuilder& builder, std::string_view path, std::string_view key,
                                 std::optional<std::uint64_t> fallback) {
  const ConfigReader& config = builder.config();
  const auto found = config.json().find(std::string(key));
  if (found == config.json().end() || !found->is_array()) return builder.get_uint(path, key, fallback);
  DOPPLER_ASSIGN(const auto values, config.get_uints(key));
  const bool same = values && !values->empty() && std::ranges::all_of(*values, [&](std::uint64_t v) {
                      return v == values->front() && v > 0 && v < (std::uint64_t{1} << 31);
                    });
  if (!same) {
    return fail(ErrorCode::kUnsupported,
                "The list {} gives layers different numbers, which Doppler does not run. "
                "Use another model.",
                config.where(key));
  }
  builder.note(std::string(path), std::to_string(values->front()), config.where(key));
  return static_cast<std::uint32_t>(values->front());
}

Status read_groups(SpecBuilder& builder, std::uint32_t experts, RouterSpec& router) {
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(router.groups, builder.get_uint("ffn.router.groups", "n_group", 1));
  DOPPLER_ASSIGN(router.kept_groups, builder.get_uint("ffn.router.kept_groups", "topk_group", 1));
  if (experts % router.groups == 0 && router.kept_groups <= router.groups &&
      router.top_k <= experts / router.groups * router.kept_groups)
    return {};
  return fail(
      ErrorCode::kCorrupt,
      "The {} says {} = {} and {} = {}, but {} of {} experts can not be chosen from so many groups. Correct "
      "it.",
      config.source(), config.name("n_group"), router.groups, config.name("topk_group"), router.kept_groups,
      router.top_k, experts);
}

Status check_numbers(SpecBuilder& builder, std::uint32_t experts, const RouterSpec& router) {
  const ConfigReader& config = builder.config();
  const std::string count = config.name(first_key(config, kCountKeys));
  if (std::uint64_t{experts} * builder.spec().layers.size() > kMostExperts) {
    return fail(ErrorCode::kCorrupt,
                "The {} says {} = {} for {} layers, but no model has so many experts. Correct it.",
                config.source(), count, experts, builder.spec().layers.size());
  }
  const std::string top_k = config.name(first_key(config, kTopKKeys));
  if (router.top_k > experts) {
    return fail(ErrorCode::kCorrupt,
                "The {} says {} = {} of {} = {}, but a token is sent to an expert once. Correct it.",
                config.source(), top_k, router.top_k, count, experts);
  }
  return {};
}

void note_router(SpecBuilder& builder, const RouterSpec& router) {
  // A guess has noted its own reasons.
  const auto& noted = builder.spec().sources;
  if (std::ranges::find(noted, "ffn.router.score", &SpecSource::path) != noted.end()) return;
  const std::string source = fmt::format("rule of the {} family", builder.spec().family);
  builder.note("ffn.router.score", std::string(name_of(router.score)), source);
  if (router.correction) builder.note("ffn.router.correction", "true", source);
  if (router.on_input) builder.note("ffn.router.on_input", "true", source);
}

}  // namespace

Status read_experts(SpecBuilder& builder, const ExpertDefaults& defaults,
                    const std::function<bool(std::size_t)>& has_experts) {
  const ConfigReader& config = builder.config();
  ModelSpec& spec = builder.spec();
  RouterSpec router = defaults.router;
  DOPPLER_ASSIGN(const std::uint32_t experts,
                 read_equal(builder, "ffn.experts", first_key(config, kCountKeys), defaults.experts));
  if (router.score == RouterScore::kSparseMixer) {
    router.top_k = 2;
    builder.note("ffn.router.top_k", "2", "rule of the sparse mixer");
  } else {
    DOPPLER_ASSIGN(router.top_k,
                   read_equal(builder, "ffn.router.top_k", first_key(config, kTopKKeys), defaults.top_k));
  }
  DOPPLER_TRY(check_numbers(builder, experts, router));
  std::uint32_t width = spec.layers[0].ffn.width;
  if (defaults.width || config.has("moe_intermediate_size")) {
    DOPPLER_ASSIGN(width,
                   read_equal(builder, "ffn.width of experts", "moe_intermediate_size", defaults.width));
  }
  if (defaults.reads_normalise) {
    DOPPLER_ASSIGN(router.normalise,
                   builder.get_bool("ffn.router.normalise", "norm_topk_prob", router.normalise));
  }
  if (defaults.reads_scale) {
    DOPPLER_ASSIGN(router.scale,
                   builder.get_number("ffn.router.scale", "routed_scaling_factor", router.scale));
  }
  if (defaults.reads_groups) DOPPLER_TRY(read_groups(builder, experts, router));
  note_router(builder, router);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (!has_experts(i)) continue;
    spec.layers[i].ffn.experts = experts;
    spec.layers[i].ffn.width = width;
    spec.layers[i].ffn.router = router;
  }
  return {};
}

Result<std::vector<bool>> read_sparse_layers(SpecBuilder& builder) {
  DOPPLER_ASSIGN(const std::uint32_t step, builder.get_uint("ffn.experts every", "decoder_sparse_step", 1));
  DOPPLER_ASSIGN(const auto dense, builder.config().get_uints("mlp_only_layers"));
  std::vector<bool> sparse(builder.spec().layers.size());
  for (std::size_t i = 0; i < sparse.size(); ++i)
    sparse[i] = (i + 1) % step == 0 && (!dense || std::ranges::find(*dense, i) == dense->end());
  if (dense && !dense->empty())
    builder.note("layers without experts", fmt::format("{}", dense->size()),
                 builder.config().where("mlp_only_layers"));
  return sparse;
}

void set_shared_expert(SpecBuilder& builder, std::uint64_t width, bool gate, std::string source) {
  builder.note("ffn.shared_width", fmt::format("{}{}", width, gate ? ", with a gate" : ""),
               std::move(source));
  for (LayerSpec& layer : builder.spec().layers) {
    if (layer.ffn.experts == 0) continue;
    layer.ffn.shared_width = static_cast<std::uint32_t>(width);
    layer.ffn.shared_gate = gate;
  }
}

Status read_predicting_layers(SpecBuilder& builder) {
  if (!builder.config().has("num_nextn_predict_layers")) return {};
  DOPPLER_ASSIGN(builder.spec().predicting_layers,
                 builder.get_uint("predicting_layers", "num_nextn_predict_layers", 0, true));
  return {};
}

}  // namespace doppler
