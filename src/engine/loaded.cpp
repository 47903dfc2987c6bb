#include "engine/loaded.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "backend/shared_weights.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/trace.h"
#include "formats/hf_config.h"
#include "system/files.h"
#include "system/threads.h"
#include "tokenizer/gguf_tokenizer.h"

namespace doppler {
Error no_tokenizer(const ModelFiles& files) {
  constexpr std::string_view kFiles = "tokenizer.json nor tokenizer.model";
  constexpr std::string_view kAdvice = "so text cannot become tokens. Add one, or give --prompt-ids.";
  const std::string folder = files.folder.string();
  return {ErrorCode::kNotFound,
          files.gguf ? fmt::format("The GGUF file has no tokenizer, and the folder {} has neither {}, {}",
                                   folder, kFiles, kAdvice)
                     : fmt::format("The folder {} has neither {}, {}", folder, kFiles, kAdvice)};
}

Status need_tokenizer(const Loaded& loaded) {
  if (loaded.tokenizer) return {};
  return std::unexpected(no_tokenizer(loaded.model->files));
}

std::uint64_t choose_context(std::uint64_t asked, const ModelSpec& spec) {
  if (asked != 0) return asked;
  std::uint64_t context = std::min<std::uint64_t>(4096, spec.context_length);
  for (const LayerSpec& layer : spec.layers) {
    const RopeScaling& scaling = layer.attention.rope.scaling;
    if (scaling.kind == RopeScalingKind::kLongRope && scaling.original_context >= 1)
      context = std::min(context, static_cast<std::uint64_t>(scaling.original_context));
  }
  return context;
}

Result<std::optional<tokenizer::Tokenizer>> load_tokenizer_if_any(const ModelFiles& files) {
  if (files.gguf && tokenizer::has_gguf_tokenizer(*files.gguf))
    return tokenizer::load_gguf_tokenizer(*files.gguf, "The GGUF file");
  if (!system::exists(files.folder / "tokenizer.json") && !system::exists(files.folder / "tokenizer.model"))
    return std::nullopt;
  DOPPLER_ASSIGN(tokenizer::Tokenizer tokenizer, tokenizer::Tokenizer::load(files.folder));
  return std::optional(std::move(tokenizer));
}

void add_tokenizer_eos(const std::optional<tokenizer::Tokenizer>& tokenizer, Model& model) {
  ModelSpec& spec = model.spec;
  if (!model.files.gguf || !spec.eos_ids.empty() || !tokenizer || !tokenizer->eos().id) return;
  const TokenId id = *tokenizer->eos().id;
  if (static_cast<std::uint32_t>(id) >= spec.vocab_size) return;
  spec.eos_ids.push_back(id);
  spec.sources.push_back({"eos_token_id", fmt::format("{}", id),
                          fmt::format("the tokenizer in {}: {}", model.files.folder.string(),
                                      printable(tokenizer->eos().text))});
}

Result<Model> load_model_for_description(const std::filesystem::path& path, std::string_view family) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(path, usual_opening()));
  DOPPLER_ASSIGN(Model model, bind_model(std::move(files), family));
  if (model.files.gguf && model.spec.eos_ids.empty())
    add_tokenizer_eos(load_tokenizer_if_any(model.files).value_or(std::nullopt), model);
  return model;
}

Result<chat::ChatTemplate> load_chat_template(const ModelFiles& files, const chat::TemplateChoice& choice) {
  if (files.gguf) {
    auto own = chat::load_chat_template(*files.gguf, choice);
    if (own || own.error().code != ErrorCode::kNotFound) return own;
    auto beside = chat::load_chat_template(files.folder, choice);
    const bool absent = !beside && beside.error().code == ErrorCode::kNotFound;
    return absent ? std::move(own) : std::move(beside);
  }
  return chat::load_chat_template(files.folder, choice);
}

