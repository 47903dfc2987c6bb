// From a GGUF file's metadata to a ModelSpec: its keys are translated to config.json's, the family fills the
// spec from these as for a folder, and then values are corrected that do not fit the weights as the converter
// has changed them.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "model/arrange.h"
#include "model/family.h"
#include "model/gguf_recurrent.h"
#include "model/special_ids.h"

namespace doppler {
namespace {

Result<const FamilyRule*> find_architecture(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "general.architecture";
  DOPPLER_ASSIGN(const auto architecture, metadata.get_string(kKey));
  if (!architecture) {
    return fail(ErrorCode::kCorrupt, "The GGUF metadata has no {}. Check that the file holds a model.", kKey);
  }
  const FamilyRule* found = nullptr;
  std::vector<std::string> known;
  for (const FamilyRule* family : all_families()) {
    const GgufRule& rule = family->gguf;
    if (rule.architecture.empty()) continue;
    if (std::ranges::find(known, rule.architecture) == known.end()) known.emplace_back(rule.architecture);
    if (rule.architecture != *architecture && rule.architecture_of_experts != *architecture) continue;
    if (rule.distinguishing_key.empty()) {
      if (found == nullptr) found = family;
      continue;
    }
    DOPPLER_ASSIGN(const auto value,
                   metadata.get_uint(fmt::format("{}.{}", *architecture, rule.distinguishing_key)));
    if (value.value_or(0) > 0) found = family;
  }
  if (found != nullptr) return found;
  return fail(ErrorCode::kUnsupported,
              "The GGUF file has the architecture {}, but Doppler runs {}. Use one of those.",
              printable(*architecture), join(known, ", "));
}

// A value that the family's rule noted differently.
void renote(SpecBuilder& builder, std::string path, std::string value, std::string source) {
  std::erase_if(builder.spec().sources, [&](const SpecSource& s) { return s.path == path; });
  builder.note(std::move(path), std::move(value), std::move(source));
}

// The first layer that attends, or else layer 0.
int first_attention(const ModelSpec& spec) {
  const auto found = std::ranges::find_if(spec.layers, &LayerSpec::has_attention);
  return found == spec.layers.end() ? 0 : static_cast<int>(found - spec.layers.begin());
}

// Corrects values for what the converter changed about the weights, and reads keys that config.json has no
// counterpart for.
Status settle_weights(SpecBuilder& builder, const GgufConfig& config) {
  ModelSpec& spec = builder.spec();
  if (spec.norm.weight_offset != 0) {
    spec.norm.weight_offset = 0;
    renote(builder, "norm.weight_offset", "0", "rule of GGUF: norms are stored with their +1");
  }
  if (config.tensor(WeightRole::kKUp, 0) != nullptr) {
    for (LayerSpec& layer : spec.layers) layer.attention.latent.split_up = true;
    builder.note("attention.latent.split_up", "true",
                 "gguf: tensor " + config.tensor_name(WeightRole::kKUp, 0));
  }
  const auto with_experts =
      std::ranges::find_if(spec.layers, [](const LayerSpec& l) { return l.ffn.experts > 0; });
  if (with_experts != spec.layers.end()) {
    const auto layer = static_cast<int>(with_experts - spec.layers.begin());
    spec.fused_experts = config.tensor(WeightRole::kGateUpExperts, layer) != nullptr;
  }
  // config.json has one switch for all four biases.
  const int attends = first_attention(spec);
  if (spec.layers[static_cast<std::size_t>(attends)].attention.o_bias &&
      config.tensor(WeightRole::kOBias, attends) == nullptr) {
    for (LayerSpec& layer : spec.layers) layer.attention.o_bias = false;
    renote(builder, "attention.o_bias", "false",
           "gguf: no tensor " + config.tensor_name(WeightRole::kOBias, attends));
  }
  DOPPLER_ASSIGN(const auto scale, config.get_number("attention.scale"));
  if (!scale || *scale == 0) return {};
  if (!(*scale > 0)) {
    return fail(ErrorCode::kCorrupt, "The value {} = {} is not positive. Download the file again.",
                GgufMetadata::where(config.key("attention.scale")), *scale);
  }
  set_attention_scale(builder, *scale, GgufMetadata::where(config.key("attention.scale")));
  return {};
}

// rope_freqs.weight: one divisor per rotary pair, which is how llama3's scaling is stored.
Status read_divisors(SpecBuilder& builder, const GgufConfig& config, bool of_full) {
  const TensorView* tensor = config.tensor(WeightRole::kRopeDivisors);
  if (tensor == nullptr) return {};
  ModelSpec& spec = builder.spec();
  const auto turns = [&](const LayerSpec& layer) {
    return layer.attention.rope.rotary_dim > 0 && (!of_full || layer.attention.kind == AttentionKind::kFull);
  };
  const auto first = std::ranges::find_if(spec.layers, turns);
  const RopeSpec rope = (first == spec.layers.end() ? spec.layers.front() : *first).attention.rope;
  if (rope.scaling.kind != RopeScalingKind::kNone) {
    return fail(ErrorCode::kUnsupported,
                "The tensor {} scales rotary embedding a second time, beside {} = {}. Use another model.",
                tensor->name, GgufMetadata::where(config.key("rope.scaling.type")),
                name_of(rope.scaling.kind));
  }
  if (tensor->dtype != DType::kF32 || tensor->bytes() / 4 != rope.rotary_dim / 2) {
    return fail(ErrorCode::kMismatch,
                "The tensor {} ({}, {}) must hold {} F32 values, one per rotary pair. Download the "
                "file again.",
                tensor->name, dtype_name(tensor->dtype), describe_shape(tensor->shape), rope.rotary_dim / 2);
  }
  std::vector<float> values(rope.rotary_dim / 2);
  DOPPLER_TRY(decode_f32(*tensor, 0, values));
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x) && x >= 1e-6f; })) {
    return fail(ErrorCode::kCorrupt,
                "The tensor {} holds values that are no divisors (zero, negative, NaN or infinite). "
                "Download the file again.",
                tensor->name);
  }
  for (LayerSpec& layer : spec.layers) {
    if (!turns(layer)) continue;
    layer.attention.rope.scaling.kind = RopeScalingKind::kDivisors;
    layer.attention.rope.scaling.divisors.assign(values.begin(), values.end());
  }
  renote(builder, "attention.rope.scaling", "divisors", "gguf: tensor " + tensor->name);
  return {};
}

