// What both tokenizer targets do with a tokenizer that loads.
#pragma once

#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace doppler {

// Encodes some texts, the file itself among them (it has all the pieces in it), and decodes them whole and
// streamed, which must give the same.
inline void drive_tokenizer(const tokenizer::Tokenizer& tokenizer, std::string_view file) {
  for (const std::string_view text : {std::string_view(" Hello, wörld 12 <s>\n"), file.substr(0, 300)}) {
    const auto ids = tokenizer.encode(text);
    if (!ids) continue;
    const auto whole = tokenizer.decode(*ids);
    tokenizer::StreamDecoder decoder(tokenizer, /*skip_special=*/false);
    std::string streamed;
    bool failed = !whole;
    for (const TokenId id : *ids) {
      const auto part = decoder.push(id);
      failed = failed || !part;
      if (part) streamed += *part;
    }
    const auto rest = decoder.flush();
    if (!failed && rest && streamed + *rest != *whole) __builtin_trap();
  }
}

}  // namespace doppler
