// WebEngine: one model, one sequence and at most one generation under way, called with JSON and answering in
// JSON. A generation goes on only while next() is called, so that its caller can do something else between
// two tokens, or stop calling.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/generate.h"
#include "engine/loaded.h"
#include "engine/session.h"

namespace doppler::web {

class WebEngine {
 public:
  WebEngine();
  ~WebEngine();

  // {"model": a path, "options": {...}} to what the model is and needs, without reading its weights.
  Result<Json> describe(const Json& request);
  // The same to the model's description; another model's before it is dropped. "watch" as watching.h has it.
  Result<Json> load(const Json& request);
  // {"text", "special"} to {"ids"}; {"ids"} to {"text"}; {"conversation": JSON as text} to {"text"}.
  Result<Json> tokenize(const Json& request);
  Result<Json> detokenize(const Json& request);
  Result<Json> render(const Json& request);
  // The model's description: every value with its source, memory, types, stages.
  Result<Json> inspect(const Json& request);
  // Computes a prompt, of which the cache keeps what it holds: {"text"}, {"ids"} or {"conversation"}, with
  // "options", "watch" as watching.h has it, and "look", a LookRequest at what is computed from here on. To
  // {"prompt_tokens"}. A generation under way is dropped.
  Result<Json> begin(const Json& request);
  // Generates for "ms" milliseconds, at least one token: {"text", "ids", "logprobs", "stages", "more"}; and
  // what was watched, if anything: {"said", "probes"}.
  Result<Json> next(const Json& request);
  // What was generated since begin(), and why it ended, whether or not it could go on.
  Result<Json> end(const Json& request);
  // Computes a prompt anew, as a whole, and keeps what "look", a LookRequest, asks for: {"ids", "stages"},
  // without the values. A generation under way is dropped.
  Result<Json> look(const Json& request);
  // {"index"} to that stage of the last look, with its values; {} forgets the look.
  Result<Json> looked(const Json& request);
  // Computes a prompt anew: {"ids", "logprobs"} of all its tokens but the first, with the "top" likeliest.
  Result<Json> score(const Json& request);

 private:
  struct Running;
  // The session is looked at no more.
  void drop_generation();
  Status need_model() const;
  Result<std::vector<TokenId>> prompt_ids(const Json& request) const;

  std::optional<Loaded> loaded_;
  GenerateOptions defaults_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Running> running_;
  std::vector<StageValues> looked_;
};

// The values stand in the answer as "floats": where they lie in the module's memory until the next call, and
// how many they are, which JavaScript makes an array of.
Json json_of(const StageValues& values);
Json without_values(const StageValues& values);
Json json_of(const TokenLogprobs& token);

}  // namespace doppler::web
