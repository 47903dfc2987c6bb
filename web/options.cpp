#include "options.h"

#include <cmath>
#include <concepts>
#include <limits>
#include <tuple>

#include "base/text.h"

namespace doppler::web {
namespace {

bool read_value(const Json& from, bool& to) {
  if (!from.is_boolean()) return false;
  to = from.get<bool>();
  return true;
}
bool read_value(const Json& from, std::string& to) {
  if (!from.is_string()) return false;
  to = from.get<std::string>();
  return true;
}
bool read_value(const Json& from, double& to) {
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
bool read_value(const Json& from, std::vector<std::string>& to) {
  if (!from.is_array()) return false;
  to.clear();
  for (const Json& item : from) {
    if (!read_value(item, to.emplace_back())) return false;
  }
  return true;
}
bool read_value(const Json& from, std::map<TokenId, double>& to) {
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

constexpr auto kLoadRows = std::tuple{
    Row{"backend", &LoadOptions::backend},       Row{"context", &LoadOptions::context},
    Row{"cut_tokens", &LoadOptions::cut_tokens}, Row{"family", &LoadOptions::family},
    Row{"kv_type", &LoadOptions::kv_type},       Row{"exact", &LoadOptions::exact},
    Row{"cpu_target", &LoadOptions::cpu_target}, Row{"threads", &LoadOptions::threads},
};

constexpr auto kGenerateRows = std::tuple{
    Row{"max_tokens", &GenerateOptions::max_tokens},
    Row{"temperature", &GenerateOptions::temperature},
    Row{"top_k", &GenerateOptions::top_k},
    Row{"top_p", &GenerateOptions::top_p},
    Row{"min_p", &GenerateOptions::min_p},
    Row{"repeat_penalty", &GenerateOptions::repeat_penalty},
    Row{"presence_penalty", &GenerateOptions::presence_penalty},
    Row{"frequency_penalty", &GenerateOptions::frequency_penalty},
    Row{"penalty_window", &GenerateOptions::penalty_window},
    Row{"logit_bias", &GenerateOptions::logit_bias},
    Row{"seed", &GenerateOptions::seed},
    Row{"stop", &GenerateOptions::stop},
    Row{"ignore_eos", &GenerateOptions::ignore_eos},
    Row{"logprobs", &GenerateOptions::logprobs},
};

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

Json value_json(const std::map<TokenId, double>& biases) {
  Json object = Json::object();
  for (const auto& [id, bias] : biases) object[std::to_string(id)] = bias;
  return object;
}
template <typename T>
Json value_json(const T& value) {
  return value;
}

}  // namespace

Status read_options(const Json& json, LoadOptions& options) {
  return read_rows(json, kLoadRows, options);
}

Status read_options(const Json& json, GenerateOptions& options) {
  return read_rows(json, kGenerateRows, options);
}

Json options_json(const GenerateOptions& options) {
  Json object = Json::object();
  std::apply([&](const auto&... row) { ((object[row.name] = value_json(options.*row.member)), ...); },
             kGenerateRows);
  return object;
}

}  // namespace doppler::web
