// How many faults the doctor finds: every fault of diagnosis/faults/faults.h that applies, put into small
// models of three families on three backends, one diagnosis each; and diagnoses of healthy models, which must
// find nothing.
//
// The truth is the fixture's recording; with --truth none there is none, and with --truth source it is the
// model as it was before the fault. Both take the demo model, because the fixtures are random: without a
// recording their loss says nothing.
//
// A fault of the description that changes no value of a recording is not counted there, and said.
//
// Located: the first finding names the stage and layer where the fault first shows. Named: it names the cause
// that the fault's row gives. The doctor sees the model and the recording, but not which fault was put in.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <deque>
#include <map>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/screen.h"
#include "convert/convert.h"
#include "convert/mix.h"
#include "diagnosis/compare/recording.h"
#include "diagnosis/compare/stage_rows.h"
#include "diagnosis/compare/thinned.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/faults/faults.h"
#include "engine/loaded.h"

namespace doppler {
namespace {

using Clock = std::chrono::steady_clock;

struct Patient {
  std::string name, family, type;  // "gemma3 Q4_1", "gemma3", "Q4_1"
  Loaded loaded;
  diagnosis::Recording recording;  // what the doctor sees: thinned, if that is asked for
};

struct Outcome {
  std::string fault, kind, patient, family, backend;
  std::string place, cause;   // expected; empty for a healthy model
  std::string said_at, said;  // of the first finding
  std::string explanation;
  std::string thinning;  // of the recording; "whole": none
  std::size_t findings = 0;
  bool located = false, named = false;
  double seconds = 0;
};

struct Options {
  std::filesystem::path models, demo, scratch;
  std::vector<std::string> faults, families, backends, from, thin = {"whole"};
  std::string truth = "recording";  // or "none", "source"
  double seconds = 30;
  double most_minutes = 0;  // of the whole run; 0: as long as it takes
  bool healthy = true, sick = true, quiet = false;
  std::filesystem::path json, markdown;
};

bool chosen(const std::vector<std::string>& wanted, std::string_view name) {
  return wanted.empty() || std::ranges::find(wanted, name) != wanted.end();
}

LoadOptions load_options() {
  LoadOptions options;
  options.backend = "reference";
  options.context = 128;
  return options;
}

Result<Patient> open_patient(const std::filesystem::path& model, const std::filesystem::path& recording,
                             const std::string& family, const std::string& type) {
  Patient patient{.name = type == "BF16" ? family : family + " " + type,
                  .family = family,
                  .type = type,
                  .loaded = {},
                  .recording = {}};
  DOPPLER_ASSIGN(patient.loaded, load_all(model, load_options()));
  DOPPLER_ASSIGN(patient.recording, diagnosis::open_recording(recording));
  return patient;
}

// The family in a quantised type, with a recording by a healthy reference backend as the truth.
Result<Patient> quantised(const Options& options, const std::string& family, const std::string& type) {
  const auto file = options.scratch / fmt::format("{}.{}.gguf", family, type);
  const auto truth = options.scratch / fmt::format("{}.{}.safetensors", family, type);
  DOPPLER_ASSIGN(const convert::Mix* mix, convert::find_mix(type));
  DOPPLER_TRY(convert::convert_model(options.models / family, *mix, file, {.with_tokenizer = false}));
  DOPPLER_ASSIGN(Loaded loaded, load_all(file, load_options()));
  DOPPLER_ASSIGN(const diagnosis::Recording right,
                 diagnosis::open_recording(options.models / family / "reference.safetensors"));
  DOPPLER_TRY(
      diagnosis::record_run(*loaded.backend, {.prompt_ids = right.prompt_ids, .decode_steps = 8}, truth));
  return open_patient(file, truth, family, type);
}

diagnosis::Subject subject_for(const Patient& patient, const std::string& backend) {
  diagnosis::Subject subject = diagnosis::subject_of(patient.loaded, backend);
  subject.options.kv_type.reset();  // each backend's own choice
  subject.options.gpu_setup.tune = false;
  return subject;
}

// Whether a recording has anything that the fault changes: a stage at its place or after it.
bool shows_in(const diagnosis::Recording& recording, const diagnosis::FaultPlace& place) {
  const auto order = [](Stage stage, int layer) {
    const bool begins = stage == Stage::kEmbedOut;
    return std::pair(begins ? -1 : layer >= 0 ? layer : INT32_MAX, static_cast<int>(stage));
  };
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    for (const Stage stage : diagnosis::parts_of(name)) {
      if (order(stage, diagnosis::layer_of(name)) >= order(place.stage, place.layer)) return true;
    }
  }
  return false;
}

// All logits of the recording's prompt and steps, by the reference backend.
Result<std::vector<float>> logits_of(const diagnosis::Subject& subject,
                                     const diagnosis::Recording& recording) {
  BackendOptions options = subject.options;
  options.change_plan = subject.alter_plan;
  options.shared.reset();
  DOPPLER_ASSIGN(const auto backend, make_backend("reference", subject.spec, subject.weights, options));
  std::vector<float> all;
  for (const auto& ids : {recording.prompt_ids, recording.greedy_ids}) {
    if (ids.empty()) continue;
    DOPPLER_ASSIGN(const auto logits, diagnosis::feed(*backend, 0, ids, 0, true, nullptr));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Whether anything comes out otherwise with the fault. What changes no value that was recorded, as a limit
// that none of them reaches, no one can find by them.
bool changes_nothing(const Patient& patient, const std::string& backend, const diagnosis::Subject& sick) {
  const auto right = logits_of(subject_for(patient, backend), patient.recording);
  const auto wrong = logits_of(sick, patient.recording);
  return right && wrong && *right == *wrong;
}

// The place itself, or the ops that the recording cannot tell from it; where only one layer is recorded, that
// layer's own part of a fault that all layers have.
bool is_at(const diagnosis::Finding& finding, const diagnosis::FaultPlace& place, bool other_layer) {
  const auto stage = stage_from_name(finding.stage);
  if (stage && stage_key(*stage, finding.layer) == place.key()) return true;
  if (std::ranges::find(finding.among, place.key()) != finding.among.end()) return true;
  return other_layer && stage == place.stage && finding.layer >= 0;
}

Result<Outcome> examine(const Patient& patient, const std::string& backend, const diagnosis::FaultInfo* fault,
                        const std::string& thinning, const Options& options) {
  diagnosis::Subject subject = subject_for(patient, backend);
  Outcome outcome{.fault = fault ? std::string(fault->name) : "healthy",
                  .kind = fault ? std::string(name_of(fault->kind)) : "healthy",
                  .patient = patient.name,
                  .family = patient.family,
                  .backend = backend,
                  .thinning = thinning};
  const diagnosis::Thinning* less = diagnosis::find_thinning(thinning);
  std::optional<diagnosis::Recording> thinned;
  if (less != nullptr) {
    DOPPLER_ASSIGN(thinned, diagnosis::thin(patient.recording, *less));
  }
  const diagnosis::Recording& recording = thinned ? *thinned : patient.recording;
  diagnosis::FaultPlace place;
  if (fault != nullptr) {
    DOPPLER_ASSIGN(place, diagnosis::inject(fault->name, subject));
    // What a backend makes of a right description, the source's does not tell.
    if (options.truth == "source" && subject.alter_plan) return outcome;
    const bool in_prompt = place.when == diagnosis::FaultPlace::When::kPrompt;
    if (less != nullptr && (!in_prompt || !shows_in(recording, place))) return outcome;
    outcome.place = place.key();
    outcome.cause = fault->cause;
  }
  const auto start = Clock::now();
  DOPPLER_ASSIGN(
      const diagnosis::Diagnosis diagnosis,
      diagnosis::diagnose(subject, {.reference = options.truth == "recording" ? &recording : nullptr,
                                    .source = options.truth == "source" ? &patient.loaded : nullptr,
                                    .seconds = options.seconds}));
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  outcome.findings = diagnosis.findings.size();
  if (!diagnosis.healthy()) {
    const diagnosis::Finding& first = diagnosis.findings[0];
    outcome.said = first.cause;
    outcome.explanation = first.explanation;
    if (const auto stage = stage_from_name(first.stage))
      outcome.said_at = stage_key(*stage, first.layer);
    else
      outcome.said_at = first.stage;
  }
  if (fault != nullptr && diagnosis.healthy() && fault->kind == diagnosis::FaultKind::kDescription &&
      options.truth == "recording" && changes_nothing(patient, backend, subject)) {
    fmt::print("        {:9} {:28} {:13} changes no value of the recording: not counted\n", backend,
               fault->name, patient.name);
    outcome.place.clear();
    return outcome;
  }
  if (fault == nullptr) {
    outcome.located = outcome.named = diagnosis.healthy();
  } else if (!diagnosis.healthy()) {
    outcome.located = is_at(diagnosis.findings[0], place, thinning == "one_layer");
    outcome.named = outcome.said == outcome.cause;
  }
  return outcome;
}

void tell(const Outcome& o) {
  if (o.fault == "healthy") {
    fmt::print("{:7} {:9} {:28} {:13} {:13} {:5.2f} s  {}\n", o.named ? "ok" : "ALARM", o.backend, o.fault,
               o.patient, o.thinning, o.seconds,
               o.named ? "" : fmt::format("{} at {}: {}", o.said, o.said_at, o.explanation));
  } else {
    fmt::print("{}{}     {:9} {:28} {:13} {:13} {:5.2f} s  {}\n", o.located ? "L" : "-", o.named ? "N" : "-",
               o.backend, o.fault, o.patient, o.thinning, o.seconds,
               o.located && o.named
                   ? ""
                   : fmt::format("expected {} at {}, said {} at {}: {}", o.cause, o.place,
                                 o.said.empty() ? "nothing" : o.said, o.said_at, o.explanation));
  }
  std::fflush(stdout);
}

struct Count {
  std::size_t located = 0, named = 0, of = 0;
  double seconds = 0, longest = 0;
  void add(const Outcome& o) {
    located += o.located, named += o.named, ++of;
    seconds += o.seconds;
    longest = std::max(longest, o.seconds);
  }
  std::string share(std::size_t part) const {
    return of == 0 ? ""
                   : fmt::format("{}/{} ({:.0f} %)", part, of,
                                 100.0 * static_cast<double>(part) / static_cast<double>(of));
  }
};

std::string totals(const std::vector<Outcome>& outcomes) {
  std::map<std::string, Count> by;
  std::vector<std::string> order;
  const auto add = [&](const std::string& key, const Outcome& o) {
    if (!by.contains(key)) order.push_back(key);
    by[key].add(o);
  };
  for (const Outcome& o : outcomes) {
    if (o.kind == "healthy") continue;
    add("all", o);
    add(o.kind + " faults", o);
    add("on " + o.backend, o);
  }
  std::string text = "| runs | located | named | seconds, mean | longest |\n|---|---|---|---|---|\n";
  for (const std::string& key : order) {
    const Count& c = by[key];
    text += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} |\n", key, c.share(c.located), c.share(c.named),
                        c.seconds / static_cast<double>(c.of), c.longest);
  }
  std::size_t silent = 0, wrong = 0, sick = 0;
  for (const Outcome& o : outcomes) {
    if (o.kind == "healthy") continue;
    ++sick, silent += o.said.empty(), wrong += !o.said.empty() && !o.named && o.said != "unknown";
  }
  text += fmt::format("\nOf {} runs {} were silent, and {} gave another cause.\n", sick, silent, wrong);
  Count healthy;
  for (const Outcome& o : outcomes) {
    if (o.kind == "healthy") healthy.add(o);
  }
  if (healthy.of > 0) {
    text += fmt::format("\n{} healthy runs, {} false alarms; {:.2f} s each.\n", healthy.of,
                        healthy.of - healthy.named, healthy.seconds / static_cast<double>(healthy.of));
  }
  return text;
}

// By what is recorded: what is found of faults that show there, and alarms at healthy models.
std::string thinned_rows(const std::vector<Outcome>& outcomes) {
  struct Row {
    Count sick, healthy;
    std::size_t silent = 0, elsewhere = 0;
  };
  std::map<std::string, Row> by;
  for (const Outcome& o : outcomes) {
    Row& row = by[o.thinning];
    (o.kind == "healthy" ? row.healthy : row.sick).add(o);
    if (o.kind == "healthy" || o.located) continue;
    ++(o.said.empty() ? row.silent : row.elsewhere);
  }
  std::string text =
      "| recorded | located | named | nothing found | another place | seconds, mean | healthy | alarms |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const diagnosis::Thinning& thinning : diagnosis::all_thinnings()) {
    const auto found = by.find(std::string(thinning.name));
    if (found == by.end()) continue;
    const Row& row = found->second;
    text += fmt::format("| `{}`: {} | {} | {} | {} | {} | {:.2f} | {} | {} |\n", thinning.name,
                        thinning.meaning, row.sick.share(row.sick.located), row.sick.share(row.sick.named),
                        row.silent, row.elsewhere,
                        (row.sick.seconds + row.healthy.seconds) /
                            static_cast<double>(std::max<std::size_t>(row.sick.of + row.healthy.of, 1)),
                        row.healthy.of, row.healthy.of - row.healthy.named);
  }
  return text;
}

