// The input of a conversion: the tensors of any model with the names and the row order of GGUF files, and the
// metadata that belongs to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/metadata.h"
#include "formats/model_files.h"
#include "model/family.h"
#include "quant/tensor.h"

namespace doppler::convert {

// One tensor of the output, and where its values come from.
struct SourceTensor {
  std::string name;  // as GGUF spells it
  Shape shape;
  std::vector<TensorView> parts;  // rows of the first, then of the next; views into the model's store
  std::vector<float> values;      // instead of parts: small tensors that are computed
  // The rows (of a vector: the values) of this many heads are put in llama.cpp's order, the two of a rotary
  // pair side by side; 0: the order stays.
  std::uint64_t paired_heads = 0;
  // The source's place of each row, and of each value of a row, where they come in another order; empty: as
  // they are.
  std::vector<std::uint64_t> row_order, column_order;
  std::vector<float> factors;  // that rows are multiplied by, one for each; empty: 1
  float added = 0;             // to every value: norms that are stored without their +1
  bool keep_float = false;     // the model's own configuration forbids quantising it
  std::string_view keep_type;  // why the source's type stays, whatever the mix says; empty: it need not
  std::string chosen_as;       // GGUF's name of what it is, by which the mix chooses; empty: `name` is that

  std::uint64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  std::uint64_t rows() const { return row_count(shape); }
  DType source_type() const { return parts.empty() ? DType::kF32 : parts[0].dtype; }
};

struct ConversionSource {
  ModelFiles files;  // keeps the tensors mapped
  ModelSpec spec;
  std::string architecture;
  std::vector<SourceTensor> tensors;
  // From a GGUF file: its own metadata, without the keys that describe the old tensors. Else empty.
  std::vector<GgufMetadata::Entry> copied;
  std::vector<MetadataEntry> metadata;
  std::vector<std::string> warnings;
};

struct SourceOptions {
  bool with_tokenizer = true;
};

// Errors: those of opening and reading models and tokenizers.
Result<ConversionSource> open_source(const std::filesystem::path& model, const SourceOptions& options);

// The two kinds of source, for open_source(); in source_hf.cpp and source_gguf.cpp.
Result<ConversionSource> open_hf_source(ModelFiles files, const std::filesystem::path& model,
                                        const SourceOptions& options);
Result<ConversionSource> open_gguf_source(ModelFiles files, const SourceOptions& options);

// Tensors under the names of the model's own files, not GGUF's; for RDRR packages. No metadata unless the
// model is in GGUF.
Result<ConversionSource> open_package_source(const std::filesystem::path& model);

// One phrase for each value in which two specs describe different models, as "attention.window is 0, not 512
// in layer 3". How they are stored may differ.
std::vector<std::string> spec_differences(const ModelSpec& wanted, const ModelSpec& got);

}  // namespace doppler::convert
