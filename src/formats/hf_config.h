// ConfigReader: typed values out of a model's JSON description, each able to say where it came from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace doppler {

// Where a value of a translated description stands in the original: a GGUF key, for example.
struct KeyOrigin {
  std::string name;    // as the original spells it: "llama.block_count"
  std::string source;  // for `doppler inspect`: "gguf: llama.block_count", "derived: ..."
};
using KeyOrigins = std::map<std::string, KeyOrigin, std::less<>>;  // by path: "rope_scaling.factor"

// One JSON object of a model's description, with the name of its file. Refers to the object: it must outlive
// the reader. A key may be a path into nested objects ("rope_parameters.rope_theta"); a key that itself
// contains the dots is preferred. Null counts as absent, as in Python's config.get().
//
// Getters: absent gives nothing; a value of another type gives kCorrupt with the file, the key and the value.
class ConfigReader {
 public:
  // `source` names the object in messages: "config.json", or "config.json: text_config" for a nested one.
  // `origins`, which must outlive the reader too, name the keys of an object that was translated.
  ConfigReader(const Json& object, std::string source, const KeyOrigins* origins = nullptr)
      : object_(&object), source_(std::move(source)), origins_(origins) {}
  ConfigReader(Json&& object, std::string source, const KeyOrigins* origins = nullptr) = delete;

  bool has(std::string_view key) const;  // present and not null

  // Whole, not negative; 8.0 counts as 8.
  Result<std::optional<std::uint64_t>> get_uint(std::string_view key) const;
  // Finite.
  Result<std::optional<double>> get_number(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  Result<std::optional<ConfigReader>> get_object(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> get_strings(std::string_view key) const;
  Result<std::optional<std::vector<std::uint64_t>>> get_uints(std::string_view key) const;
  Result<std::optional<std::vector<double>>> get_numbers(std::string_view key) const;

  // "config.json: rope_parameters.rope_theta"
  std::string where(std::string_view key) const;
  // The key as the file spells it: itself, if nothing was translated.
  std::string name(std::string_view key) const;
  const std::string& source() const { return source_; }
  bool translated() const { return origins_ != nullptr; }  // its keys are not the file's own
  const Json& json() const { return *object_; }

 private:
  const KeyOrigin* origin(std::string_view key) const;
  const Json* object_;
  std::string source_;
  const KeyOrigins* origins_ = nullptr;
  std::string path_;  // of the object inside the description, with a dot at its end
};

}  // namespace doppler