std::vector<Outcome> of_thinning(const std::vector<Outcome>& outcomes, bool whole) {
  std::vector<Outcome> some;
  std::ranges::copy_if(outcomes, std::back_inserter(some),
                       [&](const Outcome& o) { return (o.thinning == "whole") == whole; });
  return some;
}

// One row for each fault: how many of its runs on each backend were located and named.
std::string fault_rows(const std::vector<Outcome>& outcomes, const std::vector<std::string>& backends) {
  std::string text = "| fault | kind | cause | what is wrong |";
  for (const std::string& backend : backends) text += fmt::format(" {} |", backend);
  text += "\n|---|---|---|---|" + [&] {
    std::string dashes;
    for (std::size_t i = 0; i < backends.size(); ++i) dashes += "---|";
    return dashes;
  }() + "\n";
  for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) {
    text +=
        fmt::format("| `{}` | {} | {} | {} |", fault.name, name_of(fault.kind), fault.cause, fault.meaning);
    for (const std::string& backend : backends) {
      Count c;
      for (const Outcome& o : outcomes) {
        if (o.fault == fault.name && o.backend == backend) c.add(o);
      }
      text += c.of == 0 ? " |" : fmt::format(" {}, {} of {} |", c.located, c.named, c.of);
    }
    text += "\n";
  }
  return text;
}

