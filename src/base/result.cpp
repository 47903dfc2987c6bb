#include "base/result.h"

namespace doppler {

std::unexpected<Error> fail_with(ErrorCode code, fmt::string_view format, fmt::format_args args) {
  return std::unexpected(Error{code, fmt::vformat(format, args)});
}

}  // namespace doppler
