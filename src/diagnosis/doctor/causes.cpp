#include "diagnosis/doctor/causes.h"

#include <algorithm>
#include <array>

namespace doppler::diagnosis {
namespace {

using enum CauseKind;

constexpr auto kCauses = std::to_array<Cause>({
    // ---- Description ----
    {"embedding_scale", kDescription, "The embeddings are multiplied by another number than in the model.",
     "Set the embedding scale: sqrt(hidden_size) for Gemma, 1 for most others."},
    {"norm_weight_offset", kDescription,
     "The norms multiply by the stored weights with another offset than the model: w, or 1 + w.",
     "Set rms_norm_weight_offset: 1 for checkpoints that store w - 1 (Gemma), else 0."},
    {"norm_eps", kDescription, "The norms add another epsilon than the model.", "Set rms_norm_eps."},
    {"norm_order", kDescription, "A norm reads another value than in the model, or stands at another place.",
     "Check which value each norm of a layer reads."},
    {"qk_norm_missing", kDescription,
     "The model normalises queries and keys per head, this description does not.",
     "Turn query and key norms on, and bind q_norm and k_norm."},
    {"qk_norm_misplaced", kDescription, "Queries or keys are normalised where the model does not do it.",
     "Normalise queries and keys after their projections and before the rotary embedding, or not at all."},
    {"post_norm_missing", kDescription,
     "The model normalises what attention or feed-forward return before it is added, this description does "
     "not.",
     "Turn the norms after attention and feed-forward on."},
    {"post_norm_extra", kDescription,
     "What attention or feed-forward return is normalised here, but not in the model.",
     "Turn the norms after attention and feed-forward off."},
    {"rope_theta", kDescription, "The rotary embedding turns with another base.", "Set rope_theta."},
    {"rope_layout", kDescription, "The rotary embedding pairs other dims: (i, i + d/2) against (2i, 2i + 1).",
     "Choose the other rope layout, or permute the rows of the query and key projections."},
    {"rope_scaling", kDescription, "The rotary angles are stretched otherwise than in the model.",
     "Set rope_scaling: its type, factor and original context."},
    {"rope_position", kDescription, "The rotary embedding sees other positions than in the model.",
     "Count positions from 0, one for each token, through prompt and decoding."},
    {"rope_dims", kDescription, "Another share of each head rotates than in the model.",
     "Set partial_rotary_factor (or rope.dimension_count)."},
    {"rope_missing", kDescription,
     "Queries and keys rotate here, but not in the model, or the other way round.",
     "Check which layers use the rotary embedding."},
    {"attention_scale", kDescription, "Attention scores are multiplied by another number than in the model.",
     "Set query_pre_attn_scalar, or the scale, which is 1 / sqrt(head_dim) in most models."},
    {"attention_softcap", kDescription, "Attention scores are capped otherwise than in the model.",
     "Set attn_logit_softcapping (Gemma 2: 50; most others: null)."},
    {"sliding_window", kDescription, "Attention looks back further, or less far, than in the model.",
     "Set sliding_window; a token sees itself and window - 1 tokens before it."},
    {"layer_types", kDescription,
     "Layers that attend to a window and layers that attend to everything are mixed up.",
     "Set layer_types (or sliding_window_pattern)."},
    {"head_grouping", kDescription, "Query heads read other key and value heads than in the model.",
     "Query head h belongs to key head h / (heads / kv_heads); check num_key_value_heads."},
    {"activation", kDescription, "The feed-forward uses another activation than the model.",
     "Set hidden_act (silu, gelu_pytorch_tanh, gelu)."},
    {"gate_up_swapped", kDescription,
     "Gate and up have changed places: the activation stands on the wrong one.",
     "Exchange the gate and up projections."},
    {"bias_missing", kDescription,
     "The model adds a bias here, this description does not, or the other way round.",
     "Set attention_bias (or mlp_bias), and bind the bias tensors."},
    {"residual_missing", kDescription, "The residual stream is not added, or another value is added.",
     "Add what entered the block to what it returns."},
    {"final_softcap", kDescription, "The logits are capped otherwise than in the model.",
     "Set final_logit_softcapping (Gemma 2: 30; most others: null)."},
    {"tied_head", kDescription,
     "The head is tied to the embedding though it is not in the model, or the other way round.",
     "Set tie_word_embeddings."},
    {"layer_count", kDescription, "The model has more layers than this description, or fewer.",
     "Set num_hidden_layers."},
    {"unsupported_value", kDescription, "The description holds a value that Doppler does not compute with.",
     "Take the value from the model's source again; if it is right, use another model."},
    // ---- Data ----
    {"unreadable_model", kData, "The model's files cannot be read.",
     "Download them again, or convert them again."},
    {"truncated_weight", kData, "The end of a weight is missing or zero.",
     "Download or convert the file again."},
    {"tensor_missing", kData, "A tensor that the description asks for is missing.",
     "Convert the model again, or correct the value that asks for the tensor."},
    {"tensor_unused", kData, "The files hold tensors that the description has no use for.",
     "Correct the value of the description that the tensors contradict."},
    {"tensor_shape", kData, "A tensor's shape contradicts the description.",
     "Correct the size in the description, or convert the model again."},
    {"weight_nan", kData, "A weight holds NaN or infinity.", "Download or convert the file again."},
    {"weight_transposed", kData, "A weight lies with rows and columns exchanged.",
     "Store it as [out, in], row by row."},
    {"weight_permuted", kData,
     "The rows or columns of a weight lie in another order, such as GGUF's order of rotary pairs, "
     "act-order's, "
     "or that of tensor-parallel shards.",
     "Undo the permutation, or do not undo one that was never made."},
    {"weight_shifted", kData, "The rows of a weight lie some places further than they should.",
     "Check the tensor's offset in its file, and convert it again."},
    {"nibble_order", kData, "The low and high halves of quantised bytes have changed places.",
     "Convert the tensor again with ggml's order of nibbles."},
    {"scale_min_swapped", kData, "Scale and minimum of quantised blocks have changed places.",
     "Convert the tensor again with ggml's order of d and dmin."},
    {"row_blocks_misaligned", kData,
     "Quantised blocks run across row ends: a stream was cut without regard to rows, or is read so.",
     "Quantise each row by itself, in whole blocks."},
    {"wrong_dtype", kData, "A weight's bytes are read as another type than they were written in.",
     "Correct the tensor's type (BF16 and F16 have the same size)."},
    {"stale_weight", kData, "A weight is that of another layer.", "Download or convert the file again."},
    {"tensor_swapped", kData, "Two weights have changed places.", "Exchange the two tensors' names."},
    {"weight_scaled", kData, "A weight is a multiple of what it should be.",
     "Convert the tensor again; check its scale."},
    {"fused_split", kData,
     "A fused tensor of queries, keys and values, or of gate and up, is cut in another order than it was "
     "written.",
     "Take the fused tensor apart in the order in which it was written."},
    {"scales_lost", kData, "The rows, columns or blocks of a weight lack their scales.",
     "Convert the tensor again, and multiply by the scales that lie beside it."},
    {"wrong_dequantisation", kData,
     "A weight's floats were made of quantised blocks in a wrong way: without offset, or with other signs.",
     "Convert the tensor again from the blocks, as their type's definition says."},
    {"bias_twice", kData, "A bias is added twice.",
     "Add it once, or convert it again: it is twice too large."},
    {"weight_wrong", kData, "A weight is not the model's, and no change of the catalogue makes it so.",
     "Compare the tensor with its source, and download or convert it again."},
    {"quantisation_error", kData, "Quantising has lost more of a tensor than its type explains.",
     "Quantise the tensor again, with a finer type."},
    // ---- Text ----
    {"merges_dropped", kText,
     "The tokenizer does not join pieces as its vocabulary expects: merges are missing.",
     "Take tokenizer.json (or the GGUF file's merges) from the source again; merges come as texts and as "
     "pairs."},
    {"tokenizer_round_trip", kText, "Text does not come back from the tokenizer as it went in.",
     "Take the tokenizer's files from the source again."},
    {"vocabulary_mismatch", kText, "Tokenizer and embedding disagree about the vocabulary.",
     "Take tokenizer and weights from the same source."},
    {"special_tokens", kText, "Special tokens lack ids, or are read as plain text.",
     "Take tokenizer.json and tokenizer_config.json from the source again."},
    {"double_bos", kText, "A prompt begins with two BOS tokens.",
     "Let either the chat template or the tokenizer add BOS, not both."},
    {"bos_missing", kText, "A prompt begins without the BOS token that the model was trained with.",
     "Turn add_bos_token on, or write BOS in the chat template."},
    {"chat_template", kText, "The chat template cannot be rendered, or loses what was said.",
     "Take the chat template from the source again."},
    // ---- Execution ----
    {"tail_missing", kExecution, "The last columns or rows beyond a whole block are not computed.",
     "Let the kernel handle sizes that are no multiple of its block."},
    {"rows_beyond_limit", kExecution, "Rows beyond a limit of the dispatch are not computed.",
     "Spread workgroups over two dimensions where they exceed 65535."},
    {"f16_overflow", kExecution, "Values beyond 65504 became infinite in 16-bit floats.",
     "Accumulate in float32, and store such stages in float32."},
    {"missing_barrier", kExecution,
     "The same step gives other bits when it is repeated: a barrier is missing.",
     "Check what the kernel reads before all of its workgroup has written it."},
    {"stale_buffer", kExecution, "A stage holds what an earlier step or another op has left.",
     "Check that every op writes all of its output before it is read."},
    {"kernel_writes_nothing", kExecution, "An op leaves its output as it was: zero or poison.",
     "Check the bindings and the size of the dispatch."},
    {"kv_append_offset", kExecution, "Keys and values are stored one position off.",
     "Store a token's key and value at its own position."},
    {"kv_counter", kExecution, "The count of positions in the cache does not grow as it should.",
     "Count every token of a step."},
    {"whole_cache_attended", kExecution, "Attention reads positions of the cache that nobody has written.",
     "Attend to the positions that are filled, not to the capacity."},
    {"causal_mask_missing", kExecution, "Tokens attend to tokens that come after them.",
     "Mask the positions after a token's own."},
    {"uniform_fields_swapped", kExecution, "A kernel reads two of its parameters in each other's place.",
     "Compare the parameter block of the host with that of the shader."},
    {"decode_unlike_prefill", kExecution,
     "Tokens one at a time give other values than the same tokens together.",
     "Compare the kernels of decoding with those of prompts."},
    {"batch_unlike_single", kExecution, "A sequence gives other values beside another than alone.",
     "Check that slots share nothing but weights."},
    {"submit_unlike_single", kExecution, "Several tokens a submission give other tokens than one.",
     "Check what lives from one token of a submission to the next."},
    {"not_deterministic", kExecution, "The same input gives other bits when it is repeated.",
     "Look for races: missing barriers, atomics, buffers in use twice."},
    {"pad_wins", kExecution, "The padding token may win.", "Exclude PAD before a token is chosen."},
    {"top_k_stripe", kExecution, "The sampler's top-k is not the k largest logits.",
     "Merge all candidates of all workgroups."},
    {"penalty_skipped", kExecution, "The sampler does not apply a penalty that was asked for.",
     "Apply penalties before a token is chosen."},
    {"sampler_order", kExecution, "The sampler applies its steps in another order than it should.",
     "Penalties, PAD, temperature, top-k, top-p, min-p, then the draw."},
    // ---- Other ----
    {"reference_mismatch", kOther, "The recording belongs to another model or another prompt.",
     "Record this model: doppler record, or tools/hf_record.py for transformers."},
    {"unknown", kOther, "No repair of the catalogue restores agreement.",
     "Compare the op with the model's source code at the place that is named."},
});

}  // namespace

std::string_view name_of(CauseKind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"description", "data", "text", "execution", "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::span<const Cause> all_causes() {
  return kCauses;
}

const Cause* find_cause(std::string_view id) {
  const auto found = std::find_if(kCauses.begin(), kCauses.end(), [&](const Cause& c) { return c.id == id; });
  return found == kCauses.end() ? nullptr : &*found;
}

}  // namespace doppler::diagnosis
