// A Hugging Face folder as the source of a GGUF file.
#include <algorithm>
#include <array>

#include "base/json.h"
#include "chat/chat_template.h"
#include "convert/gguf_vocabulary.h"
#include "convert/hf_metadata.h"
#include "convert/source.h"
#include "convert/source_recurrent.h"
#include "model/expert_files.h"
#include "model/rope.h"
#include "system/files.h"

namespace doppler::convert {
namespace {

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
      : out_(out), weights_(weights), rule_(rule), modules_(modules_to_keep(*out.files.config)) {}

  // Adds the tensors of a GGUF file. If the model's own files fuse tensors, its weights hold the parts.
  Status add_tensors() {
    for (const WeightTensor& wanted : weight_tensors(out_.spec, rule_.gguf.weight_names)) {
      if (wanted.info->kind == WeightKind::kRopeFactors)
        out_.tensors.push_back(
            {.name = wanted.name, .shape = wanted.shape, .values = rope_factors(wanted.info->role)});
      else if (wanted.info->role == WeightRole::kMixerIn &&
               layer_of(wanted).recurrent.in_projection == InProjection::kByKeyHead)
        std::ranges::move(part_by_use(out_.spec, rule_.gguf, wanted,
                                      weights_[weights_.find(WeightRole::kMixerIn, wanted.layer)]),
                          std::back_inserter(out_.tensors));
      else
        DOPPLER_TRY(add(wanted));
    }
    if (rule_.gguf.unread_kv) add_unread_kv();
    return {};
  }

 private:
  // What checkpoints keep of layers that read another's keys and values.
  void add_unread_kv() {
    const Nesting nesting = find_nesting(rule_.weight_names, out_.files.tensors);
    bool complete = true;
    for (int layer = 0; layer < static_cast<int>(out_.spec.layers.size()); ++layer) {
      if (out_.spec.layers[static_cast<std::size_t>(layer)].attention.has_own_kv()) continue;
      for (const WeightRole role : {WeightRole::kK, WeightRole::kV, WeightRole::kKNorm}) {
        const std::string name = nested_name(nesting, weight_name(rule_.weight_names, role, layer));
        const TensorView* tensor = out_.files.tensors.find(name);
        complete = complete && tensor != nullptr;
        if (tensor == nullptr) continue;
        out_.tensors.push_back({.name = weight_name(rule_.gguf.weight_names, role, layer),
                                .shape = tensor->shape,
                                .parts = {*tensor}});
      }
    }
    if (!complete)
      out_.warnings.push_back(
          "The folder lacks keys and values of layers that read another's: Doppler runs the file, but "
          "llama.cpp asks for them.");
  }

  // Tokens behind the table have its first row, which llama.cpp's readers find where they look for theirs.
  Status pad_per_layer(SourceTensor& tensor) const {
    const TensorView table = tensor.parts[0];
    for (std::uint64_t row = table.rows(); row < tensor.rows(); ++row) {
      DOPPLER_ASSIGN(TensorView first, slice_rows(table, 0, 1, table.name));
      tensor.parts.push_back(std::move(first));
    }
    return {};
  }

  std::vector<float> rope_factors(WeightRole role) const {
    const RopeSpec& rope = rope_with_factors(out_.spec);
    if (role == WeightRole::kRopeDivisors) return rope_divisors(rope);
    const std::vector<double>& factors =
        role == WeightRole::kRopeLongFactors ? rope.scaling.long_factor : rope.scaling.short_factor;
    return {factors.begin(), factors.end()};
  }

  const LayerSpec& layer_of(const WeightTensor& tensor) const {
    return out_.spec.layers[static_cast<std::size_t>(std::max(tensor.layer, 0))];
  }

  // Parts are joined row by row; those of a vector, which is one row, as values.
  Status join_values(SourceTensor& tensor) const {
    for (const TensorView& part : tensor.parts) {
      const std::size_t begin = tensor.values.size();
      tensor.values.resize(begin + part.cols());
      DOPPLER_TRY(decode_f32(part, 0, std::span(tensor.values).subspan(begin)));
    }
    tensor.parts.clear();
    return {};
  }

