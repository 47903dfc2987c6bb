// Json for headers that only pass it on: nlohmann's own headers take longer to compile than most of our
// files.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

namespace doppler {

using Json = nlohmann::json;

// A Json as a member of a type whose users mostly do not look inside it; null unless given. Copies are deep,
// and it always holds a value, except after it was moved from.
class JsonMember {
 public:
  JsonMember();
  JsonMember(Json value);  // NOLINT: implicit on purpose
  JsonMember(const JsonMember& other);
  JsonMember(JsonMember&& other) noexcept;
  JsonMember& operator=(JsonMember other) noexcept;
  ~JsonMember();

  Json& operator*() { return *value_; }
  const Json& operator*() const { return *value_; }
  Json* operator->() { return value_.get(); }
  const Json* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<Json> value_;
};

}  // namespace doppler
