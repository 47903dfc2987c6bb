// The C interface: doppler/c.h over doppler/doppler.h. A handle keeps the C++ result and hands out C structs
// with pointers into it.
#include "doppler/c.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "base/result.h"
#include "doppler/doppler.h"
#include "engine/c_values.h"

using doppler::CancelToken;
using doppler::Engine;
using doppler::Error;
using doppler::ErrorCode;
using doppler::Result;
using doppler::Sequence;
using doppler::Status;
using doppler::c::begin_with;
using doppler::c::c_values;
using doppler::c::callbacks;
using doppler::c::generate_options;
using doppler::c::list_of;
using doppler::c::load_options;
using doppler::c::Logprobs;
using doppler::c::look_request;
using doppler::c::text_of;

struct doppler_engine {
  Engine engine;
};
struct doppler_sequence {
  Sequence sequence;
  doppler::GenerateOptions defaults;  // those that the model recommends
};

struct doppler_generation {
  doppler::Generation generation;
  std::deque<Logprobs> logprobs;  // a deque: elements never move
};
struct doppler_look {
  std::vector<doppler::StageValues> values;
  std::vector<doppler_values> shown;
};
struct doppler_scores {
  std::deque<Logprobs> scores;
};
struct doppler_info {
  doppler::ModelInfo info;
  std::string backend, choice;
  std::vector<std::string> notes;
  std::vector<doppler::StageDescription> stages;
  std::vector<doppler_fact> facts_shown;
  std::vector<doppler_stage> stages_shown;
};

namespace {

thread_local std::string last_error;

doppler_status c_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return DOPPLER_USAGE;
    case ErrorCode::kNotFound:
      return DOPPLER_NOT_FOUND;
    case ErrorCode::kCorrupt:
      return DOPPLER_CORRUPT;
    case ErrorCode::kUnsupported:
      return DOPPLER_UNSUPPORTED;
    case ErrorCode::kMismatch:
      return DOPPLER_MISMATCH;
    case ErrorCode::kLimit:
      return DOPPLER_LIMIT;
    case ErrorCode::kIo:
      return DOPPLER_IO;
    case ErrorCode::kInternal:
      break;
  }
  return DOPPLER_INTERNAL;
}

doppler_status failed(const Error& error) {
  last_error = error.message;
  return c_status(error.code);
}
doppler_status no_handle(const char* what) {
  return failed({ErrorCode::kUsage, fmt::format("The {} is NULL. Give one.", what)});
}
doppler_status done(const Status& status) {
  return status ? DOPPLER_OK : failed(status.error());
}
// Turns a result into a handle made by `make`, or an error into a status.
template <typename T, typename Handle, typename Make>
doppler_status hand_out(Result<T> result, Handle** to, const Make& make) {
  if (!result) return failed(result.error());
  *to = make(std::move(*result));
  return DOPPLER_OK;
}

// --- results, from C++ to C

template <typename T>
doppler_status fill(std::span<const T> all, T* buffer, size_t capacity, size_t* count) {
  if (count != nullptr) *count = all.size();
  if (capacity == 0) return DOPPLER_OK;
  if (capacity < all.size() || buffer == nullptr) {
    return failed({ErrorCode::kLimit,
                   fmt::format("The buffer has room for {}, but the result has {}.", capacity, all.size())});
  }
  std::copy(all.begin(), all.end(), buffer);
  return DOPPLER_OK;
}

doppler_status fill_text(const Result<std::string>& text, char* buffer, size_t capacity, size_t* length) {
  if (!text) return failed(text.error());
  if (length != nullptr) *length = text->size();
  const std::span<const char> with_zero(text->c_str(), text->size() + 1);
  return fill(with_zero, buffer, capacity, nullptr);
}

doppler_generation* make_generation(doppler::Generation generation) {
  auto* made = new doppler_generation{std::move(generation), {}};
  for (const doppler::TokenLogprobs& logprobs : made->generation.logprobs)
    made->logprobs.emplace_back(logprobs);
  return made;
}

