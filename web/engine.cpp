#include "engine.h"

#include <chrono>

#include "backend/device_view.h"
#include "backend/gpu/web/imports.h"
#include "engine/info.h"
#include "engine/look.h"
#include "engine/messages.h"
#include "imports.h"
#include "options.h"
#include "system/memory.h"
#include "system/threads.h"
#include "watching.h"

namespace doppler::web {
namespace {

Result<std::string> text_of(const Json& request, const char* key) {
  const auto found = request.find(key);
  if (found != request.end() && found->is_string()) return found->get<std::string>();
  return fail(ErrorCode::kUsage, "The call has no text \"{}\". Give one.", key);
}

Result<std::vector<TokenId>> ids_of(const Json& request) {
  std::vector<TokenId> ids;
  const auto found = request.find("ids");
  bool good = found != request.end() && found->is_array();
  if (good) {
    for (const Json& id : *found) {
      good = good && id.is_number_integer() &&
             id.get<std::int64_t>() == static_cast<TokenId>(id.get<std::int64_t>());
      if (good) ids.push_back(id.get<TokenId>());
    }
  }
  if (good) return ids;
  return fail(ErrorCode::kUsage, "The call has no \"ids\" that are a list of token ids. Give one.");
}

// An object of the request; an empty one if it has none.
Json object_of(const Json& request, const char* key) {
  const auto found = request.find(key);
  return found == request.end() ? Json::object() : *found;
}

Json json_of(const ModelInfo& info) {
  Json facts = Json::array(), types = Json::array();
  for (const Fact& fact : info.facts)
    facts.push_back({{"name", fact.name}, {"value", fact.value}, {"because", fact.because}});
  for (const TensorTypeTotal& type : info.types)
    types.push_back({{"type", type.type}, {"tensors", type.tensors}, {"bytes", type.bytes}});
  const MemoryPlan& memory = info.memory;
  return {{"family", info.family},
          {"layers", info.layers},
          {"hidden", info.hidden},
          {"vocab_size", info.vocab_size},
          {"context_length", info.context_length},
          {"facts", std::move(facts)},
          {"types", std::move(types)},
          {"memory",
           {{"context", memory.context},
            {"weights", memory.weights},
            {"cache", memory.cache},
            {"activations", memory.activations},
            {"kv_type", memory.kv_type}}}};
}

Json json_of(const Timings& timings) {
  return {{"prompt_ms", timings.prompt_ms},
          {"decode_ms", timings.decode_ms},
          {"prompt_tokens", timings.prompt_tokens},
          {"cached_tokens", timings.cached_tokens},
          {"generated_tokens", timings.generated_tokens},
          {"guessed_tokens", timings.guessed_tokens},
          {"guessed_right", timings.guessed_right},
          {"prompt_tokens_per_second", timings.prompt_tokens_per_second()},
          {"decode_tokens_per_second", timings.decode_tokens_per_second()}};
}

// Why a model that may take a GPU does not.
std::string why_no_gpu() {
  char why[500];
  const std::size_t size = gpu::web::missing(why, sizeof(why));
  if (size == 0) return "This browser offers no GPU on this device.";
  return std::string(why, std::min(size, sizeof(why)));
}

}  // namespace

// A generation, and what it has made since it was last asked.
struct WebEngine::Running {
  Session& session;
  GenerateOptions options;
  std::string text = {};
  std::vector<TokenId> ids = {};
  Json logprobs = Json::array();
  std::vector<StageValues> seen = {}, told = {};  // since it was last asked, and before
  Callbacks callbacks = {};
  std::unique_ptr<WatchTaps> taps = {};
  std::unique_ptr<Watching> watching = {};
  std::optional<Generating> generating = {};

