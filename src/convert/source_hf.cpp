// A Hugging Face folder as the source of a GGUF file.
#include <algorithm>
#include <array>

#include "chat/chat_template.h"
#include "convert/gguf_vocabulary.h"
#include "convert/hf_metadata.h"
#include "convert/source.h"

namespace doppler::convert {
namespace {

// What a family's tensor of that role consists of, if the checkpoint's own is fused.
struct Fused {
  WeightRole whole;
  std::array<WeightRole, 3> parts;
  std::size_t count;
};
constexpr std::array kFused = {
    Fused{WeightRole::kQkv, {WeightRole::kQ, WeightRole::kK, WeightRole::kV}, 3},
    Fused{WeightRole::kGateUp, {WeightRole::kGate, WeightRole::kUp, WeightRole::kUp}, 2},
};

bool is_norm(WeightRole role) {
  constexpr std::array kNorms = {WeightRole::kFinalNorm,    WeightRole::kAttnNorm,    WeightRole::kFfnNorm,
                                 WeightRole::kPostAttnNorm, WeightRole::kPostFfnNorm, WeightRole::kQNorm,
                                 WeightRole::kKNorm};
  return std::ranges::find(kNorms, role) != kNorms.end();
}

// Lists of modules in quantization_config that stay as they are; each quantiser has its own word.
constexpr std::array<std::string_view, 3> kKeepKeys = {"modules_to_not_convert", "llm_int8_skip_modules",
                                                       "ignore"};

std::vector<std::string> modules_to_keep(const Json& config) {
  std::vector<std::string> modules;
  const auto quantisation = config.find("quantization_config");
  if (quantisation == config.end() || !quantisation->is_object()) return modules;
  for (const std::string_view key : kKeepKeys) {
    const auto list = quantisation->find(key);
    if (list == quantisation->end() || !list->is_array()) continue;
    for (const Json& entry : *list) {
      if (entry.is_string()) modules.push_back(entry.get<std::string>());
    }
  }
  return modules;
}

// The module's path is in the tensor's name: "lm_head" and "model.layers.0.self_attn" name whole components.
bool names_module(std::string_view tensor, std::string_view module) {
  if (module.empty()) return false;
  for (std::size_t at = tensor.find(module); at != std::string_view::npos; at = tensor.find(module, at + 1)) {
    const std::size_t end = at + module.size();
    const bool begins = at == 0 || tensor[at - 1] == '.';
    if (begins && (end == tensor.size() || tensor[end] == '.')) return true;
  }
  return false;
}

class Source {
 public:
  Source(ConversionSource& out, const Weights& weights, const FamilyRule& rule)
      : out_(out), weights_(weights), rule_(rule), modules_(modules_to_keep(out.files.config)) {}

  void add_tensors() {
    add_rope_factors();
    add(WeightRole::kTokenEmbedding, -1);
    const int layers = static_cast<int>(out_.spec.layers.size());
    for (int layer = 0; layer < layers; ++layer) {
      for (const WeightName& name : rule_.gguf.weight_names) {
        if (name.name.find("{}") != std::string_view::npos) add(name.role, layer);
      }
    }
    add(WeightRole::kFinalNorm, -1);
    if (!out_.spec.tied_head) add(WeightRole::kHead, -1);
  }

 private:
  void add_rope_factors() {
    const RopeSpec& rope = out_.spec.layers[0].attention.rope;
    const auto add_values = [&](WeightRole role, std::vector<float> values) {
      const std::string name = weight_name(rule_.gguf.weight_names, role);
      if (!name.empty() && !values.empty())
        out_.tensors.push_back({.name = name, .shape = {values.size()}, .values = values});
    };
    if (rope.scaling.kind == RopeScalingKind::kLlama3)
      add_values(WeightRole::kRopeDivisors, llama3_divisors(rope));
    if (rope.scaling.kind != RopeScalingKind::kLongRope) return;
    const auto floats = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    add_values(WeightRole::kRopeLongFactors, floats(rope.scaling.long_factor));
    add_values(WeightRole::kRopeShortFactors, floats(rope.scaling.short_factor));
  }