doppler_status hand_out_sequence(Result<Sequence> sequence, const doppler::GenerateOptions& defaults,
                                 doppler_sequence** to) {
  return hand_out(std::move(sequence), to,
                  [&](Sequence made) { return new doppler_sequence{std::move(made), defaults}; });
}

// `generate` is called with a copy of the sequence, because the handle may be freed in a callback.
template <typename Generate>
doppler_status hand_out_generation(doppler_sequence* sequence, const doppler_generate_options* options,
                                   const doppler_callbacks* given, doppler_generation** to,
                                   const Generate& generate) {
  if (sequence == nullptr) return no_handle("sequence");
  if (to == nullptr) return no_handle("place for the generation");
  Sequence own = sequence->sequence;
  return hand_out(generate(own, generate_options(options, sequence->defaults), callbacks(given)), to,
                  make_generation);
}

// The caller's token, or one that nobody cancels.
CancelToken token_of(const doppler_cancel* cancel) {
  return cancel != nullptr ? cancel->token : CancelToken();
}

doppler_engine* make_engine(Engine engine) {
  return new doppler_engine{std::move(engine)};
}

}  // namespace

const char* doppler_last_error(void) {
  return last_error.c_str();
}

// --- loading

void doppler_load_options_init(doppler_load_options* options, size_t struct_size) {
  doppler_load_options defaults = {};
  defaults.submit_tokens = doppler::GpuOptions().submit_tokens;
  begin_with(options, struct_size, defaults);
}

doppler_status doppler_load(const char* model, const doppler_load_options* options, doppler_engine** engine) {
  if (model == nullptr) return no_handle("path of the model");
  if (engine == nullptr) return no_handle("place for the engine");
  return hand_out(Engine::load(model, load_options(options)), engine, make_engine);
}

doppler_status doppler_engine_another(const doppler_engine* engine, const doppler_load_options* options,
                                      doppler_engine** another) {
  if (engine == nullptr) return no_handle("engine");
  if (another == nullptr) return no_handle("place for the engine");
  return hand_out(engine->engine.another(load_options(options)), another, make_engine);
}

void doppler_engine_free(doppler_engine* engine) {
  delete engine;
}

// --- texts and tokens

doppler_status doppler_tokenize(const doppler_engine* engine, const char* text, size_t length, bool special,
                                doppler_token* ids, size_t capacity, size_t* count) {
  if (engine == nullptr) return no_handle("engine");
  const auto tokens = engine->engine.tokenize(text_of(text, length), special);
  return tokens ? fill(std::span(std::as_const(*tokens)), ids, capacity, count) : failed(tokens.error());
}

doppler_status doppler_detokenize(const doppler_engine* engine, const doppler_token* ids, size_t count,
                                  char* text, size_t capacity, size_t* length) {
  if (engine == nullptr) return no_handle("engine");
  return fill_text(engine->engine.detokenize(list_of(ids, count)), text, capacity, length);
}

doppler_status doppler_render_chat(const doppler_engine* engine, const char* conversation, size_t length,
                                   char* text, size_t capacity, size_t* text_length) {
  if (engine == nullptr) return no_handle("engine");
  return fill_text(engine->engine.render_chat_json(text_of(conversation, length)), text, capacity,
                   text_length);
}

// --- cancelling

doppler_cancel* doppler_cancel_new(void) {
  return new doppler_cancel;
}
void doppler_cancel_now(const doppler_cancel* cancel) {
  if (cancel != nullptr) cancel->token.cancel();
}
void doppler_cancel_reset(const doppler_cancel* cancel) {
  if (cancel != nullptr) cancel->token.reset();
}
bool doppler_cancelled(const doppler_cancel* cancel) {
  return cancel != nullptr && cancel->token.cancelled();
}
void doppler_cancel_free(doppler_cancel* cancel) {
  delete cancel;
}

// --- looking inside

void doppler_look_request_init(doppler_look_request* request, size_t struct_size) {
  doppler_look_request defaults = {};
  defaults.values = true;
  defaults.most_bytes = doppler::LookRequest().most_bytes;
  begin_with(request, struct_size, defaults);
}