  Running(Session& of, const GenerateOptions& defaults) : session(of), options(defaults) {
    callbacks.on_text = [this](std::string_view piece) {
      text += piece;
      return true;
    };
    callbacks.on_token = [this](TokenId id, const TokenLogprobs* given) {
      ids.push_back(id);
      if (given != nullptr) logprobs.push_back(json_of(*given));
      return true;
    };
  }
  ~Running() {
    generating.reset();  // what it still computes, the taps see
    session.look(nullptr);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  // Lets look who watches, and what the request's "look" asks for.
  Status look(const Json& request, std::size_t prompt_tokens) {
    if (request.contains("look")) {
      Watch watch{.on_values = [this](const StageValues& values) { seen.push_back(values); }};
      DOPPLER_TRY(read_options(request["look"], watch.what));
      callbacks.watches.push_back(std::move(watch));
    }
    DOPPLER_ASSIGN(
        taps, WatchTaps::create(callbacks.watches, session.backend().plan(), prompt_tokens, watching->tap()));
    session.look(taps->get());
    return {};
  }
  // What was seen since it was last asked.
  Json stages() {
    told = std::exchange(seen, {});
    Json stages = Json::array();
    for (const StageValues& values : told) stages.push_back(json_of(values));
    return stages;
  }
};

WebEngine::WebEngine() = default;
WebEngine::~WebEngine() = default;

Status WebEngine::need_model() const {
  if (loaded_) return {};
  return fail(ErrorCode::kUsage, "No model is loaded. Load one first.");
}

Result<Json> WebEngine::describe(const Json& request) {
  DOPPLER_ASSIGN(const std::string path, text_of(request, "model"));
  LoadOptions options;
  DOPPLER_TRY(read_options(object_of(request, "options"), options));
  DOPPLER_ASSIGN(const DescribedModel described, describe_files(path, options));
  Json json = json_of(described.info);
  json["memory"]["module"] = system::peak_resident_bytes();
  return json;
}

Result<Json> WebEngine::load(const Json& request) {
  DOPPLER_ASSIGN(const std::string path, text_of(request, "model"));
  LoadOptions options;
  options.backend = "cpu";
  DOPPLER_TRY(read_options(object_of(request, "options"), options));
  options.on_progress = [](double share, std::string_view what) {
    progress(share, what.data(), what.size());
  };
  DOPPLER_TRY(configure_trace(object_of(request, "watch")));
  drop_generation();
  looked_.clear();
  session_.reset();
  loaded_.reset();
  DOPPLER_ASSIGN(Loaded loaded, load_all(path, options));
  DOPPLER_ASSIGN(defaults_, default_options(loaded.model->files));
  loaded_.emplace(std::move(loaded));
  if (options.backend == "auto" && loaded_->backend->device() == nullptr &&
      loaded_->backend->fallbacks().empty())
    loaded_->backend->note({"The model runs on the cpu, not on a GPU.", why_no_gpu()});
  session_ = std::make_unique<Session>(*loaded_->backend, 0);
  DOPPLER_ASSIGN(Json json, inspect(request));
  add_trace(json);
  return json;
}

void WebEngine::drop_generation() {
  running_.reset();
  if (session_) session_->look(nullptr);
}

Result<Json> WebEngine::inspect(const Json&) {
  DOPPLER_TRY(need_model());
  const Backend& backend = *loaded_->backend;
  DOPPLER_ASSIGN(const ModelInfo info, doppler::describe(*loaded_->model, backend.plan(), backend.options()));
  Json json = json_of(info);
  json["memory"]["module"] = system::peak_resident_bytes();
  json["backend"] = backend.name();
  json["context"] = backend.options().context;
  json["has_tokenizer"] = loaded_->tokenizer.has_value();
  json["has_chat_template"] = loaded_->chat.has_value();
  json["default_options"] = options_json(defaults_);
  DeviceView* const device = loaded_->backend->device();
  if (device != nullptr) {
    json["device"] = device->info().name;
    json["notes"] = Json::array();
  } else {
    const system::ProcessorShare share = system::processor_share();
    json["notes"] = {fmt::format("The engine computes with {} thread{}, because {}.", share.count,
                                 share.count == 1 ? "" : "s", share.why)};
  }
  for (const Fallback& fallback : backend.fallbacks())
    json["notes"].push_back(fallback.what + " " + fallback.why);
  json["stages"] = Json::array();
  for (const StageDescription& stage : describe_stages_of(backend.plan())) {
    json["stages"].push_back({{"name", stage.name},
                              {"meaning", stage.meaning},
                              {"width", stage.width},
                              {"heads", stage.heads},
                              {"layers", stage.layers}});
  }
  return json;
}

Result<Json> WebEngine::tokenize(const Json& request) {
  DOPPLER_TRY(need_model());
  DOPPLER_TRY(need_tokenizer(*loaded_));
  DOPPLER_ASSIGN(const std::string text, text_of(request, "text"));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids,
                 loaded_->tokenizer->encode(text, {.add_special = request.value("special", true)}));
  return Json{{"ids", ids}};
}

Result<Json> WebEngine::detokenize(const Json& request) {
  DOPPLER_TRY(need_model());
  DOPPLER_TRY(need_tokenizer(*loaded_));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, ids_of(request));
  DOPPLER_ASSIGN(const std::string text, loaded_->tokenizer->decode(ids));
  return Json{{"text", text}};
}

