#include "engine/c_values.h"

namespace doppler::c {
namespace {

static_assert(doppler::GenerateOptions::kMostSpeculated == 16 &&
                  doppler::GenerateOptions::kSpeculateAuto == -1,
              "doppler/c.h tells the numbers");
static_assert(doppler::GpuOptions::kMostSubmitTokens == 64, "doppler/c.h tells the number");

std::string string_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

// The caller's struct in this version's layout, whatever size it was compiled with: members that it lacks
// keep what `init` gives them.
template <typename T, typename Init, typename... Rest>
T whole(const T& given, Init init, Rest... rest) {
  T made;
  init(&made, sizeof(made), rest...);
  std::memcpy(static_cast<void*>(&made), static_cast<const void*>(&given),
              std::min(given.struct_size, sizeof(T)));
  return made;
}

doppler_statistics c_statistics(const doppler::Statistics& s) {
  return {.count = s.count,
          .nan = s.nan,
          .inf = s.inf,
          .zeros = s.zeros,
          .negatives = s.negatives,
          .max_abs_index = s.max_abs_index,
          .first_bad = s.first_bad,
          .min = s.min,
          .max = s.max,
          .max_abs = s.max_abs,
          .mean = s.mean,
          .rms = s.rms};
}

}  // namespace

doppler_values c_values(const doppler::StageValues& v) {
  return {.stage = v.stage.c_str(),
          .layer = v.layer,
          .tokens = v.tokens.data(),
          .token_count = v.tokens.size(),
          .width = v.width,
          .heads = v.heads,
          .columns = v.columns(),
          .dims = v.dims.empty() ? nullptr : v.dims.data(),
          .values = v.values.empty() ? nullptr : v.values.data(),
          .statistics = c_statistics(v.statistics)};
}

doppler::LoadOptions load_options(const doppler_load_options* given) {
  doppler::LoadOptions options;
  if (given == nullptr) return options;
  const doppler_load_options o = whole(*given, doppler_load_options_init);
  if (o.backend != nullptr) options.backend = o.backend;
  options.threads = o.threads;
  options.context = o.context;
  options.sequences = o.sequences;
  options.cache_positions = o.cache_positions;
  options.family = string_of(o.family);
  options.kv_type = string_of(o.kv_type);
  options.exact = o.exact;
  options.cpu_target = string_of(o.cpu_target);
  options.gpu.adapter = string_of(o.gpu_adapter);
  options.gpu.submit_tokens = o.submit_tokens;
  if (o.on_progress != nullptr) {
    options.on_progress = [call = o.on_progress, user = o.user](double share, std::string_view what) {
      call(user, share, std::string(what).c_str());
    };
  }
  return options;
}

doppler::GenerateOptions generate_options(const doppler_generate_options* given,
                                          const doppler::GenerateOptions& model) {
  if (given == nullptr) return model;
  const doppler_generate_options o = whole(*given, doppler_generate_options_init, nullptr);
  doppler::GenerateOptions options{.max_tokens = o.max_tokens,
                                   .temperature = o.temperature,
                                   .top_k = o.top_k,
                                   .top_p = o.top_p,
                                   .min_p = o.min_p,
                                   .repeat_penalty = o.repeat_penalty,
                                   .presence_penalty = o.presence_penalty,
                                   .frequency_penalty = o.frequency_penalty,
                                   .penalty_window = o.penalty_window,
                                   .logit_bias = {},
                                   .seed = o.seed,
                                   .stop = {},
                                   .ignore_eos = o.ignore_eos,
                                   .logprobs = o.logprobs,
                                   .speculate = o.speculate};
  for (const doppler_bias& bias : list_of(o.logit_bias, o.logit_bias_count))
    options.logit_bias[bias.id] = bias.bias;
  for (const char* stop : list_of(o.stop, o.stop_count)) options.stop.push_back(string_of(stop));
  return options;
}

doppler::LookRequest look_request(const doppler_look_request& given) {
  const doppler_look_request o = whole(given, doppler_look_request_init);
  doppler::LookRequest request;
  for (const char* stage : list_of(o.stages, o.stage_count)) request.stages.push_back(string_of(stage));
  const auto layers = list_of(o.layers, o.layer_count);
  const auto tokens = list_of(o.tokens, o.token_count);
  const auto dims = list_of(o.dims, o.dim_count);
  request.layers.assign(layers.begin(), layers.end());
  request.tokens.assign(tokens.begin(), tokens.end());
  request.dims.assign(dims.begin(), dims.end());
  request.values = o.values;
  request.statistics = o.statistics;
  request.most_bytes = o.most_bytes;
  return request;
}

doppler::Callbacks callbacks(const doppler_callbacks* given) {
  doppler::Callbacks out;
  if (given == nullptr) return out;
  const doppler_callbacks o = whole(*given, doppler_callbacks_init);
  if (o.on_text != nullptr) {
    out.on_text = [call = o.on_text, user = o.user](std::string_view text) {
      return call(user, std::string(text).c_str(), text.size());
    };
  }
  if (o.on_token != nullptr) {
    out.on_token = [call = o.on_token, user = o.user](doppler_token id,
                                                      const doppler::TokenLogprobs* logprobs) {
      if (logprobs == nullptr) return call(user, id, nullptr);
      const Logprobs shown(*logprobs);
      return call(user, id, &shown.shown);
    };
  }
  if (o.watch != nullptr && o.on_values != nullptr) {
    out.watches.push_back(
        {.what = look_request(*o.watch),
         .on_values = [call = o.on_values, user = o.user](const doppler::StageValues& values) {
           const doppler_values shown = c_values(values);
           call(user, &shown);
         }});
  }
  if (o.cancel != nullptr) out.cancel = o.cancel->token;
  return out;
}

}  // namespace doppler::c