doppler_status doppler_look_at(doppler_engine* engine, const doppler_token* prompt, size_t count,
                               const doppler_look_request* request, const doppler_cancel* cancel,
                               doppler_look** look) {
  if (engine == nullptr) return no_handle("engine");
  if (request == nullptr) return no_handle("request");
  if (look == nullptr) return no_handle("place for the look");
  const CancelToken token = token_of(cancel);
  return hand_out(engine->engine.look(list_of(prompt, count), look_request(*request), &token), look,
                  [](std::vector<doppler::StageValues> values) {
                    auto* made = new doppler_look{std::move(values), {}};
                    for (const doppler::StageValues& v : made->values) made->shown.push_back(c_values(v));
                    return made;
                  });
}
size_t doppler_look_count(const doppler_look* look) {
  return look != nullptr ? look->shown.size() : 0;
}
const doppler_values* doppler_look_get(const doppler_look* look, size_t index) {
  return index < doppler_look_count(look) ? &look->shown[index] : nullptr;
}
void doppler_look_free(doppler_look* look) {
  delete look;
}

doppler_status doppler_score(doppler_engine* engine, const doppler_token* ids, size_t count, uint32_t top,
                             const doppler_cancel* cancel, doppler_scores** scores) {
  if (engine == nullptr) return no_handle("engine");
  if (scores == nullptr) return no_handle("place for the scores");
  const CancelToken token = token_of(cancel);
  return hand_out(engine->engine.score(list_of(ids, count), top, &token), scores,
                  [](const std::vector<doppler::TokenLogprobs>& all) {
                    auto* made = new doppler_scores;
                    for (const doppler::TokenLogprobs& one : all) made->scores.emplace_back(one);
                    return made;
                  });
}
size_t doppler_scores_count(const doppler_scores* scores) {
  return scores != nullptr ? scores->scores.size() : 0;
}
const doppler_logprobs* doppler_scores_get(const doppler_scores* scores, size_t index) {
  return index < doppler_scores_count(scores) ? &scores->scores[index].shown : nullptr;
}
void doppler_scores_free(doppler_scores* scores) {
  delete scores;
}

// --- generating

void doppler_generate_options_init(doppler_generate_options* options, size_t struct_size,
                                   const doppler_engine* engine) {
  const doppler::GenerateOptions o =
      engine != nullptr ? engine->engine.default_options() : doppler::GenerateOptions();
  doppler_generate_options defaults = {};
  defaults.max_tokens = o.max_tokens;
  defaults.temperature = o.temperature;
  defaults.top_k = o.top_k;
  defaults.top_p = o.top_p;
  defaults.min_p = o.min_p;
  defaults.repeat_penalty = o.repeat_penalty;
  defaults.presence_penalty = o.presence_penalty;
  defaults.frequency_penalty = o.frequency_penalty;
  defaults.penalty_window = o.penalty_window;
  defaults.seed = o.seed;
  defaults.ignore_eos = o.ignore_eos;
  defaults.logprobs = o.logprobs;
  defaults.speculate = o.speculate;
  begin_with(options, struct_size, defaults);
}

void doppler_callbacks_init(doppler_callbacks* given, size_t struct_size) {
  begin_with(given, struct_size, {});
}

doppler_status doppler_generate_text(doppler_sequence* sequence, const char* prompt, size_t length,
                                     const doppler_generate_options* options, const doppler_callbacks* given,
                                     doppler_generation** generation) {
  return hand_out_generation(sequence, options, given, generation,
                             [&](Sequence& own, const auto& how, const auto& calls) {
                               return own.generate(text_of(prompt, length), how, calls);
                             });
}

doppler_status doppler_generate_tokens(doppler_sequence* sequence, const doppler_token* prompt, size_t count,
                                       const doppler_generate_options* options,
                                       const doppler_callbacks* given, doppler_generation** generation) {
  return hand_out_generation(sequence, options, given, generation,
                             [&](Sequence& own, const auto& how, const auto& calls) {
                               return own.generate(list_of(prompt, count), how, calls);
                             });
}

