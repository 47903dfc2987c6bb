#include "base/files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace doppler {

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  DOPPLER_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  const auto bytes = mapped.bytes();
  return from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                   fmt::format("The file {}", file.string()));
}

}  // namespace doppler
