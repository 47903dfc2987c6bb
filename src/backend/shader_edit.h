// ShaderEdit: a fault in a kernel's text.
#pragma once

#include <string>

namespace doppler {

// A kernel's text made wrong on purpose: every `from` in the embedded file is replaced by `to`.
struct ShaderEdit {
  std::string file, from, to;
};

}  // namespace doppler