std::string misses(const std::vector<Outcome>& outcomes) {
  std::string text = "| fault | model | backend | expected | said |\n|---|---|---|---|---|\n";
  for (const Outcome& o : outcomes) {
    if (o.located && o.named) continue;
    text += fmt::format("| `{}` | {} | {} | {} {} | {} {} |\n", o.fault, o.patient, o.backend, o.cause,
                        o.place, o.said.empty() ? "nothing" : o.said, o.said_at);
  }
  return text;
}

Status write_text(const std::filesystem::path& file, const std::string& text) {
  DOPPLER_ASSIGN(OutputFile out, OutputFile::create(file));
  DOPPLER_TRY(out.write(std::string_view(text)));
  return out.commit();
}

Json as_json(const std::vector<Outcome>& outcomes) {
  Json runs = Json::array();
  for (const Outcome& o : outcomes) {
    runs.push_back({{"fault", o.fault},
                    {"kind", o.kind},
                    {"model", o.patient},
                    {"backend", o.backend},
                    {"recorded", o.thinning},
                    {"expected", {{"cause", o.cause}, {"place", o.place}}},
                    {"said", {{"cause", o.said}, {"place", o.said_at}, {"explanation", o.explanation}}},
                    {"findings", o.findings},
                    {"located", o.located},
                    {"named", o.named},
                    {"seconds", o.seconds}});
  }
  return {{"runs", std::move(runs)}};
}

