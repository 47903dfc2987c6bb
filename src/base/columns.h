// How wide text is on a terminal, in columns. The data are those of the Unicode Character Database as
// utf8proc ships it.
#pragma once

#include <cstddef>
#include <string_view>

namespace doppler {

// 2 for wide characters such as those of Chinese and most emoji, 0 for marks and controls, else 1.
unsigned columns_of(char32_t c);
// Characters that are drawn as one, such as a letter and its marks, count once.
std::size_t columns_of(std::string_view text);

}  // namespace doppler
