// SharedWeights: weights as a backend has laid them out, for all backends of one model in a process. Whoever
// comes first lays them out, whoever comes later takes the same, and they go when nobody uses them any more.
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
  // What is kept under the name, else what `make` returns: a Result<std::shared_ptr<const T>>. A name always
  // stands for the same type. From several threads the first makes it while the others wait.
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
