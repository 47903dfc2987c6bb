// What a loader's refusal tells about the cause.
#include <array>

#include "inspect/doctor.h"

namespace doppler {
namespace {

// The first row whose parts all stand in the sentence decides; specific ones come first.
struct Refusal {
  std::string_view cause;
  std::array<std::string_view, 2> parts;
};
constexpr auto kRefusals = std::to_array<Refusal>({
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
    {"layer_count", {"is in the weights", "num_hidden_layers"}},
    {"head_grouping", {"has the shape", "num_key_value_heads"}},
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
  const Cause& cause = *find_cause(id);
  Finding finding{.cause = std::string(id),
                  .explanation = error.message,
                  .repair = std::string(cause.repair),
                  .confidence = id == "unreadable_model" ? 0.5 : 0.9,
                  .check = "load"};
  Diagnosis diagnosis;
  diagnosis.checks.push_back({"load", "does the model load?", CheckState::kFinding,
                              fmt::format("{}: {}", model.string(), error.message), 0});
  diagnosis.findings.push_back(std::move(finding));
  return diagnosis;
}

}  // namespace doppler
