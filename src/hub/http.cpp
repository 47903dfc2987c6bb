#include "hub/http.h"

namespace doppler::hub {

std::string_view HttpAnswer::header(std::string_view name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string_view() : found->second;
}

}  // namespace doppler::hub