Result<Json> WebEngine::render(const Json& request) {
  DOPPLER_TRY(need_model());
  DOPPLER_ASSIGN(const std::string text, text_of(request, "conversation"));
  DOPPLER_ASSIGN(const chat::OrderedJson conversation, read_conversation(text));
  DOPPLER_ASSIGN(const std::string rendered, render_conversation(*loaded_, conversation));
  return Json{{"text", rendered}};
}

Result<std::vector<TokenId>> WebEngine::prompt_ids(const Json& request) const {
  if (request.contains("ids")) return ids_of(request);
  DOPPLER_TRY(need_tokenizer(*loaded_));
  if (!request.contains("conversation")) {
    DOPPLER_ASSIGN(const std::string text, text_of(request, "text"));
    return tokenize_prompt(*loaded_, text);
  }
  DOPPLER_ASSIGN(const std::string text, text_of(request, "conversation"));
  DOPPLER_ASSIGN(const chat::OrderedJson conversation, read_conversation(text));
  DOPPLER_ASSIGN(const std::string rendered, render_conversation(*loaded_, conversation));
  return loaded_->tokenizer->encode(rendered, {.add_special = false});
}

Result<Json> WebEngine::begin(const Json& request) {
  DOPPLER_TRY(need_model());
  drop_generation();
  DOPPLER_ASSIGN(const std::vector<TokenId> prompt, prompt_ids(request));
  auto running = std::make_unique<Running>(*session_, defaults_);
  DOPPLER_TRY(read_options(object_of(request, "options"), running->options));
  DOPPLER_ASSIGN(running->watching, Watching::create(object_of(request, "watch"), *loaded_));
  DOPPLER_TRY(running->watching->begin(prompt.size()));
  DOPPLER_TRY(running->look(request, prompt.size()));
  // What looks dies with the generation, so an error here must leave nobody looking.
  running_ = std::move(running);
  Result<Generating> generating =
      Generating::begin(*session_, loaded_->model->spec, loaded_->tokenizer ? &*loaded_->tokenizer : nullptr,
                        prompt, running_->options, running_->callbacks);
  if (!generating) {
    drop_generation();
    return std::unexpected(generating.error());
  }
  running_->generating.emplace(std::move(*generating));
  return Json{{"prompt_tokens", prompt.size()}};
}

Result<Json> WebEngine::next(const Json& request) {
  using Clock = std::chrono::steady_clock;
  if (!running_) return fail(ErrorCode::kUsage, "No generation is under way. Begin one first.");
  Running& running = *running_;
  const auto until = Clock::now() + std::chrono::duration<double, std::milli>(request.value("ms", 0.0));
  bool more = true;
  do {
    DOPPLER_ASSIGN(more, running.generating->next());
  } while (more && Clock::now() < until);
  Json json = {{"text", std::exchange(running.text, {})},
               {"ids", std::exchange(running.ids, {})},
               {"logprobs", std::exchange(running.logprobs, Json::array())},
               {"stages", running.stages()},
               {"more", more}};
  running.watching->add_to(json);
  return json;
}

Result<Json> WebEngine::end(const Json&) {
  if (!running_) return fail(ErrorCode::kUsage, "No generation is under way. Begin one first.");
  const auto running = std::move(running_);
  const Result<Generation> ended = running->generating->end();
  session_->look(nullptr);
  DOPPLER_ASSIGN(const Generation made, ended);
  Json logprobs = Json::array();
  for (const TokenLogprobs& token : made.logprobs) logprobs.push_back(json_of(token));
  Json json = {{"rest", running->text},  // what was held back as a possible stop string
               {"text", made.text},
               {"ids", made.ids},
               {"prompt_ids", made.prompt_ids},
               {"logprobs", std::move(logprobs)},
               {"stop_reason", stop_reason_name(made.stop_reason)},
               {"timings", json_of(made.timings)}};
  running->watching->add_to(json);
  running->watching->end(json);
  return json;
}

}  // namespace doppler::web
