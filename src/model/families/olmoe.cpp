// OLMoE: norms of queries and keys over the whole projection, many small experts whose weights are left as
// the softmax gives them. Source: transformers' OlmoeConfig.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kOlmoeTypes[] = {"olmoe"};

Status fill_olmoe(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 50304,
                                    .hidden_size = 2048,
                                    .intermediate_size = 2048,
                                    .num_hidden_layers = 16,
                                    .num_attention_heads = 16,
                                    .max_position_embeddings = 4096,
                                    .rms_norm_eps = 1e-5}));
  DOPPLER_TRY(read_attention_bias(builder));
  DOPPLER_TRY(read_clip(builder));
  builder.note("attention.qk_norm", "true, over the projection", "rule of the olmoe family");
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qk_norm = true;
    layer.attention.qk_norm_span = NormSpan::kProjection;
  }
  DOPPLER_TRY(read_experts(
      builder, {.experts = 64, .top_k = 8, .width = {}, .router = {}, .reads_normalise = true}, every_layer));
  return read_rope(builder, 10000);
}

}  // namespace

const FamilyRule kOlmoeRule = {
    "olmoe", kOlmoeTypes, fill_olmoe, {.architecture = "olmoe", .keys = kClipKeys}};

}  // namespace doppler
