// doppler debug: a prompt and some decode steps with every stage measured, and the triage of the results.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "cli/auto_reference.h"
#include "cli/command.h"
#include "cli/debug_report.h"
#include "cli/looking.h"
#include "cli/models.h"
#include "cli/seed.h"
#include "diagnosis/faults/faults.h"
#include "diagnosis/look/debug_config.h"
#include "diagnosis/look/triage.h"
#include "engine/fallbacks.h"
#include "engine/sampler.h"
#include "engine/token_source.h"

namespace doppler::cli {
namespace {

struct DebugArguments {
  std::string model;
  PromptFlags prompt;
  LookFlags look;
  std::string layers, tokens, logit_ids, inject;
  std::vector<std::string> attention, logit_texts;
  Option layers_option;
};

// The model to run: as it is, or with an injected fault.
struct Patient {
  Loaded loaded;
  diagnosis::Subject subject;
  std::unique_ptr<Backend> injected;
  Backend& backend() const { return injected ? *injected : *loaded.backend; }
};

Result<std::unique_ptr<Patient>> admit(const DebugArguments& arguments, const Settings& settings) {
  auto patient = std::make_unique<Patient>();
  DOPPLER_ASSIGN(patient->loaded, load_with_bar(arguments.model, settings, 1));
  patient->subject = diagnosis::subject_of(patient->loaded, std::string(patient->loaded.backend->name()));
  if (arguments.inject.empty()) return patient;
  DOPPLER_ASSIGN(const diagnosis::FaultPlace place, diagnosis::inject(arguments.inject, patient->subject));
  say(Said::kNote, "The fault {} is put in{}.", arguments.inject,
      place.stage == Stage::kNone ? "" : "; it shows first at " + place.key());
  DOPPLER_ASSIGN(patient->injected, patient->subject.make(patient->subject.options));
  return patient;
}

Result<std::vector<int>> parse_layers(const std::string& text, std::size_t layers) {
  std::vector<int> all;
  if (text == "none") return std::vector<int>{-1};
  if (text.empty() || text == "all") return all;
  DOPPLER_ASSIGN(const std::vector<TokenId> numbers, parse_ids(text));
  for (const TokenId layer : numbers) {
    if (static_cast<std::size_t>(layer) >= layers)
      return fail(ErrorCode::kUsage, "There is no layer {} for --debug-layers; layers are 0 to {}.", layer,
                  layers - 1);
    all.push_back(layer);
  }
  return all;
}

// Which tokens' checkpoints to show: "0,-1". Negative: from the end of the prompt.
Result<std::vector<std::int64_t>> parse_tokens(const std::string& text, std::size_t prompt_tokens) {
  std::vector<std::int64_t> tokens;
  DOPPLER_ASSIGN(const diagnosis::Probe probe,
                 diagnosis::parse_probe("stage=layer_out,dims=0,tokens=" + (text.empty() ? "-1" : text)));
  const auto length = static_cast<std::int64_t>(prompt_tokens);
  for (diagnosis::ProbeRange range :
       probe.all_tokens ? std::vector<diagnosis::ProbeRange>{{0, length - 1}} : probe.tokens) {
    for (std::int64_t* end : {&range.first, &range.last}) {
      if (*end < 0) *end += length;
      if (*end < 0 || *end >= length) {
        return fail(ErrorCode::kUsage,
                    "There is no token {} for --tokens; the prompt's are 0 to {}, or -{} to -1.", *end,
                    length - 1, length);
      }
    }
    for (std::int64_t token = range.first; token <= range.last; ++token) tokens.push_back(token);
  }
  return tokens;
}

Result<std::vector<TokenId>> prompt_of(const DebugArguments& arguments, const Patient& patient,
                                       const Settings& settings) {
  const Loaded& loaded = patient.loaded;
  const bool given = !arguments.prompt.ids.empty() || arguments.prompt.text_option.given();
  const RecordedPrompt usual = usual_prompt(*loaded.model, loaded.tokenizer.has_value());
  if (!given && !loaded.tokenizer) return usual.ids;
  std::string text = usual.text;
  if (given) {
    DOPPLER_ASSIGN(text, prompt_text(arguments.prompt));
  }
  const bool raw = settings.raw;
  const bool plain = arguments.prompt.ids.empty() && arguments.prompt.system.empty() && (raw || !loaded.chat);
  return plain ? patient.subject.prompt_ids(text) : prompt_ids(loaded, arguments.prompt, text, raw);
}

// The token that the text is. Errors: kUsage for a text of several, with their pieces.
Result<TokenId> one_token(const Loaded& loaded, const std::string& text) {
  DOPPLER_TRY(need_tokenizer(loaded));
  DOPPLER_ASSIGN(const std::vector<TokenId> ids, loaded.tokenizer->encode(text, {.add_special = false}));
  if (ids.size() == 1) return ids[0];
  std::vector<std::string> pieces;
  for (const TokenId id : ids)
    pieces.push_back(fmt::format("\"{}\" ({})", printable(loaded.tokenizer->piece(id).value_or("?")), id));
  return fail(ErrorCode::kUsage, "The text \"{}\" for --logit-text is no token but {}: {}. Give one of them.",
              printable(text), ids.size(), join(pieces, ", "));
}

// The options of the run; `sampling` must outlive them.
Result<diagnosis::DebugOptions> read_options(const DebugArguments& arguments, const Patient& patient,
                                             const Settings& settings, GenerateOptions& sampling) {
  const ModelSpec& spec = patient.subject.spec;
  diagnosis::DebugOptions options;
  DOPPLER_ASSIGN(options.prompt_ids, prompt_of(arguments, patient, settings));
  DOPPLER_ASSIGN(options.watched_ids, parse_ids(arguments.logit_ids));
  for (const std::string& text : arguments.logit_texts) {
    DOPPLER_ASSIGN(const TokenId id, one_token(patient.loaded, text));
    options.watched_ids.push_back(id);
  }
  for (const std::string& text : arguments.attention) {
    DOPPLER_ASSIGN(const diagnosis::AttentionQuery query, diagnosis::parse_attention_query(text));
    options.attention.push_back(query);
  }
  DOPPLER_ASSIGN(sampling, default_options(patient.loaded.model->files));
  sampling.max_tokens = 16;
  settings.apply(sampling);
  // The same tokens each time unless asked otherwise, so that runs can be compared.
  if (!settings.given("runtime.inference.sampling.temperature")) sampling.temperature = 0;
  tell_idle_sampling(settings, sampling);
  DOPPLER_TRY(check_generate_options(sampling, spec.vocab_size));
  options.decode_steps = sampling.max_tokens;
  options.choose = [&](auto logits, auto history, std::size_t drawn) {
    return patient.subject.sample(sampling, masked_pad(spec), logits, history, drawn);
  };
  if (patient.loaded.tokenizer)
    options.known_ids = static_cast<std::uint32_t>(patient.loaded.tokenizer->vocab_size());
  return options;
}

// The options of the output.
Result<DebugView> read_view(const DebugArguments& arguments, const Patient& patient,
                            const SettingFlags& given, std::size_t prompt_tokens) {
  DebugView view{.model = arguments.model, .backend = std::string(patient.backend().name())};
  DOPPLER_ASSIGN(const diagnosis::DebugConfig config, diagnosis::read_debug_config(debug_settings(given)));
  if (arguments.layers_option.given()) {
    DOPPLER_ASSIGN(view.layers, parse_layers(arguments.layers, patient.subject.spec.layers.size()));
  } else {
    view.layers = config.debug_layers.value_or(std::vector<int>{-1});
  }
  DOPPLER_ASSIGN(view.tokens, parse_tokens(arguments.tokens, prompt_tokens));
  if (const auto& tokenizer = patient.loaded.tokenizer)
    view.piece = [&](TokenId id) { return tokenizer->piece(id).value_or(""); };
  return view;
}

Result<int> debug(const DebugArguments& arguments, const SettingFlags& given) {
  DOPPLER_ASSIGN(const auto patient, admit(arguments, given.flags));
  const auto& tokenizer = patient->loaded.tokenizer;
  const ModelSpec& spec = patient->subject.spec;
  GenerateOptions sampling;
  DOPPLER_ASSIGN(diagnosis::DebugOptions options, read_options(arguments, *patient, given.flags, sampling));
  DOPPLER_ASSIGN(DebugView view, read_view(arguments, *patient, given, options.prompt_ids.size()));
  DOPPLER_ASSIGN(const auto looking, Looking::create(arguments.look, given, spec, patient->backend(),
                                                     tokenizer ? &*tokenizer : nullptr));
  DOPPLER_TRY(looking->begin(options.prompt_ids.size(), true));
  options.besides = looking->tap();
  options.all_logits = !looking->probes().is_null();  // any of which a probe may ask for
  DOPPLER_ASSIGN(const diagnosis::DebugRun run,
                 diagnosis::debug_run(patient->backend(), spec, patient->subject.weights, options));
  diagnosis::TriageInput input{.run = run,
                               .spec = spec,
                               .model = arguments.model,
                               .prompt_is_text = tokenizer && arguments.prompt.ids.empty(),
                               .known_ids = options.known_ids};
  if (tokenizer) {
    DOPPLER_ASSIGN(input.text, tokenizer->decode(run.ids, true));
  }
  view.findings = diagnosis::triage(input);
  view.text = input.text;
  view.probes = looking->probes();
  view.colour = colours();
  if (given.json) {
    Json json = debug_json(run, view);
    json["fallbacks"] = fallbacks_json(patient->backend().fallbacks());
    DOPPLER_TRY(print_json(json));
  } else {
    DOPPLER_TRY(print(fit_lines(debug_text(run, view))));
  }
  looking->end();
  const bool sick = std::any_of(view.findings.begin(), view.findings.end(),
                                [](const diagnosis::Symptom& f) { return f.sick; });
  return sick ? kAnswerIsNo : kDone;
}

}  // namespace

Run add_debug(Command& command, SettingFlags& given) {
  auto arguments = std::make_shared<DebugArguments>();
  add_model(command, given, "MODEL", arguments->model, "a model folder or file").required();
  add_prompt_flags(command, arguments->prompt);
  arguments->prompt.text_option.describe("the text; left out: The color of the sky is");
  command.add_option("--system", arguments->prompt.system, "what the model is told before the conversation");
  arguments->layers_option =
      command.add_option("--debug-layers", arguments->layers,
                         "print every stage of these layers: 0,12,25, or all; none unless given");
  command.add_option(
      "--tokens", arguments->tokens,
      "the prompt's tokens whose values --debug-layers prints: 0,-1, 2:5 or all; -1 unless given");
  command.add_option("--logit-ids", arguments->logit_ids,
                     "show the logit and rank of these tokens: 138,3730");
  command
      .add_option("--logit-text", arguments->logit_texts,
                  "the same for the token that is this text, such as \" blue\"; may be repeated")
      .one_value_each();
  command
      .add_option("--attention", arguments->attention,
                  "show where heads look: LAYER, LAYER:HEAD or all; may be repeated")
      .one_value_each();
  std::vector<std::string> faults;
  for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) faults.emplace_back(fault.name);
  command
      .add_option("--inject", arguments->inject,
                  "put a fault in on purpose, to see what it looks like (doctor lists them)")
      .values(faults);
  add_look_flags(command, arguments->look);
  add_setting_flags(command, given, true, true, {"--speculate"});
  return [arguments, &given] { return debug(*arguments, given); };
}

}  // namespace doppler::cli
