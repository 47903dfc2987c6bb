// Any bytes as a GGUF file whose metadata describe a tokenizer: a tokenizer that works, or
// an error; never a crash, a hang or a huge allocation.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "formats/gguf.h"
#include "formats/gguf_stop_tokens.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer_drive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto file = doppler::parse_gguf(std::as_bytes(std::span(data, size)), "The input");
  if (!file) return 0;
  const auto tokenizer = doppler::tokenizer::load_gguf_tokenizer(file->metadata, "The input");
  if (!tokenizer && (tokenizer.error().message.empty() || tokenizer.error().message.size() > 4000))
    std::abort();
  if (tokenizer && *tokenizer) {
    (void)doppler::gguf_stop_tokens(file->metadata);
    doppler::drive_tokenizer(**tokenizer, bytes);
  }
  return 0;
}