  // The matrices that make keys and values of the latent, which folders hold as one, head by head, as two:
  // that of keys transposed, so that queries can be taken to the latent.
  Status add_latent_part(const WeightTensor& wanted) {
    const AttentionSpec& a = layer_of(wanted).attention;
    const std::uint64_t rank = a.latent.kv_rank, values = a.latent.value_dim,
                        own = a.head_dim - a.latent.rope_dim;
    const TensorView& whole = weights_[weights_.find(WeightRole::kKvUp, wanted.layer)];
    SourceTensor tensor{.name = wanted.name, .shape = wanted.shape};
    if (wanted.info->role == WeightRole::kVUp) {
      tensor.parts = {whole};
      for (std::uint64_t i = 0; i < a.heads * values; ++i)
        tensor.row_order.push_back(i / values * (own + values) + own + i % values);
    } else {
      tensor.values.resize(a.heads * rank * own);
      std::vector<float> row(rank);
      for (std::uint64_t i = 0; i < a.heads * own; ++i) {
        const std::uint64_t head = i / own, dim = i % own;
        DOPPLER_TRY(decode_f32(whole, (head * (own + values) + dim) * rank, row));
        for (std::uint64_t r = 0; r < rank; ++r) tensor.values[(head * rank + r) * own + dim] = row[r];
      }
    }
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  Status add(const WeightTensor& wanted) {
    const WeightRole role = wanted.info->role;
    if (role == WeightRole::kKUp || role == WeightRole::kVUp) return add_latent_part(wanted);
    SourceTensor tensor{.name = wanted.name, .shape = wanted.shape};
    const std::span<const WeightRole> parts = wanted.info->fused_parts();
    // Binding has found them all. Of experts the parts of one come together.
    const std::span<const WeightRole> joined = parts.empty() ? std::span(&role, 1) : parts;
    const std::uint32_t count = weights_.count(weights_.find(joined[0], wanted.layer));
    if (wanted.stack) {
      for (std::uint64_t i = 0; i < wanted.shape[0]; ++i)
        tensor.parts.push_back(weights_[weights_.find(role, static_cast<int>(i))]);
    } else {
      for (std::uint32_t i = 0; i < count; ++i)
        for (const WeightRole part : joined)
          tensor.parts.push_back(weights_[weights_.find(part, wanted.layer) + i]);
    }
    if (role == WeightRole::kPerLayerEmbedding) DOPPLER_TRY(pad_per_layer(tensor));
    if (tensor.parts.size() > 1 && tensor.shape.size() < 2) DOPPLER_TRY(join_values(tensor));
    const bool own_heads = (role == WeightRole::kQNorm || role == WeightRole::kKNorm) &&
                           layer_of(wanted).attention.qk_norm_span == NormSpan::kOwnHead;
    if (own_heads) {  // llama.cpp's shape for a weight per head
      const std::uint64_t dim = layer_of(wanted).attention.head_dim;
      tensor.shape = {tensor.shape[0] / dim, dim};
    }
    if (wanted.info->takes_offset()) tensor.added = static_cast<float>(out_.spec.norm.weight_offset);
    if (rule_.gguf.paired_rows) tensor.paired_heads = rotated_heads(out_.spec, role, wanted.layer);
    DOPPLER_TRY(arrange_recurrent(out_.spec, rule_.gguf, wanted, tensor));
    if (rule_.gguf.multiplied_weights) DOPPLER_TRY(multiply(out_.spec, wanted, tensor));
    tensor.keep_float =
        !tensor.parts.empty() && std::ranges::any_of(modules_, [&](const std::string& module) {
          return names_module(tensor.parts[0].name, module);
        });
    out_.tensors.push_back(std::move(tensor));
    return {};
  }

  ConversionSource& out_;
  const Weights& weights_;
  const FamilyRule& rule_;
  std::vector<std::string> modules_;
};

std::string name_of_folder(const std::filesystem::path& folder) {
  const std::filesystem::path whole = system::without_links(folder);
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

// Without a tokenizer the metadata says "none", so that readers need not guess.
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
  const Json* generation = out.files.generation_config ? &**out.files.generation_config : nullptr;
  DOPPLER_ASSIGN(out.spec, read_spec(*out.files.config, generation));
  const FamilyRule* rule = family_named(out.spec.family);
  if (rule->gguf.architecture.empty()) {
    return fail(
        ErrorCode::kUnsupported,
        "Doppler runs the family {} from folders only, and writes no GGUF files of it. Run the folder "
        "itself.",
        out.spec.family);
  }
  DOPPLER_ASSIGN(const Weights weights, bind_folder(out.spec, out.files.tensors));
  const bool experts =
      std::ranges::any_of(out.spec.layers, [](const LayerSpec& layer) { return layer.ffn.experts > 0; });
  out.architecture = experts && !rule->gguf.architecture_of_experts.empty()
                         ? rule->gguf.architecture_of_experts
                         : rule->gguf.architecture;
  for (LayerSpec& layer : out.spec.layers) layer.attention.latent.split_up = layer.attention.is_latent();
  if (out.spec.per_layer.width > 0)
    out.spec.per_layer.tokens = std::max(out.spec.per_layer.tokens, out.spec.vocab_size);
  if (rule->gguf.multiplied_weights) out.spec.tied_head = ties_after_multiplying(out.spec);
  DOPPLER_TRY(Source(out, weights, *rule).add_tensors());
  if (rule->gguf.multiplied_weights) leave_multipliers_out(out.spec);

  const Json& config = *out.files.config;
  const auto text = config.find("text_config");
  const Json& own = text != config.end() && text->is_object() ? *text : config;
  const auto head_dim = own.find("head_dim");
  HfFacts facts{.name = name_of_folder(system::is_folder(model) ? model : out.files.folder),
                .architecture = out.architecture,
                .says_head_dim = head_dim != own.end() && head_dim->is_number()};
  for (const SourceTensor& tensor : out.tensors) facts.parameters += tensor.rows() * tensor.columns();
  out.metadata = hf_metadata(out.spec, facts);
  DOPPLER_TRY(add_tokenizer(options, out));
  return out;
}

}  // namespace doppler::convert