doppler_status doppler_generate_chat(doppler_sequence* sequence, const char* conversation, size_t length,
                                     const doppler_generate_options* options, const doppler_callbacks* given,
                                     doppler_generation** generation) {
  return hand_out_generation(sequence, options, given, generation,
                             [&](Sequence& own, const auto& how, const auto& calls) {
                               return own.chat_json(text_of(conversation, length), how, calls);
                             });
}

doppler_status doppler_resume(doppler_sequence* sequence, const doppler_generate_options* options,
                              const doppler_callbacks* given, doppler_generation** generation) {
  return hand_out_generation(
      sequence, options, given, generation,
      [](Sequence& own, const auto& how, const auto& calls) { return own.resume(how, calls); });
}

const char* doppler_generation_text(const doppler_generation* generation, size_t* length) {
  if (length != nullptr) *length = generation != nullptr ? generation->generation.text.size() : 0;
  return generation != nullptr ? generation->generation.text.c_str() : "";
}
const doppler_token* doppler_generation_ids(const doppler_generation* generation, size_t* count) {
  if (count != nullptr) *count = generation != nullptr ? generation->generation.ids.size() : 0;
  return generation != nullptr ? generation->generation.ids.data() : nullptr;
}
const doppler_token* doppler_generation_prompt_ids(const doppler_generation* generation, size_t* count) {
  if (count != nullptr) *count = generation != nullptr ? generation->generation.prompt_ids.size() : 0;
  return generation != nullptr ? generation->generation.prompt_ids.data() : nullptr;
}
const doppler_logprobs* doppler_generation_logprobs(const doppler_generation* generation, size_t index) {
  if (generation == nullptr || index >= generation->logprobs.size()) return nullptr;
  return &generation->logprobs[index].shown;
}
doppler_stop_reason doppler_generation_stop_reason(const doppler_generation* generation) {
  if (generation == nullptr) return DOPPLER_STOP_CANCELLED;
  switch (generation->generation.stop_reason) {
    case doppler::StopReason::kEos:
      return DOPPLER_STOP_EOS;
    case doppler::StopReason::kStopString:
      return DOPPLER_STOP_STRING;
    case doppler::StopReason::kMaxTokens:
      return DOPPLER_STOP_MAX_TOKENS;
    case doppler::StopReason::kContextEnd:
      return DOPPLER_STOP_CONTEXT_END;
    case doppler::StopReason::kCancelled:
      break;
  }
  return DOPPLER_STOP_CANCELLED;
}
doppler_timings doppler_generation_timings(const doppler_generation* generation) {
  if (generation == nullptr) return {};
  const doppler::Timings& t = generation->generation.timings;
  return {t.load_ms, t.prompt_ms, t.decode_ms, t.prompt_tokens, t.cached_tokens, t.generated_tokens};
}
uint64_t doppler_generation_guessed(const doppler_generation* generation, uint64_t* right) {
  const doppler::Timings t = generation == nullptr ? doppler::Timings() : generation->generation.timings;
  if (right != nullptr) *right = t.guessed_right;
  return t.guessed_tokens;
}
void doppler_generation_free(doppler_generation* generation) {
  delete generation;
}

// --- sequences

