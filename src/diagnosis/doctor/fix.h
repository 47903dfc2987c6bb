// A repair that a program can make in a model's files, beside the sentence that tells people: what --fix
// writes, and what --json shows.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/tensor.h"

namespace doppler::diagnosis {

struct Fix {
  enum class Kind : std::uint8_t {
    kSetting,  // a value of the model's description
    kTensor,   // a tensor's values, rows or type
    kRename,   // a tensor holds what another should
    kDrop,     // a tensor that the file should not have
  };
  Kind kind = Kind::kSetting;
  // kSetting: a path as in ModelSpec::sources ("norm.eps") until the doctor replaces it by the file's own
  // key; else the tensor's name.
  std::string target;
  // kSetting: as JSON, for "….scaling" an object of config.json's words; kTensor: what becomes of it
  // ("columns 0 2 1 3"); kRename: the tensor that holds it.
  std::string value;
  std::string file = {};  // kSetting: "config.json", "gguf"; filled in with the key
  // kTensor: the rows as they should be, and the type to store them in, if it is another.
  std::function<Status(std::uint64_t row, std::span<float> values)> read = {};
  std::optional<DType> type = {};
  Shape shape = {};  // kTensor: of a tensor that is added where the file lacks it; else empty

  bool same_as(const Fix& other) const {
    return kind == other.kind && target == other.target && value == other.value;
  }
};

}  // namespace doppler::diagnosis
