// Reading options by a table: a tuple of rows, each with a name and the member that it sets.
#pragma once

#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "doppler/types.h"

namespace doppler::web {

inline bool read_value(const Json& from, bool& to) {
  if (!from.is_boolean()) return false;
  to = from.get<bool>();
  return true;
}
inline bool read_value(const Json& from, std::string& to) {
  if (!from.is_string()) return false;
  to = from.get<std::string>();
  return true;
}
inline bool read_value(const Json& from, double& to) {
  if (!from.is_number()) return false;
  to = from.get<double>();
  return true;
}
// JavaScript's numbers are doubles: whole ones up to 2^53, which a text may also spell as 3.0.
template <std::integral T>
bool read_value(const Json& from, T& to) {
  double value = 0;
  if (!read_value(from, value) || value != std::floor(value)) return false;
  constexpr double kMostWhole = 9007199254740992.0;
  const double most = std::min(kMostWhole, static_cast<double>(std::numeric_limits<T>::max()));
  if (value < static_cast<double>(std::numeric_limits<T>::min()) || value > most) return false;
  to = static_cast<T>(value);
  return true;
}
template <typename T>
bool read_value(const Json& from, std::vector<T>& to) {
  if (!from.is_array()) return false;
  to.clear();
  for (const Json& item : from) {
    if (!read_value(item, to.emplace_back())) return false;
  }
  return true;
}
inline bool read_value(const Json& from, std::map<TokenId, double>& to) {
  if (!from.is_object()) return false;
  to.clear();
  for (const auto& [key, bias] : from.items()) {
    const Json id = Json::parse(key, nullptr, false);
    TokenId token = 0;
    if (!read_value(id, token) || !read_value(bias, to[token])) return false;
  }
  return true;
}

template <typename Options, typename T>
struct Row {
  const char* name;
  T Options::* member;
};

// A key that no row names is an error, so that nothing is ignored in silence.
template <typename Options, typename Rows>
Status read_rows(const Json& json, const Rows& rows, Options& options) {
  if (!json.is_object()) return fail(ErrorCode::kUsage, "The options are no object. Give one, or none.");
  for (const auto& [key, value] : json.items()) {
    bool known = false, good = false;
    std::string names;
    std::apply(
        [&](const auto&... row) {
          ((key == row.name ? (known = true, good = read_value(value, options.*row.member)) : false), ...);
          ((names += names.empty() ? row.name : std::string(", ") + row.name), ...);
        },
        rows);
    if (!known) {
      return fail(ErrorCode::kUsage, "There is no option {}. The options are {}.", printable(key), names);
    }
    if (!good) {
      return fail(ErrorCode::kUsage, "The option {} cannot be {}. Give a value of its type and range.", key,
                  printable(dump_json(value), 80));
    }
  }
  return {};
}

}  // namespace doppler::web