doppler_status doppler_engine_sequence(const doppler_engine* engine, doppler_sequence** sequence) {
  if (engine == nullptr) return no_handle("engine");
  if (sequence == nullptr) return no_handle("place for the sequence");
  return hand_out_sequence(engine->engine.sequence(), engine->engine.default_options(), sequence);
}
doppler_status doppler_sequence_new(const doppler_engine* engine, doppler_sequence** sequence) {
  if (engine == nullptr) return no_handle("engine");
  if (sequence == nullptr) return no_handle("place for the sequence");
  return hand_out_sequence(engine->engine.new_sequence(), engine->engine.default_options(), sequence);
}
void doppler_sequence_free(doppler_sequence* sequence) {
  delete sequence;
}
doppler_status doppler_sequence_tokens(const doppler_sequence* sequence, doppler_token* ids, size_t capacity,
                                       size_t* count) {
  if (sequence == nullptr) return no_handle("sequence");
  const std::vector<doppler_token> all = sequence->sequence.tokens();
  return fill(std::span(all), ids, capacity, count);
}
doppler_status doppler_sequence_append(doppler_sequence* sequence, const doppler_token* ids, size_t count,
                                       const doppler_cancel* cancel) {
  if (sequence == nullptr) return no_handle("sequence");
  const CancelToken token = token_of(cancel);
  return done(sequence->sequence.append(list_of(ids, count), &token));
}
doppler_status doppler_sequence_cut(doppler_sequence* sequence, size_t length, size_t* recomputed) {
  if (sequence == nullptr) return no_handle("sequence");
  const Result<std::size_t> again = sequence->sequence.cut(length);
  if (!again) return failed(again.error());
  if (recomputed != nullptr) *recomputed = *again;
  return DOPPLER_OK;
}
doppler_status doppler_sequence_fork(const doppler_sequence* sequence, doppler_sequence** fork) {
  if (sequence == nullptr) return no_handle("sequence");
  if (fork == nullptr) return no_handle("place for the sequence");
  return hand_out_sequence(sequence->sequence.fork(), sequence->defaults, fork);
}
doppler_status doppler_sequence_save(const doppler_sequence* sequence, const char* file) {
  if (sequence == nullptr) return no_handle("sequence");
  return file == nullptr ? no_handle("path of the file") : done(sequence->sequence.save(file));
}
doppler_status doppler_sequence_load(doppler_sequence* sequence, const char* file) {
  if (sequence == nullptr) return no_handle("sequence");
  return file == nullptr ? no_handle("path of the file") : done(sequence->sequence.load(file));
}

// --- the model's description

doppler_status doppler_engine_info(const doppler_engine* engine, doppler_info** info) {
  if (engine == nullptr) return no_handle("engine");
  if (info == nullptr) return no_handle("place for the information");
  auto* made = new doppler_info{.info = engine->engine.info(),
                                .backend = std::string(engine->engine.backend_name()),
                                .choice = std::string(engine->engine.backend_choice()),
                                .notes = engine->engine.notes(),
                                .stages = engine->engine.stages(),
                                .facts_shown = {},
                                .stages_shown = {}};
  for (const doppler::Fact& fact : made->info.facts)
    made->facts_shown.push_back({fact.name.c_str(), fact.value.c_str(), fact.because.c_str()});
  for (const doppler::StageDescription& stage : made->stages) {
    made->stages_shown.push_back({stage.name.c_str(), stage.meaning.c_str(), stage.width, stage.heads,
                                  stage.layers.data(), stage.layers.size()});
  }
  *info = made;
  return DOPPLER_OK;
}
const char* doppler_info_family(const doppler_info* info) {
  return info != nullptr ? info->info.family.c_str() : "";
}
const char* doppler_info_backend(const doppler_info* info) {
  return info != nullptr ? info->backend.c_str() : "";
}
const char* doppler_info_backend_choice(const doppler_info* info) {
  return info != nullptr ? info->choice.c_str() : "";
}
uint32_t doppler_info_vocab_size(const doppler_info* info) {
  return info != nullptr ? info->info.vocab_size : 0;
}
doppler_memory doppler_info_memory(const doppler_info* info) {
  if (info == nullptr) return {};
  const doppler::MemoryPlan& m = info->info.memory;
  return {m.context, m.sequences, m.weights, m.cache, m.activations, m.kv_type.c_str()};
}
const doppler_fact* doppler_info_fact(const doppler_info* info, size_t index) {
  return info != nullptr && index < info->facts_shown.size() ? &info->facts_shown[index] : nullptr;
}
const doppler_stage* doppler_info_stage(const doppler_info* info, size_t index) {
  return info != nullptr && index < info->stages_shown.size() ? &info->stages_shown[index] : nullptr;
}
const char* doppler_info_note(const doppler_info* info, size_t index) {
  return info != nullptr && index < info->notes.size() ? info->notes[index].c_str() : nullptr;
}
void doppler_info_free(doppler_info* info) {
  delete info;
}
