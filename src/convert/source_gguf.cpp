// A GGUF file as the source of another: metadata as it is, tensors under the same names.
#include <algorithm>
#include <array>

#include "convert/source.h"
#include "model/gguf_recurrent.h"
#include "tokenizer/gguf_tokenizer.h"

namespace doppler::convert {
namespace {

// Whether a key describes the old file rather than the model.
bool describes_old_file(std::string_view key) {
  constexpr std::array<std::string_view, 3> kKeys = {"general.file_type", "general.quantization_version",
                                                     "general.alignment"};
  return std::ranges::find(kKeys, key) != kKeys.end() || key.starts_with("split.") ||
         key.starts_with("quantize.");
}

}  // namespace

Result<ConversionSource> open_gguf_source(ModelFiles files, const SourceOptions& options) {
  ConversionSource out;
  out.files = std::move(files);
  const GgufMetadata& metadata = *out.files.gguf;
  const TensorStore& store = out.files.tensors;
  DOPPLER_ASSIGN(out.spec, read_gguf_spec(metadata, store));
  const FamilyRule* rule = family_named(out.spec.family);
  // Only to check names and shapes; rows stay in the file's order, which is the one to write.
  TensorStore restored = store;
  DOPPLER_TRY(restore_recurrent(out.spec, rule->gguf.weight_names, restored));
  DOPPLER_TRY(bind_weights(out.spec, rule->gguf.weight_names, restored));
  DOPPLER_ASSIGN(const auto architecture, metadata.get_string("general.architecture"));
  out.architecture = architecture.value_or(std::string(rule->gguf.architecture));
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    const bool tokenizer = entry.key.starts_with("tokenizer.");
    if (describes_old_file(entry.key) || (tokenizer && !options.with_tokenizer)) continue;
    out.copied.push_back(entry);
  }
  if (!options.with_tokenizer) {
    out.metadata.push_back({"tokenizer.ggml.model", std::string("none")});
    const std::string size = fmt::format("{}.vocab_size", out.architecture);
    if (!metadata.has(size)) out.metadata.push_back({size, out.spec.vocab_size});
  }
  for (const auto& [name, tensor] : store.tensors())
    out.tensors.push_back({.name = name, .shape = tensor.shape, .parts = {tensor}});
  // In the file's order, so that both files are read from front to back.
  std::ranges::sort(out.tensors, {}, [](const SourceTensor& t) { return t.parts[0].data.data(); });
  return out;
}

}  // namespace doppler::convert