Result<std::optional<chat::ChatTemplate>> load_chat_template_if_any(const ModelFiles& files) {
  auto chat = load_chat_template(files);
  if (!chat && chat.error().code == ErrorCode::kNotFound) return std::nullopt;
  if (!chat) return std::unexpected(std::move(chat).error());
  return std::optional(std::move(*chat));
}

Result<GenerateOptions> default_options(const ModelFiles& files) {
  GenerateOptions options;
  if (!files.generation_config) return options;
  const ConfigReader reader(**files.generation_config, "generation_config.json");
  DOPPLER_ASSIGN(const std::optional<bool> sample, reader.get_bool("do_sample"));
  DOPPLER_ASSIGN(const std::optional<double> repeat, reader.get_number("repetition_penalty"));
  options.repeat_penalty = repeat.value_or(1);
  if (!sample.value_or(false)) return options;
  DOPPLER_ASSIGN(const std::optional<double> temperature, reader.get_number("temperature"));
  DOPPLER_ASSIGN(const std::optional<std::uint64_t> top_k, reader.get_uint("top_k"));
  DOPPLER_ASSIGN(const std::optional<double> top_p, reader.get_number("top_p"));
  DOPPLER_ASSIGN(const std::optional<double> min_p, reader.get_number("min_p"));
  options.temperature = temperature.value_or(1);
  options.top_k = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(top_k.value_or(50), UINT32_MAX));  // 50: transformers' own default
  options.top_p = top_p.value_or(1);
  options.min_p = min_p.value_or(0);
  return options;
}

Result<BackendOptions> backend_options(const LoadOptions& options, const ModelSpec& spec,
                                       std::uint32_t slots) {
  BackendOptions backend;
  backend.threads = std::min<std::size_t>(options.threads, system::processor_share().count);
  backend.context = choose_context(options.context, spec);
  backend.cut_tokens = options.cut_tokens;
  backend.slots = slots;
  backend.cache_positions = options.cache_positions;
  backend.exact = options.exact;
  backend.cpu_target = options.cpu_target;
  backend.gpu = options.gpu;
  if (options.gpu.submit_tokens == 0 || options.gpu.submit_tokens > GpuOptions::kMostSubmitTokens) {
    return fail(ErrorCode::kUsage,
                "The {} tokens of a submission are out of range; there must be between 1 and {}.",
                options.gpu.submit_tokens, GpuOptions::kMostSubmitTokens);
  }
  if (!options.kv_type.empty()) {
    backend.kv_type = kv_type_from_name(options.kv_type);
    if (!backend.kv_type) {
      std::vector<std::string> known;
      for (const KvTypeInfo& info : all_kv_types()) known.emplace_back(info.name);
      return fail(ErrorCode::kUsage, "There is no KV cache of the type {}. Types are {}.",
                  printable(options.kv_type), join(known, ", "));
    }
  }
  return backend;
}

namespace {

using Clock = std::chrono::steady_clock;

// Seconds between calls.
class Laps {
 public:
  double next() {
    const auto before = std::exchange(last_, Clock::now());
    return std::chrono::duration<double>(last_ - before).count();
  }

