#include "options.h"

#include "option_rows.h"

namespace doppler::web {
namespace {

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
    Row{"speculate", &GenerateOptions::speculate},
};

constexpr auto kLookRows = std::tuple{
    Row{"stages", &LookRequest::stages},         Row{"layers", &LookRequest::layers},
    Row{"tokens", &LookRequest::tokens},         Row{"dims", &LookRequest::dims},
    Row{"values", &LookRequest::values},         Row{"statistics", &LookRequest::statistics},
    Row{"most_bytes", &LookRequest::most_bytes},
};

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

Status read_options(const Json& json, LookRequest& request) {
  return read_rows(json, kLookRows, request);
}

Json options_json(const GenerateOptions& options) {
  Json object = Json::object();
  std::apply([&](const auto&... row) { ((object[row.name] = value_json(options.*row.member)), ...); },
             kGenerateRows);
  return object;
}

}  // namespace doppler::web
