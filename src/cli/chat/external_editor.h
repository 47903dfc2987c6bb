// A text in the user's own editor.
#pragma once

#include <string>

#include "base/result.h"

namespace doppler::cli {

// The text as the user leaves it in $VISUAL or $EDITOR, without the newline that editors put at its end.
// Errors: kNotFound without either, kIo when the editor fails or the text cannot be written or read.
Result<std::string> edited(const std::string& text);

}  // namespace doppler::cli