// The outcomes that other runs wrote with --json.
Result<std::vector<Outcome>> read_outcomes(const std::vector<std::string>& files) {
  std::vector<Outcome> outcomes;
  for (const std::string& file : files) {
    DOPPLER_ASSIGN(const std::string text, read_text_file(file, 64 << 20));
    DOPPLER_ASSIGN(const Json json, parse_json(text, file));
    for (const Json& run : json.value("runs", Json::array())) {
      const Json expected = run.value("expected", Json::object()), said = run.value("said", Json::object());
      outcomes.push_back({.fault = run.value("fault", ""),
                          .kind = run.value("kind", ""),
                          .patient = run.value("model", ""),
                          .family = "",
                          .backend = run.value("backend", ""),
                          .place = expected.value("place", ""),
                          .cause = expected.value("cause", ""),
                          .said_at = said.value("place", ""),
                          .said = said.value("cause", ""),
                          .explanation = said.value("explanation", ""),
                          .thinning = run.value("recorded", "whole"),
                          .findings = run.value("findings", std::size_t{0}),
                          .located = run.value("located", false),
                          .named = run.value("named", false),
                          .seconds = run.value("seconds", 0.0)});
    }
  }
  return outcomes;
}

// The file's text before the first mark is kept, and what follows a mark where nothing new is known of it.
constexpr std::string_view kGenerated =
    "<!-- From here on written by bench/fault_benchmark --markdown. -->\n";
constexpr std::string_view kGeneratedThinned =
    "<!-- From here on written by bench/fault_benchmark --thin ... --markdown. -->\n";