// xIELU's numbers are lists with an entry for each layer.
Status read_xielu(const GgufMetadata& metadata, SpecBuilder& builder) {
  auto& layers = builder.spec().layers;
  if (layers[0].ffn.activation != Activation::kXielu) return {};
  std::array<std::vector<float>, 4> lists;
  constexpr std::array<std::string_view, 4> kKeys = {"xielu.alpha_p", "xielu.alpha_n", "xielu.beta",
                                                     "xielu.eps"};
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    DOPPLER_ASSIGN(const auto array, metadata.get_array(kKeys[i]));
    if (array) {
      DOPPLER_ASSIGN(lists[i], array->floats());
    }
    const bool finite = std::ranges::all_of(lists[i], [](float x) { return std::isfinite(x); });
    if (lists[i].size() == layers.size() && finite) continue;
    return fail(ErrorCode::kCorrupt,
                "The list {} must hold a finite number for each of {} layers. Download the file again.",
                GgufMetadata::where(kKeys[i]), layers.size());
  }
  for (std::size_t i = 0; i < layers.size(); ++i)
    layers[i].ffn.xielu = xielu_of(lists[0][i], lists[1][i], lists[2][i], lists[3][i]);
  return {};
}

}  // namespace

Result<ModelSpec> read_gguf_spec(const GgufMetadata& metadata, const TensorStore& tensors) {
  DOPPLER_ASSIGN(const FamilyRule* family, find_architecture(metadata));
  if (tensors.tensors().empty()) {
    return fail(ErrorCode::kMismatch,
                "The GGUF file holds no tensors, only a vocabulary. Use a file with weights.");
  }
  const GgufRule& rule = family->gguf;
  DOPPLER_ASSIGN(const auto architecture, metadata.get_string("general.architecture"));
  GgufConfig config(metadata, tensors, architecture.value_or(std::string(rule.architecture)),
                    rule.weight_names, rule.keys);
  config.set_own_keys(rule.own_keys);
  DOPPLER_TRY(config.translate());
  DOPPLER_TRY(translate_recurrent(config));
  if (rule.adjust != nullptr) DOPPLER_TRY(rule.adjust(config));
  ModelSpec spec;
  spec.described_by = "the GGUF metadata";
  const ConfigReader reader(config.json(), "GGUF metadata", &config.origins());
  SpecBuilder builder(reader, spec, std::string(family->name));
  DOPPLER_TRY((rule.fill != nullptr ? rule.fill : family->fill)(builder));
  const AttentionSpec& attention = spec.layers[static_cast<std::size_t>(first_attention(spec))].attention;
  if (rule.paired_rows && attention.rope.rotary_dim != 0 && attention.rope.rotary_dim != attention.head_dim) {
    return fail(ErrorCode::kUnsupported,
                "The value {} = {} rotates a part of the head's {} dims, which Doppler does not run for the "
                "architecture "
                "{}. Use another model.",
                reader.where("partial_rotary_factor"), attention.rope.rotary_dim, attention.head_dim,
                rule.architecture);
  }
  if (rule.may_fuse_qkv) {
    spec.fused_qkv = config.tensor(WeightRole::kQkv, 0) != nullptr;
    if (spec.fused_qkv)
      renote(builder, "fused", "attn_qkv", "gguf: tensor " + config.tensor_name(WeightRole::kQkv, 0));
  }
  DOPPLER_TRY(read_xielu(metadata, builder));
  DOPPLER_TRY(settle_weights(builder, config));
  DOPPLER_TRY(settle_recurrent(builder, config, rule.tiled_value_heads));
  DOPPLER_TRY(read_divisors(builder, config, rule.divisors_of_full));
  DOPPLER_TRY(read_special_ids(std::span(&reader, 1), spec));
  return spec;
}

}  // namespace doppler
