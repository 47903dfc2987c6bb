#include "diagnosis/compare/text_side.h"

#include "base/json.h"
#include "engine/messages.h"
#include "tokenizer/gguf_tokenizer.h"

namespace doppler::diagnosis {
namespace {

// What generation_config.json says itself, without transformers' defaults.
std::map<std::string, double, std::less<>> sampling_of(const ModelFiles& files) {
  std::map<std::string, double, std::less<>> said;
  if (!files.generation_config) return said;
  const Json& config = **files.generation_config;
  for (const char* key : kSamplingKeys) {
    if (!config.is_object() || !config.contains(key)) continue;
    const Json& value = config[key];
    if (value.is_boolean()) said[key] = value.get<bool>() ? 1 : 0;
    if (value.is_number()) said[key] = value.get<double>();
  }
  return said;
}

}  // namespace

TextSide text_side_of(const Loaded& loaded) {
  TextSide side;
  const auto& gguf = loaded.model->files.gguf;
  side.gguf = gguf && tokenizer::has_gguf_tokenizer(*gguf);
  side.stop_ids.assign(loaded.model->spec.eos_ids.begin(), loaded.model->spec.eos_ids.end());
  side.pad_id = loaded.model->spec.pad_id;
  side.sampling = sampling_of(loaded.model->files);
  const Loaded* parts = &loaded;
  if (loaded.tokenizer) {
    side.tokenizer = &*loaded.tokenizer;
    side.prompt_ids = [parts](std::string_view text) { return tokenize_prompt(*parts, text); };
  }
  if (loaded.chat) {
    side.chat_template = loaded.chat->source();
    side.render = [parts](const chat::OrderedJson& conversation, const chat::RenderOptions& options) {
      return render_conversation(*parts, conversation, options);
    };
  }
  return side;
}

}  // namespace doppler::diagnosis