Status write_markdown(const std::filesystem::path& file, const std::vector<Outcome>& all,
                      const std::vector<std::string>& backends) {
  const std::vector<Outcome> outcomes = of_thinning(all, true), thinned = of_thinning(all, false);
  std::string head, whole, less;
  if (const auto old = read_text_file(file, 1 << 20)) {
    const std::size_t second = std::min(old->find(kGeneratedThinned), old->size());
    const std::size_t first = std::min(old->find(kGenerated), second);
    head = old->substr(0, first);
    whole = old->substr(first, second - first);
    less = old->substr(second);
  }
  if (!outcomes.empty()) {
    whole = fmt::format(
        "{}\n## The result\n\n{}\n## Fault by fault\n\nLocated, named, of so many runs.\n\n{}\n"
        "## What was missed\n\n{}\n",
        kGenerated, totals(outcomes), fault_rows(outcomes, backends), misses(outcomes));
  }
  if (!thinned.empty()) {
    less = fmt::format(
        "{}\n## With less recorded\n\nOn the reference backend: faults of description and data that show in "
        "what "
        "is recorded. Located: the first\nfinding names the place, or lists it among the ops that the "
        "recording has "
        "nothing between.\n\n{}",
        kGeneratedThinned, thinned_rows(thinned));
  }
  return write_text(file, head + whole + less);
}

// The models that a fault is put into: those of the three families that it applies to; the quantised ones
// where it applies only to them; else the first of the others.
std::vector<const Patient*> patients_of(const diagnosis::FaultInfo& fault,
                                        const std::deque<Patient>& patients, const std::string& backend,
                                        bool recorded) {
  const auto of_type = [&](auto accepts, bool one) {
    std::vector<const Patient*> found;
    for (const Patient& patient : patients) {
      if (!accepts(patient) || (one && !found.empty())) continue;
      if (diagnosis::applies(fault.name, subject_for(patient, backend))) found.push_back(&patient);
    }
    return found;
  };
  if (!recorded) return of_type([](const Patient& p) { return p.family == "demo"; }, true);
  const std::set<std::string> families = {"gemma3", "llama3", "qwen3"};
  auto found =
      of_type([&](const Patient& p) { return families.contains(p.family) && p.type == "BF16"; }, false);
  for (const char* type : {"Q4_1", "Q4_0", "Q8_0"}) {
    if (found.empty())
      found = of_type([&](const Patient& p) { return families.contains(p.family) && p.type == type; }, false);
  }
  if (found.empty()) found = of_type([&](const Patient& p) { return p.type == "BF16"; }, true);
  return found;
}

