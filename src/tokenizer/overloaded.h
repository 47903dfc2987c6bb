// One callable of several, each for its type, for std::visit.
#pragma once

namespace doppler::tokenizer {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

}  // namespace doppler::tokenizer
