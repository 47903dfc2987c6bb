// Finding and reading a tokenizer's files.
#include "base/files.h"
#include "base/json.h"
#include "system/files.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
#include "tokenizer/tokenizer_json.h"

namespace doppler::tokenizer {
namespace {

namespace fs = std::filesystem;

Result<fs::path> tokenizer_file(const fs::path& path) {
  if (!system::is_folder(path)) return path;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (system::exists(path / name)) return path / name;
  }
  return fail(ErrorCode::kNotFound,
              "The folder {} has neither a tokenizer.json nor a tokenizer.model. Download the tokenizer's "
              "files into it.",
              path.string());
}

// JSON begins with a brace after white space; a SentencePiece model begins with the tag of its first piece.
bool looks_like_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[');
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder_or_file) {
  DOPPLER_ASSIGN(const fs::path path, tokenizer_file(folder_or_file));
  DOPPLER_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::span<const std::byte> bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string what = fmt::format("The file {}", path.string());
  const bool json = path.extension() == ".json" || (path.extension() != ".model" && looks_like_json(text));
  auto parsed = json ? parse_tokenizer_json(text, what) : parse_sentencepiece_model(bytes, what);
  DOPPLER_ASSIGN(TokenizerSpec spec, std::move(parsed));
  DOPPLER_TRY(refine_with_config(path.parent_path(), spec));
  return from_spec(std::move(spec));
}

Result<Tokenizer> Tokenizer::from_sentencepiece(std::span<const std::byte> model, std::string_view what) {
  DOPPLER_ASSIGN(TokenizerSpec spec, parse_sentencepiece_model(model, what));
  DOPPLER_TRY(refine_with_config(Json(), Json(), spec));
  return from_spec(std::move(spec));
}

}  // namespace doppler::tokenizer