Status run(const Options& options) {
  if (!options.from.empty()) {
    DOPPLER_ASSIGN(const std::vector<Outcome> outcomes, read_outcomes(options.from));
    fmt::print("{}\n{}", totals(of_thinning(outcomes, true)), thinned_rows(outcomes));
    return options.markdown.empty() ? Status() : write_markdown(options.markdown, outcomes, options.backends);
  }
  std::deque<Patient> patients;
  const bool recorded = options.truth == "recording";
  for (const char* family : {"gemma3", "llama3", "qwen3"}) {
    if (!recorded) break;
    DOPPLER_ASSIGN(Patient patient,
                   open_patient(options.models / family, options.models / family / "reference.safetensors",
                                family, "BF16"));
    patients.push_back(std::move(patient));
    for (const char* type : {"Q4_1", "Q4_0", "Q8_0"}) {
      DOPPLER_ASSIGN(Patient small, quantised(options, family, type));
      patients.push_back(std::move(small));
    }
  }
  for (const char* family :
       {"gemma2", "qwen2", "llama", "phi3", "mistral", "gemma3_k288", "gpt_oss", "glm4_moe", "mamba2",
        "qwen3_5", "qwen3_next", "jamba", "lfm2", "nemotron_h", "deepseek_v3", "granite", "cohere", "phi"}) {
    // Those after gemma2, qwen2 and llama are for faults of what the models above lack: experts, states,
    // latent attention, multipliers. Healthy ones must be quiet in any case.
    DOPPLER_ASSIGN(Patient patient,
                   open_patient(options.models / family, options.models / family / "reference.safetensors",
                                family, "BF16"));
    patients.push_back(std::move(patient));
  }
  DOPPLER_ASSIGN(Patient demo,
                 open_patient(options.demo, options.demo / "reference.safetensors", "demo", "BF16"));
  patients.push_back(std::move(demo));

  std::vector<Outcome> outcomes;
  std::size_t left_out = 0;
  const auto start = Clock::now();
  const auto add = [&](const Patient& patient, const std::string& backend,
                       const diagnosis::FaultInfo* fault) -> Status {
    for (const std::string& thinning : options.thin) {
      // What a backend does wrong is found without a recording.
      if (thinning != "whole" && fault != nullptr && fault->kind == diagnosis::FaultKind::kExecution)
        continue;
      if (options.most_minutes > 0 &&
          std::chrono::duration<double>(Clock::now() - start).count() > 60 * options.most_minutes) {
        ++left_out;
        continue;
      }
      DOPPLER_ASSIGN(Outcome outcome, examine(patient, backend, fault, thinning, options));
      if (fault != nullptr && outcome.place.empty()) continue;  // nothing of it is recorded
      if (!options.quiet) tell(outcome);
      outcomes.push_back(std::move(outcome));
      if (!options.json.empty()) DOPPLER_TRY(write_text(options.json, as_json(outcomes).dump(1) + "\n"));
    }
    return {};
  };
  std::set<std::string> families(options.families.begin(), options.families.end());
  for (const std::string& backend : options.backends) {
    for (const Patient& patient : patients) {
      if (options.healthy && (families.empty() || families.contains(patient.family)))
        DOPPLER_TRY(add(patient, backend, nullptr));
    }
    for (const diagnosis::FaultInfo& fault : diagnosis::all_faults()) {
      if (!options.sick || !chosen(options.faults, fault.name)) continue;
      // What no recording shows, a source does not know either: how a backend computes.
      if (options.truth == "source" && fault.kind == diagnosis::FaultKind::kExecution) continue;
      for (const Patient* patient : patients_of(fault, patients, backend, recorded)) {
        if (families.empty() || families.contains(patient->family))
          DOPPLER_TRY(add(*patient, backend, &fault));
      }
    }
  }
  fmt::print("\n{}\n{}", totals(of_thinning(outcomes, true)), thinned_rows(outcomes));
  if (left_out > 0) fmt::print("{} runs were left out after {} minutes.\n", left_out, options.most_minutes);
  if (!options.markdown.empty()) DOPPLER_TRY(write_markdown(options.markdown, outcomes, options.backends));
  return {};
}

}  // namespace
}  // namespace doppler

int main(int argc, char** argv) {
  doppler::Options options{.models = "tests/data/models",
                           .demo = "demo",
                           .scratch = std::filesystem::temp_directory_path(),
                           .backends = {"reference", "cpu", "gpu"}};
  bool no_healthy = false, only_healthy = false;
  CLI::App app(
      "Puts every fault into models of three families on three backends and counts what the doctor finds");
  app.add_option("--models", options.models, "the fixtures' folder")->capture_default_str();
  app.add_option("--demo", options.demo, "a model with a tokenizer")->capture_default_str();
  app.add_option("--scratch", options.scratch, "where quantised models are written")->capture_default_str();
  app.add_option("--fault", options.faults, "only these faults");
  app.add_option("--family", options.families, "only these families");
  app.add_option("--backend", options.backends, "only these backends")->capture_default_str();
  std::vector<std::string> thinnings = {"whole"};
  for (const auto& thinning : doppler::diagnosis::all_thinnings()) thinnings.emplace_back(thinning.name);
  app.add_option("--thin", options.thin, "what is recorded: whole, or less")
      ->check(CLI::IsMember(thinnings))
      ->capture_default_str();
  app.add_option("--truth", options.truth, "recording, none or source")
      ->check(CLI::IsMember({"recording", "none", "source"}))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "what a diagnosis may take")->capture_default_str();
  app.add_option("--minutes", options.most_minutes, "begin no run after so many minutes; 0: all run")
      ->capture_default_str();
  app.add_flag("--no-healthy", no_healthy, "leave healthy models out");
  app.add_flag("--only-healthy", only_healthy, "healthy models only");
  app.add_flag("--quiet", options.quiet, "no line for each run");
  app.add_option("--json", options.json, "write every run to this file");
  app.add_option("--markdown", options.markdown, "write the tables to this file");
  app.add_option("--from", options.from, "run nothing: read what earlier runs wrote with --json");
  CLI11_PARSE(app, argc, argv);
  options.healthy = !no_healthy;
  options.sick = !only_healthy;
  const auto done = doppler::run(options);
  if (!done) doppler::say(doppler::Said::kError, "fault_benchmark: {}", done.error().message);
  return done ? 0 : 3;
}
