// Any bytes as a tokenizer.json: a tokenizer that works, or an error; never a crash, a hang or a huge
// allocation.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer_drive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = doppler::tokenizer::Tokenizer::from_json(bytes, "The input");
  if (tokenizer) doppler::drive_tokenizer(*tokenizer, bytes);
  return 0;
}
