// Llama 4 (its text half): rope of neighbouring pairs and attention in chunks, but for every fourth layer,
// which has neither and scales its queries by their position; norms without weights on rotated queries and
// keys; in some or all layers experts whose weight multiplies what they read, and one that every token goes
// through. Source: transformers' Llama4TextConfig and modeling_llama4.
#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kLlama4Types[] = {"llama4_text", "llama4"};
constexpr WeightName kLlama4Names[] = {
    {WeightRole::kRouter, "model.layers.{}.feed_forward.router.weight"},
    {WeightRole::kGate, "model.layers.{}.feed_forward.gate_proj.weight"},
    {WeightRole::kUp, "model.layers.{}.feed_forward.up_proj.weight"},
    {WeightRole::kDown, "model.layers.{}.feed_forward.down_proj.weight"},
    {WeightRole::kGateExperts, "model.layers.{}.feed_forward.experts.gate_proj"},
    {WeightRole::kUpExperts, "model.layers.{}.feed_forward.experts.up_proj"},
    {WeightRole::kDownExperts, "model.layers.{}.feed_forward.experts.down_proj"},
    {WeightRole::kSharedGateProj, "model.layers.{}.feed_forward.shared_expert.gate_proj.weight"},
    {WeightRole::kSharedUp, "model.layers.{}.feed_forward.shared_expert.up_proj.weight"},
    {WeightRole::kSharedDown, "model.layers.{}.feed_forward.shared_expert.down_proj.weight"},
};
constexpr GgufKey kLlama4Keys[] = {{"interleave_moe_layer_step", "interleave_moe_layer_step"}};

// Which layers rotate: no_rope_layers says 1 for those that do, and an empty list counts as none given.
Result<std::vector<bool>> read_rotating(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  const std::size_t layers = builder.spec().layers.size();
  DOPPLER_ASSIGN(const auto flags, config.get_uints("no_rope_layers"));
  const bool given = flags && !flags->empty();
  if (given && flags->size() != layers) {
    return fail(ErrorCode::kCorrupt, "The {} lists {} no_rope_layers for num_hidden_layers = {}. Correct it.",
                config.source(), flags->size(), layers);
  }
  DOPPLER_ASSIGN(const std::uint32_t interval,
                 builder.get_uint("attention.rope.interval", "no_rope_layer_interval", 4));
  std::vector<bool> rotating(layers);
  for (std::size_t i = 0; i < layers; ++i) rotating[i] = given ? (*flags)[i] != 0 : (i + 1) % interval != 0;
  return rotating;
}

// layer_types, or chunks where a layer rotates. Without a size chunks are the whole sequence.
Status read_chunks(SpecBuilder& builder, const std::vector<bool>& rotating) {
  const ConfigReader& config = builder.config();
  auto& layers = builder.spec().layers;
  DOPPLER_ASSIGN(const auto types, config.get_strings("layer_types"));
  if (types && types->size() != layers.size()) {
    return fail(ErrorCode::kCorrupt, "The {} lists {} layer_types for num_hidden_layers = {}. Correct it.",
                config.source(), types->size(), layers.size());
  }
  std::uint32_t size = 0;
  if (!says_null(config, "attention_chunk_size")) {
    DOPPLER_ASSIGN(size, builder.get_uint("attention.window of chunks", "attention_chunk_size", 8192));
  }
  std::size_t chunked = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool full = types ? (*types)[i] == "full_attention" : !rotating[i];
    if (types && !full && (*types)[i] != "chunked_attention") {
      return fail(ErrorCode::kUnsupported,
                  "The {} gives layer {} the type {}, but of this family Doppler knows full_attention and "
                  "chunked_attention.",
                  config.source(), i, printable((*types)[i]));
    }
    if (full || size == 0) continue;
    layers[i].attention.kind = AttentionKind::kChunked;
    layers[i].attention.window = size;
    ++chunked;
  }
  builder.note("layers with attention in chunks", std::to_string(chunked),
               types ? config.where("layer_types") : "rule of the llama4 family: those that rotate");
  return {};
}

// Queries of layers without rope grow with their position. Files say true, or a number that is not 0.
Status read_temperature(SpecBuilder& builder, const std::vector<bool>& rotating) {
  const ConfigReader& config = builder.config();
  constexpr std::string_view kSwitch = "attn_temperature_tuning";
  bool on = true;
  const auto found = config.json().find(std::string(kSwitch));
  if (found != config.json().end() && found->is_number()) {
    on = *found != 0;
  } else {
    DOPPLER_ASSIGN(on, builder.get_bool("attention.query_scale", kSwitch, true));
  }
  DOPPLER_ASSIGN(const double beta, builder.get_number("attention.query_scale.beta", "attn_scale", 0.1));
  DOPPLER_ASSIGN(const std::uint32_t every,
                 builder.get_uint("attention.query_scale.every", "floor_scale", 8192));
  if (!on) return {};
  for (std::size_t i = 0; i < rotating.size(); ++i) {
    if (!rotating[i])
      builder.spec().layers[i].attention.query_scale = {.beta = beta, .every = every, .offset = 1};
  }
  return {};
}

