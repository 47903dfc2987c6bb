// Conversion of any model that Doppler reads to a GGUF file of a named mix of types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/mix.h"
#include "formats/rdrr_manifest.h"
#include "quant/encode.h"
#include "quant/error.h"
#include "quant/tensor.h"

namespace doppler::convert {

struct ConvertOptions {
  bool with_tokenizer = true;  // false: the file gets no vocabulary
  EncodeSearch search = EncodeSearch::kBest;
  std::size_t threads = 0;  // 0: one per core; the file is the same whatever the number
  std::function<void(double share, std::string_view what)> on_progress;
  std::function<bool()> is_cancelled;  // asked between pieces; may be empty
};

struct TensorReport {
  std::string name;
  Shape shape;
  DType from = DType::kF32, type = DType::kF32;
  std::string_view reason;             // why this type
  std::uint64_t bytes = 0;             // in the output
  std::optional<EncodingError> error;  // of the encoding; nothing where the bytes are copied
};

struct ConvertReport {
  std::string architecture;
  std::vector<TensorReport> tensors;
  std::uint64_t parameters = 0, tensor_bytes = 0, file_bytes = 0;
  std::vector<std::string> warnings;  // full sentences
  double bits_per_weight() const {
    return parameters == 0 ? 0 : 8.0 * static_cast<double>(tensor_bytes) / static_cast<double>(parameters);
  }
};

// Memory stays at some tens of MB beside the tokenizer, whatever the model's size. Errors: kUsage (the output
// is one of the model's files, or is not named .gguf), those of reading models, of encode() and of writing;
// kIo when cancelled. After an error no part of the output is left, and an older file of that name is
// unchanged.
Result<ConvertReport> convert_model(const std::filesystem::path& model, const Mix& mix,
                                    const std::filesystem::path& output, const ConvertOptions& options);

// An RDRR package of the model: a folder that must not exist yet, with the tensors under the model's own
// names in shards of 64 MiB. Without a mix every tensor keeps its type; else those that are used as they lie
// get the mix's. Tokenizer, template and what else belongs to a model are copied. Errors: as above; kUsage
// for an output that exists.
Result<ConvertReport> convert_to_rdrr(const std::filesystem::path& model, const Mix* mix,
                                      const std::filesystem::path& output, RdrrHash hash,
                                      const ConvertOptions& options,
                                      std::uint64_t shard_bytes = kRdrrShardBytes);

}  // namespace doppler::convert
