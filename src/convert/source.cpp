#include "convert/source.h"

namespace doppler::convert {

std::uint64_t SourceTensor::rows() const {
  std::uint64_t rows = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

Result<ConversionSource> open_source(const std::filesystem::path& model, const SourceOptions& options) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(model));
  if (files.gguf) return open_gguf_source(std::move(files), options);
  return open_hf_source(std::move(files), model, options);
}

}  // namespace doppler::convert
