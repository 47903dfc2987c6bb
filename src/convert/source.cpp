#include "convert/source.h"

namespace doppler::convert {

Result<ConversionSource> open_source(const std::filesystem::path& model, const SourceOptions& options) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(model));
  if (files.gguf) return open_gguf_source(std::move(files), options);
  return open_hf_source(std::move(files), model, options);
}

}  // namespace doppler::convert
