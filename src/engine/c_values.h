// The values of doppler/c.h as those of doppler/doppler.h, and back.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "doppler/c.h"
#include "doppler/doppler.h"

struct doppler_cancel {
  doppler::CancelToken token;
};

namespace doppler::c {

inline std::string_view text_of(const char* text, size_t length) {
  if (text == nullptr) return {};
  return {text, length == DOPPLER_TEXT ? std::strlen(text) : length};
}
template <typename T>
std::span<const T> list_of(const T* items, size_t count) {
  return items == nullptr ? std::span<const T>() : std::span(items, count);
}
// Writes as much of the defaults as the caller's struct has room for.
template <typename T>
void begin_with(T* given, size_t struct_size, T defaults) {
  if (given == nullptr || struct_size < sizeof(given->struct_size)) return;
  defaults.struct_size = std::min(struct_size, sizeof(T));
  std::memcpy(static_cast<void*>(given), static_cast<const void*>(&defaults), defaults.struct_size);
}

doppler::LoadOptions load_options(const doppler_load_options* given);
doppler::GenerateOptions generate_options(const doppler_generate_options* given,
                                          const doppler::GenerateOptions& model);
doppler::LookRequest look_request(const doppler_look_request& given);
doppler::Callbacks callbacks(const doppler_callbacks* given);

// The public struct of one token's log probabilities, and the array that it points to.
struct Logprobs {
  explicit Logprobs(const doppler::TokenLogprobs& of) {
    for (const doppler::LikelyToken& token : of.top) top.push_back({token.id, token.logprob});
    shown = {of.id, of.logprob, top.data(), top.size()};
  }
  Logprobs(const Logprobs&) = delete;
  Logprobs& operator=(const Logprobs&) = delete;
  std::vector<doppler_likely> top;
  doppler_logprobs shown;
};

// The result points into `v`.
doppler_values c_values(const doppler::StageValues& v);

}  // namespace doppler::c