 private:
  Clock::time_point last_ = Clock::now();
};

void tell_progress(const LoadOptions& options, double share, std::string_view what) {
  if (options.on_progress) options.on_progress(share, what);
}

// Files, tokenizer and template.
Status load_texts(ModelFiles files, const LoadOptions& options, Loaded& loaded, LoadSeconds& seconds) {
  Laps laps;
  DOPPLER_ASSIGN(Model model, bind_model(std::move(files), options.family));
  const auto owned = std::make_shared<Model>(std::move(model));
  loaded.model = owned;
  seconds.weights = laps.next();
  tell_progress(options, 0.3, "tokenizer");
  DOPPLER_ASSIGN(loaded.tokenizer, load_tokenizer_if_any(owned->files));
  add_tokenizer_eos(loaded.tokenizer, *owned);
  if (loaded.tokenizer && loaded.tokenizer->vocab_size() > owned->spec.vocab_size) {
    return fail(ErrorCode::kMismatch,
                "The tokenizer has ids up to {}, but the model's vocabulary has {} tokens. Check that they "
                "belong together.",
                loaded.tokenizer->vocab_size() - 1, owned->spec.vocab_size);
  }
  tell_progress(options, 0.7, "chat template");
  DOPPLER_ASSIGN(loaded.chat, load_chat_template_if_any(owned->files));
  seconds.texts = laps.next();
  return {};
}

// Says so where fewer threads run than the options ask for.
void note_fewer_threads(const LoadOptions& options, Backend& backend) {
  const system::ProcessorShare share = system::processor_share();
  if (options.threads <= share.count || backend.device() != nullptr) return;
  backend.note({fmt::format("The model runs on {} of the {} threads that were asked for.", share.count,
                            options.threads),
                fmt::format("More would wait for each other: {}.", share.why)});
}

Status load_backend(const LoadOptions& options, std::uint32_t slots, Loaded& loaded, LoadSeconds& seconds) {
  Laps laps;
  tell_progress(options, 0.8, "memory");
  DOPPLER_ASSIGN(BackendOptions backend, backend_options(options, loaded.model->spec, slots));
  backend.shared = loaded.shared;
  DOPPLER_ASSIGN(loaded.backend, make_backend(options.backend, loaded.model->spec, loaded.model->weights,
                                              backend, &loaded.choice));
  note_fewer_threads(options, *loaded.backend);
  seconds.backend = laps.next();
  tell_progress(options, 1, "ready");
  trace_loaded(loaded, seconds);
  return {};
}

}  // namespace

Result<Loaded> load_all(const std::filesystem::path& path, const LoadOptions& options, std::uint32_t slots) {
  tell_progress(options, 0, "weights");
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(path, usual_opening()));
  return load_files(std::move(files), options, slots);
}

Result<Loaded> load_files(ModelFiles files, const LoadOptions& options, std::uint32_t slots) {
  LoadSeconds seconds;
  Loaded loaded;
  loaded.shared = std::make_shared<SharedWeights>();
  DOPPLER_TRY(load_texts(std::move(files), options, loaded, seconds));
  DOPPLER_TRY(load_backend(options, slots, loaded, seconds));
  return loaded;
}

Result<Loaded> load_another(const Loaded& loaded, const LoadOptions& options, std::uint32_t slots) {
  LoadSeconds seconds;
  Loaded another;
  another.model = loaded.model;
  another.tokenizer = loaded.tokenizer;
  another.chat = loaded.chat;
  another.shared = loaded.shared;
  DOPPLER_TRY(load_backend(options, slots, another, seconds));
  return another;
}

Result<std::vector<TokenId>> tokenize_prompt(const Loaded& loaded, std::string_view text) {
  DOPPLER_TRY(need_tokenizer(loaded));
  return loaded.tokenizer->encode(text);
}

Result<chat::OrderedJson> template_variables(const ModelFiles& files,
                                             const std::optional<tokenizer::Tokenizer>& tokenizer) {
  chat::OrderedJson variables = {
      {"tools", nullptr}, {"documents", nullptr}, {"add_generation_prompt", false}};
  if (tokenizer) {  // the texts that a SentencePiece model or a GGUF file itself has
    const std::pair<const char*, const tokenizer::SpecialToken&> tokens[] = {{"bos_token", tokenizer->bos()},
                                                                             {"eos_token", tokenizer->eos()},
                                                                             {"unk_token", tokenizer->unk()},
                                                                             {"pad_token", tokenizer->pad()}};
    for (const auto& [name, token] : tokens) {
      if (!token.text.empty()) variables[name] = token.text;
    }
  }
  if (files.gguf && tokenizer::has_gguf_tokenizer(*files.gguf)) return variables;
  DOPPLER_ASSIGN(const chat::OrderedJson named, chat::read_special_tokens(files.folder));
  for (const auto& [name, text] : named.items()) variables[name] = text;
  return variables;
}

}  // namespace doppler