  void add(WeightRole role, int layer) {
    SourceTensor tensor{.name = weight_name(rule_.gguf.weight_names, role, layer)};
    const auto fused = std::ranges::find(kFused, role, &Fused::whole);
    if (fused == kFused.end()) {
      const WeightId id = weights_.find(role, layer);
      if (id == kNoWeight) return;
      tensor.parts = {weights_[id]};
    } else {
      for (std::size_t i = 0; i < fused->count; ++i) {
        const WeightId id = weights_.find(fused->parts[i], layer);
        if (id == kNoWeight) return;
        tensor.parts.push_back(weights_[id]);
      }
    }
    tensor.shape = tensor.parts[0].shape;
    for (std::size_t i = 1; i < tensor.parts.size(); ++i) tensor.shape[0] += tensor.parts[i].shape[0];
    if (is_norm(role)) tensor.added = static_cast<float>(out_.spec.norm.weight_offset);
    if (rule_.gguf.paired_rows && layer >= 0) tensor.paired_heads = paired_heads(role, layer);
    tensor.keep_float = std::ranges::any_of(
        modules_, [&](const std::string& module) { return names_module(tensor.parts[0].name, module); });
    out_.tensors.push_back(std::move(tensor));
  }

  std::uint64_t paired_heads(WeightRole role, int layer) const {
    const AttentionSpec& attention = out_.spec.layers[static_cast<std::size_t>(layer)].attention;
    if (role == WeightRole::kQ || role == WeightRole::kQBias) return attention.heads;
    if (role == WeightRole::kK || role == WeightRole::kKBias) return attention.kv_heads;
    return 0;
  }

  ConversionSource& out_;
  const Weights& weights_;
  const FamilyRule& rule_;
  std::vector<std::string> modules_;
};

std::string name_of_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, ignored);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

Status add_templates(const std::filesystem::path& folder, ConversionSource& out) {
  DOPPLER_ASSIGN(const auto templates, chat::read_chat_templates(folder));
  std::vector<std::string> others;
  for (const auto& [name, text] : templates) {
    const bool main = name == "default";
    out.metadata.push_back(
        {main ? "tokenizer.chat_template" : fmt::format("tokenizer.chat_template.{}", name), text});
    if (!main) others.push_back(name);
  }
  if (!others.empty()) out.metadata.push_back({"tokenizer.chat_templates", std::move(others)});
  return {};
}

// Without a tokenizer the file still says so: readers do not guess.
Status add_tokenizer(const SourceOptions& options, ConversionSource& out) {
  std::optional<tokenizer::TokenizerSpec> tokenizer;
  if (options.with_tokenizer) {
    DOPPLER_ASSIGN(tokenizer, read_folder_tokenizer(out.files.folder));
  }
  if (!tokenizer) {
    if (options.with_tokenizer)
      out.warnings.push_back("The folder has no tokenizer: the GGUF file runs on token ids only.");
    out.metadata.push_back({"tokenizer.ggml.model", std::string("none")});
    return {};
  }
  VocabularyFacts facts{.vocab_size = out.spec.vocab_size, .eos_ids = out.spec.eos_ids};
  if (out.spec.bos_id >= 0) facts.bos_id = out.spec.bos_id;
  if (out.spec.pad_id >= 0) facts.pad_id = out.spec.pad_id;
  DOPPLER_ASSIGN(GgufVocabulary vocabulary, gguf_vocabulary(*tokenizer, facts));
  std::ranges::move(vocabulary.entries, std::back_inserter(out.metadata));
  std::ranges::move(vocabulary.warnings, std::back_inserter(out.warnings));
  return add_templates(out.files.folder, out);
}

}  // namespace

Result<ConversionSource> open_hf_source(ModelFiles files, const std::filesystem::path& model,
                                        const SourceOptions& options) {
  ConversionSource out;
  out.files = std::move(files);
  const Json* generation = out.files.generation_config ? &*out.files.generation_config : nullptr;
  DOPPLER_ASSIGN(out.spec, read_spec(out.files.config, generation));
  const FamilyRule* rule = family_named(out.spec.family);
  DOPPLER_ASSIGN(const Weights weights, bind_weights(out.spec, rule->weight_names, out.files.tensors));
  out.architecture = rule->gguf.architecture;
  Source(out, weights, *rule).add_tensors();

  const Json& config = out.files.config;
  const auto text = config.find("text_config");
  const Json& own = text != config.end() && text->is_object() ? *text : config;
  const auto head_dim = own.find("head_dim");
  HfFacts facts{.name = name_of_folder(std::filesystem::is_directory(model) ? model : out.files.folder),
                .architecture = rule->gguf.architecture,
                .says_head_dim = head_dim != own.end() && head_dim->is_number()};
  for (const SourceTensor& tensor : out.tensors) facts.parameters += tensor.rows() * tensor.columns();
  out.metadata = hf_metadata(out.spec, facts);
  DOPPLER_TRY(add_tokenizer(options, out));
  return out;
}

}  // namespace doppler::convert
