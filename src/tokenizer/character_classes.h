// The classes of characters that tokenizers ask for, where they differ from Unicode's own (base/unicode.h).
#pragma once

namespace doppler::tokenizer {

bool is_nonspacing_mark(char32_t c);  // category Mn
bool is_punctuation(char32_t c);      // category P, and all of ASCII's punctuation (P and S)
bool is_other(char32_t c);            // control, format, private use
bool is_word(char32_t c);             // \w in patterns: letters, marks, decimal digits, connectors, joiners
bool is_chinese(char32_t c);          // the ideograph blocks that BERT surrounds with spaces

}  // namespace doppler::tokenizer