// moe_layers, or the last of every interleave_moe_layer_step layers.
Result<std::vector<bool>> read_expert_layers(SpecBuilder& builder) {
  const ConfigReader& config = builder.config();
  DOPPLER_ASSIGN(const auto list, config.get_uints("moe_layers"));
  DOPPLER_ASSIGN(const std::uint32_t step,
                 builder.get_uint("ffn.experts every", "interleave_moe_layer_step", 1));
  std::vector<bool> have(builder.spec().layers.size());
  for (std::size_t i = 0; i < have.size(); ++i)
    have[i] = list ? std::ranges::find(*list, i) != list->end() : (i + 1) % step == 0;
  if (list)
    builder.note("layers with experts", std::to_string(std::ranges::count(have, true)),
                 config.where("moe_layers"));
  return have;
}

// Experts and the shared one are intermediate_size wide, layers without experts intermediate_size_mlp.
Status read_feed_forward(SpecBuilder& builder) {
  auto& layers = builder.spec().layers;
  const std::uint32_t width = layers[0].ffn.width;
  DOPPLER_ASSIGN(const std::uint32_t dense,
                 builder.get_uint("ffn.width of layers without experts", "intermediate_size_mlp", 16384));
  DOPPLER_ASSIGN(const std::vector<bool> have, read_expert_layers(builder));
  DOPPLER_TRY(read_experts(builder,
                           {.experts = 16,
                            .top_k = 1,
                            .width = width,
                            .router = {.score = RouterScore::kSigmoid, .on_input = true}},
                           [&](std::size_t i) { return have[i]; }));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!have[i]) layers[i].ffn.width = dense;
  }
  const auto expert = std::ranges::find_if(layers, [](const LayerSpec& l) { return l.ffn.experts > 0; });
  if (expert != layers.end())
    set_shared_expert(builder, expert->ffn.width, false, "rule of the llama4 family: as wide as an expert");
  return {};
}

Status fill_llama4(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 202048,
                                    .hidden_size = 5120,
                                    .intermediate_size = 8192,
                                    .num_hidden_layers = 48,
                                    .num_attention_heads = 40,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_ASSIGN(const std::vector<bool> rotating, read_rotating(builder));
  DOPPLER_TRY(read_chunks(builder, rotating));
  DOPPLER_ASSIGN(const bool qk_norm, builder.get_bool("attention.qk_norm", "use_qk_norm", true));
  auto& layers = builder.spec().layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    AttentionSpec& a = layers[i].attention;
    a.qk_norm = qk_norm && rotating[i];
    a.qk_norm_after_rope = a.qk_norm_plain = true;
  }
  DOPPLER_TRY(read_temperature(builder, rotating));
  DOPPLER_TRY(read_feed_forward(builder));
  DOPPLER_TRY(read_rope(builder, {.theta = 500000, .layout = RopeLayout::kInterleaved}));
  leave_rope_out(
      builder, [&](std::size_t i) { return rotating[i]; },
      builder.config().has("no_rope_layers") ? builder.config().where("no_rope_layers")
                                             : "rule: every layer of no_rope_layer_interval");
  return {};
}

// What llama.cpp's files say in other words, or leave to its constants.
Status adjust_llama4(GgufConfig& config) {
  DOPPLER_ASSIGN(const auto dense, config.get_uint("feed_forward_length"));
  DOPPLER_ASSIGN(const auto width, config.get_uint("expert_feed_forward_length"));
  if (dense) config.set_from_key("intermediate_size_mlp", *dense, "feed_forward_length");
  if (width) config.set_from_key("intermediate_size", *width, "expert_feed_forward_length");
  // Norms without weights leave no tensors; llama.cpp goes by the number of experts, 128 being Maverick's.
  constexpr std::uint64_t kWithoutNorms = 128;
  DOPPLER_ASSIGN(const auto experts, config.get_uint("expert_count"));
  config.set_from_key("use_qk_norm", experts.value_or(0) != kWithoutNorms, "expert_count");
  // 0 stands for layers that all rotate and attend fully.
  DOPPLER_ASSIGN(const auto window, config.get_uint("attention.sliding_window"));
  if (window.value_or(1) == 0) {
    config.set_from_key("attention_chunk_size", Json(), "attention.sliding_window");
    config.set_from_key("no_rope_layer_interval", config.layers() + 1, "attention.sliding_window");
  }
  return {};
}

}  // namespace

const FamilyRule kLlama4Rule = {
    "llama4_text",
    kLlama4Types,
    fill_llama4,
    {.architecture = "llama4", .weight_names = kDivisorNames, .keys = kLlama4Keys, .adjust = adjust_llama4},
    {.own = kLlama4Names,
     .expert_columns = {.gate_up = "model.layers.{}.feed_forward.experts.gate_up_proj",
                        .down = "model.layers.{}.feed_forward.experts.down_proj"}}};

}  // namespace doppler
