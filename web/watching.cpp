#include "watching.h"

#include "base/log.h"

namespace doppler::web {
namespace {

// All lines of a prompt of some hundred tokens in every category; beyond it the oldest are lost, as in every
// ring, and a page that wants more asks for fewer categories.
constexpr std::size_t kMostLines = 100'000;

Result<std::vector<std::string>> texts_of(const Json& watch, const char* key) {
  std::vector<std::string> texts;
  const auto found = watch.find(key);
  if (found == watch.end()) return texts;
  bool good = found->is_array();
  for (std::size_t i = 0; good && i < found->size(); ++i) {
    good = (*found)[i].is_string();
    if (good) texts.push_back((*found)[i].get<std::string>());
  }
  if (good) return texts;
  return fail(ErrorCode::kUsage, "What is watched has \"{}\" that is no list of texts. Give one.", key);
}

Result<std::vector<int>> layers_of(const Json& watch) {
  std::vector<int> layers;
  const auto found = watch.find("trace_layers");
  if (found == watch.end()) return layers;
  bool good = found->is_array();
  for (std::size_t i = 0; good && i < found->size(); ++i) {
    good = (*found)[i].is_number_unsigned() && (*found)[i].get<std::uint64_t>() < INT32_MAX;
    if (good) layers.push_back((*found)[i].get<int>());
  }
  if (good) return layers;
  return fail(ErrorCode::kUsage,
              "What is watched has \"trace_layers\" that are no list of layers. Give one.");
}

LogOptions log_options;

// The lines of the log since the last time: its ring is emptied by making it small.
std::vector<LogRecord> take_lines() {
  std::vector<LogRecord> lines = log_history(kMostLines);
  LogOptions none = log_options;
  none.history = 0;
  (void)configure_log(none);  // no file is named, so that nothing can fail
  (void)configure_log(log_options);
  return lines;
}

void add_said(Json& answer, Json lines) {
  if (lines.empty()) return;
  Json& said = answer["said"];
  if (!said.is_array()) said = Json::array();
  for (Json& line : lines) said.push_back(std::move(line));
}

}  // namespace

Status configure_trace(const Json& watch) {
  if (!watch.is_object()) return fail(ErrorCode::kUsage, "What is watched is no object. Give one, or none.");
  LogOptions options;
  DOPPLER_ASSIGN(const std::vector<std::string> categories, texts_of(watch, "trace"));
  DOPPLER_ASSIGN(options.categories, parse_categories(categories));
  DOPPLER_ASSIGN(options.trace_layers, layers_of(watch));
  const auto steps = watch.find("trace_steps");
  if (steps != watch.end() && !steps->is_number_unsigned())
    return fail(ErrorCode::kUsage, "What is watched has \"trace_steps\" that are no number. Give one.");
  if (steps != watch.end()) options.trace_steps = steps->get<std::uint64_t>();
  options.history = kMostLines;
  options.screen = options.categories == 0;  // what is traced goes with the answers
  log_options = options;
  return configure_log(options);
}

void add_trace(Json& answer) {
  if (traced_categories() == 0) return;
  Json lines = Json::array();
  for (const LogRecord& record : take_lines()) lines.push_back(format_line(record));
  add_said(answer, std::move(lines));
}

Result<std::unique_ptr<Watching>> Watching::create(const Json& watch, const Loaded& loaded) {
  DOPPLER_TRY(configure_trace(watch));
  DOPPLER_ASSIGN(const std::vector<std::string> texts, texts_of(watch, "probes"));
  std::unique_ptr<Watching> watching(new Watching);
  std::vector<diagnosis::Probe> probes;
  for (const std::string& text : texts) {
    DOPPLER_ASSIGN(diagnosis::Probe probe, diagnosis::parse_probe(text));
    probes.push_back(std::move(probe));
  }
  const Backend& backend = *loaded.backend;
  if (!probes.empty()) {
    DOPPLER_ASSIGN(watching->probes_,
                   diagnosis::ProbeTap::create(std::move(probes), backend.plan(), backend.options().context,
                                               [to = watching.get()](const diagnosis::ProbeHit& hit) {
                                                 to->lines_.push_back(diagnosis::probe_line(hit));
                                                 to->hits_.push_back(diagnosis::probe_json(hit));
                                               }));
    watching->taps_.add(&*watching->probes_);
  }
  if (diagnosis::traces_taps()) {
    const tokenizer::Tokenizer* const tokenizer = loaded.tokenizer ? &*loaded.tokenizer : nullptr;
    watching->trace_.emplace(loaded.model->spec, backend.plan(), [tokenizer](std::int32_t id) {
      const auto piece = tokenizer != nullptr ? tokenizer->piece(id) : std::string();
      return piece ? *piece : std::string();
    });
    watching->taps_.add(&*watching->trace_);
  }
  return watching;
}

Status Watching::begin(std::size_t prompt_tokens) {
  if (trace_) trace_->begin(prompt_tokens);
  return probes_ ? probes_->begin(prompt_tokens, /*all_logits=*/false) : Status();
}

void Watching::add_to(Json& answer) {
  add_trace(answer);
  add_said(answer, std::exchange(lines_, Json::array()));
  if (!hits_.empty()) answer["probes"] = std::exchange(hits_, Json::array());
}

void Watching::end(Json& answer) const {
  if (!probes_) return;
  Json lines = Json::array();
  for (std::string& sentence : probes_->silent()) lines.push_back(std::move(sentence));
  add_said(answer, std::move(lines));
}

}  // namespace doppler::web
