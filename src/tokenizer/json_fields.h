// Reading typed members of JSON objects from files that may hold anything.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"

namespace doppler::tokenizer {

// One JSON object with a name for messages ("The normalizer Replace of tokenizer.json").
// A member that is absent or null gives the fallback; one of another type is an error that names it
// (kCorrupt).
class JsonFields {
 public:
  JsonFields(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  Result<bool> boolean(const char* key, bool fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return wrong(key, "true or false");
    return value->get<bool>();
  }
  Result<std::string> text(const char* key, std::string_view fallback) const {
    const Json* value = find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) return wrong(key, "a string");
    return value->get<std::string>();
  }
  Result<std::string> required_text(const char* key) const {
    if (find(key) == nullptr) return wrong(key, "a string");
    return text(key, "");
  }
  // A whole number in [0, limit].
  Result<std::int64_t> number(const char* key, std::int64_t fallback, std::int64_t limit) const {
    const Json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_number_integer() || value->get<std::int64_t>() < 0 || value->get<std::int64_t>() > limit ||
        (value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(limit))) {
      return wrong(key, fmt::format("a whole number from 0 to {}", limit));
    }
    return value->get<std::int64_t>();
  }
  // The array, or null if it is absent.
  Result<const Json*> array(const char* key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_array()) return wrong(key, "a list");
    return value;
  }

  std::unexpected<Error> wrong(std::string_view key, std::string_view wanted) const {
    return fail(ErrorCode::kCorrupt, "{} needs {} to be {}. Correct the file or download it again.", what_,
                key, wanted);
  }
  const std::string& what() const { return what_; }

 private:
  const Json& object_;
  std::string what_;
};

}  // namespace doppler::tokenizer
