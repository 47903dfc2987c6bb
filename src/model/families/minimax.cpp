// MiniMax M2: norms of queries and keys over the whole projection, a part of the dims of a head rotates,
// routing by sigmoids with a correction. Source: transformers' MiniMaxM2Config.
#include "model/families/experts.h"

namespace doppler {
namespace {

constexpr std::string_view kMinimaxM2Types[] = {"minimax_m2"};

Status fill_minimax_m2(SpecBuilder& builder) {
  DOPPLER_TRY(read_common(builder, {.vocab_size = 200064,
                                    .hidden_size = 3072,
                                    .intermediate_size = 1536,
                                    .num_hidden_layers = 62,
                                    .num_attention_heads = 48,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 196608}));
  builder.note("attention.qk_norm", "true, over the projection", "rule of the minimax_m2 family");
  for (LayerSpec& layer : builder.spec().layers) {
    layer.attention.qk_norm = true;
    layer.attention.qk_norm_span = NormSpan::kProjection;
  }
  DOPPLER_TRY(
      read_experts(builder,
                   {.experts = 256,
                    .top_k = 8,
                    .width = {},
                    .router = {.score = RouterScore::kSigmoid, .correction = true, .normalise = true}},
                   every_layer));
  // Published files say how many dims rotate (rotary_dim), transformers' which part; without either all do.
  return read_rope(builder, {.theta = 5e6, .rotary_part = 1});
}

}  // namespace

const FamilyRule kMinimaxM2Rule = {
    "minimax_m2", kMinimaxM2Types, fill_minimax_m2, {.architecture = "minimax-m2"}, {.own = kMixtralNames}};

}  // namespace doppler
