// The causes behind a loader's error messages.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "base/files.h"
#include "base/json.h"
#include "diagnosis/doctor/doctor.h"
#include "formats/safetensors.h"
#include "system/files.h"

namespace doppler::diagnosis {
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

// The weight whose tensor the sentence names first. A name that stands for different weights in different
// families gives nothing.
struct Named {
  Stage stage = Stage::kNone;
  int layer = -1;
};
Named named_weight(std::string_view sentence) {
  while (!sentence.empty()) {
    const std::size_t end = std::min(sentence.find(' '), sentence.size());
    std::string_view word = sentence.substr(0, end);
    sentence.remove_prefix(std::min(end + 1, sentence.size()));
    while (!word.empty() && std::string_view(".,;:()").contains(word.back())) word.remove_suffix(1);
    std::vector<NamedWeight> found = find_weights(NameStyle::kHuggingFace, word);
    if (found.empty()) found = find_weights(NameStyle::kGguf, word);
    if (found.empty()) continue;
    const Stage stage = found[0].info->stage;
    const bool alike = std::ranges::all_of(found, [&](const auto& n) { return n.info->stage == stage; });
    return alike ? Named{stage, found[0].layer} : Named{};
  }
  return {};
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

// The sentence of an error that says what to do.
std::string_view last_sentence(std::string_view text) {
  const std::size_t at = text.rfind(". ");
  return at == std::string_view::npos ? text : text.substr(at + 2);
}

// The names of a folder's tensors; none where a file cannot be read.
std::vector<std::string> stored_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : sorted_entries(folder)) {
    if (file.extension() != ".safetensors" || file.filename() == "reference.safetensors") continue;
    const auto store = open_safetensors(file);
    if (!store) return {};
    for (const auto& [name, tensor] : store->tensors()) names.push_back(name);
  }
  return names;
}

// One more than the highest number behind "layers." among the tensors of a folder; 0: there is none.
std::size_t stored_layers(const std::filesystem::path& folder) {
  constexpr std::string_view kLayers = "layers.";
  std::size_t count = 0;
  for (const std::string& name : stored_names(folder)) {
    const std::size_t at = name.find(kLayers);
    std::size_t layer = 0;
    if (at == std::string::npos) continue;
    const char* digits = name.data() + at + kLayers.size();
    if (std::from_chars(digits, name.data() + name.size(), layer).ec == std::errc())
      count = std::max(count, layer + 1);
  }
  return count;
}

// The flag of config.json that contradicts all biases of a kind which a folder has or lacks, and what it
// should say. Nothing where some of them are there and some are not: then it is the files that lack
// something.
struct BiasFlag {
  std::string_view key;
  bool right;
};
std::optional<BiasFlag> contradicted_bias_flag(const std::filesystem::path& folder,
                                               std::string_view sentence) {
  constexpr std::string_view kBias = ".bias", kMissing = " is missing";
  const std::size_t end = sentence.find(kBias);
  if (end == std::string_view::npos) return std::nullopt;
  const std::size_t space = sentence.rfind(' ', end) + 1;  // 0 where there is none
  const std::string_view name = sentence.substr(space, end + kBias.size() - space);
  const std::size_t part = name.find_first_not_of("0123456789", name.find_first_of("0123456789"));
  if (part == std::string_view::npos) return std::nullopt;
  const bool missing = sentence.find(kMissing) != std::string_view::npos;
  const std::string_view kind = name.substr(part);
  const std::vector<std::string> names = stored_names(folder);
  if (names.empty()) return std::nullopt;
  if (missing && std::ranges::any_of(names, [&](const auto& n) { return n.ends_with(kind); }))
    return std::nullopt;
  const auto text = read_text_file(folder / "config.json", 1 << 20);
  if (!text) return std::nullopt;
  const auto config = parse_json(*text, "config.json");
  if (!config || !config->is_object()) return std::nullopt;
  const bool of_feed_forward = kind.find(".mlp.") != std::string_view::npos;
  constexpr auto kAttentionFlags =
      std::to_array<std::string_view>({"attention_bias", "qkv_bias", "use_qkv_bias"});
  constexpr auto kFeedForwardFlags = std::to_array<std::string_view>({"mlp_bias"});
  const std::span<const std::string_view> flags = of_feed_forward
                                                      ? std::span<const std::string_view>(kFeedForwardFlags)
                                                      : std::span<const std::string_view>(kAttentionFlags);
  for (const std::string_view flag : flags) {
    const auto found = config->find(flag);
    if (found != config->end() && found->is_boolean() && found->get<bool>() == missing)
      return BiasFlag{flag, !missing};
  }
  return std::nullopt;
}

// What the tensors of a folder say where config.json contradicts them.
void add_fixes(const std::filesystem::path& model, const std::string& sentence, Finding& finding) {
  if (!system::is_folder(model)) return;
  const auto set = [&](const char* key, std::string value) {
    finding.repair = fmt::format("Set {} in config.json to {}.", key, value);
    finding.fixes.push_back(
        {.kind = Fix::Kind::kSetting, .target = key, .value = value, .file = "config.json"});
  };
  if (finding.cause == "tied_head")
    set("tie_word_embeddings", sentence.find("is missing") == std::string::npos ? "false" : "true");
  if (finding.cause == "bias_missing") {
    if (const auto flag = contradicted_bias_flag(model, sentence))
      set(std::string(flag->key).c_str(), flag->right ? "true" : "false");
  }
  if (finding.cause != "layer_count") return;
  if (const std::size_t layers = stored_layers(model); layers > 0)
    set("num_hidden_layers", std::to_string(layers));
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
  if (const Named named = named_weight(error.message); named.stage != Stage::kNone) {
    finding.stage = std::string(stage_name(named.stage));
    finding.layer = named.layer;
  }
  add_fixes(model, error.message, finding);
  Diagnosis diagnosis;
  diagnosis.checks.push_back({"load", "does the model load?", CheckState::kFinding,
                              fmt::format("{}: {}", model.string(), error.message), 0});
  diagnosis.findings.push_back(std::move(finding));
  return diagnosis;
}

}  // namespace doppler::diagnosis
