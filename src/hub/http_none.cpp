// A build with -DDOPPLER_HUB=OFF: everything but the network.
#include "hub/http.h"

namespace doppler::hub {

Result<std::unique_ptr<Http>> make_http(const HttpLimits&) {
  return fail(
      ErrorCode::kUnsupported,
      "This build of Doppler cannot download, because it was made with -DDOPPLER_HUB=OFF. Build it with "
      "-DDOPPLER_HUB=ON, or download the model by other means and give its path.");
}

}  // namespace doppler::hub
