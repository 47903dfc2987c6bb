// What a loader's refusal tells about the cause.
#include <array>
#include <charconv>

#include "diagnosis/doctor/doctor.h"

namespace doppler {
namespace {

// The first row whose parts all stand in the sentence decides; specific ones come first.
struct Refusal {
  std::string_view cause;
  std::array<std::string_view, 2> parts;
};
constexpr auto kRefusals = std::to_array<Refusal>({
    {"layer_count", {"is in the weights", "num_hidden_layers"}},
    {"layer_count", {"layer_types for num_hidden_layers"}},
    {"head_grouping", {"has the shape", "num_key_value_heads"}},
    {"head_grouping", {"must be a multiple of the second"}},
    {"tensor_shape", {"has the shape", "q_norm"}},
    {"tensor_shape", {"has the shape", "k_norm"}},
    {"rope_theta", {"contradicts", "rope_theta"}},
    {"attention_scale", {"query_pre_attn_scalar"}},
    {"activation", {"names the activation"}},
    {"special_tokens", {"_token_id", "outside the vocabulary"}},
    {"layer_count", {"has no", ".block_count"}},
    {"norm_eps", {"layer_norm_rms_epsilon"}},
    {"norm_eps", {"rms_norm_eps"}},
    {"rope_dims", {"rope.dimension_count"}},
    {"rope_scaling", {"scales rotary embedding"}},
    {"rope_scaling", {"rope.scaling"}},
    {"rope_scaling", {"rope_scaling"}},
    {"embedding_scale", {"embedding_scale ="}},
    {"unsupported_value", {"does not run"}},
    {"unsupported_value", {"does not compute with"}},
    {"unsupported_value", {"does not do"}},
    {"qk_norm_missing", {"attention.qk_norm"}},
    {"qk_norm_missing", {"q_norm"}},
    {"qk_norm_missing", {"k_norm"}},
    {"post_norm_missing", {"post_attn_norm"}},
    {"post_norm_missing", {"post_ffn_norm"}},
    {"post_norm_missing", {"_feedforward_layernorm"}},
    {"post_norm_missing", {"post_ffw_norm"}},
    {"bias_missing", {"_bias ="}},
    {"bias_missing", {".bias"}},
    {"tied_head", {"tie_word_embeddings"}},
    {"vocabulary_mismatch", {"The tokenizer has ids up to"}},
    {"vocabulary_mismatch", {"vocab_size", "has the shape"}},
    {"vocabulary_mismatch", {"The vocabulary has"}},
    {"tensor_shape", {"has the shape"}},
    {"truncated_weight", {"but the file holds"}},
    {"truncated_weight", {"beyond the end"}},
    {"truncated_weight", {"truncated"}},
    {"truncated_weight", {"the file has"}},
    {"wrong_dtype", {"is stored as"}},
    {"tensor_unused", {"is in the weights"}},
    {"tensor_missing", {"is missing, but"}},
    {"chat_template", {"template"}},
    {"merges_dropped", {"merge"}},
    {"special_tokens", {"added_tokens"}},
    {"tokenizer_round_trip", {"okenizer"}},
});

// The stage that a tensor's name in the sentence belongs to, as folders and as GGUF files spell it.
struct NamedStage {
  std::string_view part;
  Stage stage;
};
constexpr auto kNamedStages = std::to_array<NamedStage>({
    {"q_norm", Stage::kQNorm},
    {"k_norm", Stage::kKNorm},
    {"q_proj", Stage::kQProj},
    {"attn_q.", Stage::kQProj},
    {"k_proj", Stage::kKProj},
    {"attn_k.", Stage::kKProj},
    {"v_proj", Stage::kVProj},
    {"attn_v.", Stage::kVProj},
    {"o_proj", Stage::kOProj},
    {"attn_output", Stage::kOProj},
    {"gate_proj", Stage::kFfnGate},
    {"ffn_gate", Stage::kFfnGate},
    {"up_proj", Stage::kFfnUp},
    {"ffn_up", Stage::kFfnUp},
    {"down_proj", Stage::kFfnOut},
    {"ffn_down", Stage::kFfnOut},
    {"post_feedforward_layernorm", Stage::kPostFfnNorm},
    {"post_ffw_norm", Stage::kPostFfnNorm},
    {"pre_feedforward_layernorm", Stage::kFfnNormed},
    {"post_attention_norm", Stage::kPostAttnNorm},
    {"input_layernorm", Stage::kAttnNormed},
    {"ffn_norm", Stage::kFfnNormed},
    {"attn_norm.", Stage::kAttnNormed},
    {"output_norm", Stage::kFinalNorm},
    {"model.norm.", Stage::kFinalNorm},
    {"attn_qkv", Stage::kQProj},
    {"lm_head", Stage::kLogits},
    {"output.weight", Stage::kLogits},
    {"embed_tokens", Stage::kEmbedOut},
    {"token_embd", Stage::kEmbedOut},
});

// "layers.3." or "blk.3." of the sentence; -1 if it names none.
int named_layer(std::string_view sentence) {
  for (const std::string_view prefix : {"layers.", "blk."}) {
    const std::size_t at = sentence.find(prefix);
    if (at == std::string_view::npos) continue;
    int layer = -1;
    const char* begin = sentence.data() + at + prefix.size();
    std::from_chars(begin, sentence.data() + sentence.size(), layer);
    return layer;
  }
  return -1;
}

// "has the shape 256 x 96, but the spec (...) asks for 256 x 192": the rows agree.
bool same_rows(std::string_view sentence) {
  const auto number_after = [&](std::string_view words) {
    const std::size_t at = sentence.find(words);
    std::uint64_t number = 0;
    if (at != std::string_view::npos)
      std::from_chars(sentence.data() + at + words.size(), sentence.data() + sentence.size(), number);
    return number;
  };
  const std::uint64_t rows = number_after("has the shape ");
  return rows != 0 && rows == number_after("asks for ");
}

// Where the loader tells what to do.
std::string_view last_sentence(std::string_view text) {
  const std::size_t at = text.rfind(". ");
  return at == std::string_view::npos ? text : text.substr(at + 2);
}

}  // namespace

Diagnosis diagnose_refusal(const std::filesystem::path& model, const Error& error) {
  std::string_view id = "unreadable_model";
  for (const Refusal& refusal : kRefusals) {
    const bool all = error.message.find(refusal.parts[0]) != std::string::npos &&
                     error.message.find(refusal.parts[1]) != std::string::npos;
    if (!all) continue;
    id = refusal.cause;
    break;
  }
  if (id == "vocabulary_mismatch" && same_rows(error.message)) id = "tensor_shape";
  const Cause& cause = *find_cause(id);
  Finding finding{
      .cause = std::string(id),
      .explanation = error.message,
      .repair = std::string(id == "unreadable_model" ? last_sentence(error.message) : cause.repair),
      .confidence = id == "unreadable_model" ? 0.5 : 0.9,
      .check = "load"};
  for (const NamedStage& named : kNamedStages) {
    if (error.message.find(named.part) == std::string::npos) continue;
    finding.stage = std::string(stage_name(named.stage));
    finding.layer = named_layer(error.message);
    break;
  }
  Diagnosis diagnosis;
  diagnosis.checks.push_back({"load", "does the model load?", CheckState::kFinding,
                              fmt::format("{}: {}", model.string(), error.message), 0});
  diagnosis.findings.push_back(std::move(finding));
  return diagnosis;
}

}  // namespace doppler
