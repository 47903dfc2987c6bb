// Any bytes as tokenizer.json: a tokenizer that works, or an error; never a crash, a hang or a huge
// allocation.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = doppler::Tokenizer::from_json(bytes, "The input");
  if (!tokenizer) return 0;
  // The file itself is a text with all its pieces in it.
  for (const std::string_view text : {std::string_view(" Hello, wörld 12 <s>\n"), bytes.substr(0, 300)}) {
    const auto ids = tokenizer->encode(text);
    if (!ids) continue;
    const auto whole = tokenizer->decode(*ids);
    doppler::StreamDecoder decoder(*tokenizer, /*skip_special=*/false);
    std::string streamed;
    bool failed = !whole;
    for (const doppler::TokenId id : *ids) {
      const auto part = decoder.push(id);
      failed = failed || !part;
      if (part) streamed += *part;
    }
    const auto rest = decoder.flush();
    if (!failed && rest && streamed + *rest != *whole) __builtin_trap();
  }
  return 0;
}
