// SharedWeights: weights as a backend has laid them out, for all backends of one model in a process. The
// first backend lays them out, later ones take the same, and they are freed with their last user.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "system/threads.h"

namespace doppler {

class SharedWeights {
 public:
  // The weights kept under the name, else the result of `make`, a Result<std::shared_ptr<const T>>. A name
  // always stands for the same type. Of several threads the first makes them while the others wait.
  template <typename T, typename Make>
  Result<std::shared_ptr<const T>> get(std::string_view name, const Make& make) {
    const system::Lock lock(mutex_);
    std::weak_ptr<const void>& kept = kept_[std::string(name)];
    if (std::shared_ptr<const void> there = kept.lock())
      return std::static_pointer_cast<const T>(std::move(there));
    DOPPLER_ASSIGN(std::shared_ptr<const T> made, make());
    kept = made;
    return made;
  }

 private:
  system::Mutex mutex_;
  std::map<std::string, std::weak_ptr<const void>> kept_;
};

}  // namespace doppler
