// What only a module with diagnosis in it answers: a model beside a recording or another backend, and what
// the doctor says of it. Each call opens the model for itself, and its answer is the object that the program
// prints for --json.
#include "calls.h"
#include "convert/repaired_copy.h"
#include "diagnosis/ailments.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/compare_json.h"
#include "diagnosis/compare/compare_recordings.h"
#include "diagnosis/doctor/doctor.h"
#include "diagnosis/doctor/load_repaired.h"
#include "engine/fallbacks.h"
#include "engine/loaded.h"
#include "imports.h"
#include "option_rows.h"
#include "options.h"

namespace doppler::web {
namespace {

// As the program's flags.
struct CompareWish : diagnosis::CompareOptions {
  bool quick = false;
  std::uint32_t steps = 10;
};

constexpr auto kCompareRows = std::tuple{
    Row{"quick", &CompareWish::quick},         Row{"steps", &CompareWish::steps},
    Row{"tolerance", &CompareWish::tolerance}, Row{"piece", &CompareWish::piece},
    Row{"companion", &CompareWish::companion},
};
constexpr auto kDoctorRows = std::tuple{
    Row{"check", &diagnosis::DoctorOptions::only},
    Row{"seconds", &diagnosis::DoctorOptions::seconds},
    Row{"hashes", &diagnosis::DoctorOptions::hashes},
};

// What the calls say beside their options.
struct Asked {
  std::string model;
  std::string reference;  // a recording's path; empty: none
  std::string with;       // another backend
  std::string prompt;     // for it
  LoadOptions load;
  CompareWish compare;
  diagnosis::DoctorOptions doctor;
};

// The share of the time that loading takes, as people see it.
constexpr double kLoading = 0.2;

void tell(double share, std::string_view what) {
  progress(share, what.data(), what.size());
}

Result<std::string> text_at(const Json& request, const char* key) {
  const Json value = request.value(key, Json(""));
  if (value.is_string()) return value.get<std::string>();
  return fail(ErrorCode::kUsage, "The call's \"{}\" is no text. Give one, or none.", key);
}

Result<Asked> read_request(const Json& request) {
  Asked asked;
  DOPPLER_ASSIGN(asked.model, text_at(request, "model"));
  DOPPLER_ASSIGN(asked.reference, text_at(request, "reference"));
  DOPPLER_ASSIGN(asked.with, text_at(request, "with"));
  DOPPLER_ASSIGN(asked.prompt, text_at(request, "prompt"));
  asked.load.backend = "cpu";
  DOPPLER_TRY(read_options(request.value("options", Json::object()), asked.load));
  const Json own = request.value("own", Json::object());
  DOPPLER_TRY(request["call"] == "doctor" ? read_rows(own, kDoctorRows, asked.doctor)
                                          : read_rows(own, kCompareRows, asked.compare));
  asked.compare.local = !asked.compare.quick;
  asked.load.on_progress = [](double share, std::string_view what) { tell(kLoading * share, what); };
  return asked;
}

// A model whose weights lie in memory as a whole, since diagnosis goes to and fro in them.
Result<Loaded> load(const Asked& asked, const std::string& backend,
                    const std::vector<diagnosis::Fix>& settings = {}) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(asked.model, Opening::kMapped));
  for (const diagnosis::Fix& fix : settings) {
    if (files.config->is_object())
      DOPPLER_TRY(convert::set_value(*files.config, {fix.file, fix.target, fix.value}));
  }
  LoadOptions options = asked.load;
  options.backend = backend;
  return load_files(std::move(files), options);
}

// A backend with room for the whole sequence.
Result<std::unique_ptr<Backend>> backend_for(const Asked& asked, const Model& model, std::size_t tokens) {
  LoadOptions load = asked.load;
  if (load.context == 0) load.context = std::max<std::uint64_t>(choose_context(0, model.spec), tokens);
  DOPPLER_ASSIGN(const BackendOptions options,
                 backend_options(load, model.spec, asked.compare.companion ? 2 : 1));
  return make_backend(load.backend, model.spec, model.weights, options);
}

Result<Json> compare_with(const Asked& asked, const Model& model, const diagnosis::Recording& expected) {
  DOPPLER_ASSIGN(const auto backend,
                 backend_for(asked, model, expected.prompt_ids.size() + expected.greedy_ids.size()));
  tell(0.4, "comparing");
  DOPPLER_ASSIGN(const diagnosis::Comparison comparison,
                 diagnosis::compare_run(*backend, model.spec, expected, asked.compare, &model.weights));
  Json json = diagnosis::comparison_json(comparison, backend->name());
  json["fallbacks"] = fallbacks_json(backend->fallbacks());
  return json;
}

// Another backend runs the prompt and chooses tokens; this one is fed the same.
Result<Json> compare_backends(const Asked& asked) {
  DOPPLER_ASSIGN(Loaded loaded, load(asked, asked.with));
  diagnosis::CaptureOptions capture{
      .decode_steps = asked.compare.steps,
      .metadata = diagnosis::model_metadata(asked.model, loaded.model->weights)};
  DOPPLER_ASSIGN(capture.prompt_ids, tokenize_prompt(loaded, asked.prompt));
  tell(kLoading, asked.with);
  DOPPLER_ASSIGN(const diagnosis::Recording expected, diagnosis::capture_run(*loaded.backend, capture));
  loaded.backend.reset();  // both at once may be more than the memory holds
  return compare_with(asked, *loaded.model, expected);
}

Result<Json> compare(const Json& request) {
  DOPPLER_ASSIGN(const Asked asked, read_request(request));
  if (asked.reference.empty() == asked.with.empty()) {
    return fail(ErrorCode::kUsage,
                "A comparison needs a recording or another backend, one of the two. Give it.");
  }
  if (!asked.with.empty()) return compare_backends(asked);
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(asked.model, Opening::kMapped));
  DOPPLER_ASSIGN(const Model model, bind_model(std::move(files), asked.load.family));
  DOPPLER_ASSIGN(const diagnosis::Recording recording, diagnosis::open_recording(asked.reference));
  return compare_with(asked, model, recording);
}

Result<Json> doctor(const Json& request) {
  DOPPLER_ASSIGN(Asked asked, read_request(request));
  diagnosis::Diagnosis refused;  // while the model did not load
  const Result<Loaded> loaded =
      diagnosis::load_repaired(asked.model, refused, [&](const std::vector<diagnosis::Fix>& settings) {
        return load(asked, "reference", settings);  // the one that always loads
      });
  if (!loaded) {
    if (!diagnosis::is_about_files(loaded.error())) return std::unexpected(loaded.error());
    return to_json(refused);
  }
  std::optional<diagnosis::Recording> reference;
  if (!asked.reference.empty()) {
    DOPPLER_ASSIGN(reference, diagnosis::open_recording(asked.reference));
    asked.doctor.reference = &*reference;
  }
  diagnosis::Subject subject = diagnosis::subject_of(*loaded, asked.load.backend);
  DOPPLER_ASSIGN(subject.options, backend_options(asked.load, loaded->model->spec, 1));
  const auto checks = static_cast<double>(diagnosis::ailments(diagnosis::AskedBy::kDoctor).size());
  asked.doctor.on_check = [&, done = 0](const diagnosis::CheckResult& check) mutable {
    tell(kLoading + (1 - kLoading) * ++done / checks, check.name);
  };
  DOPPLER_ASSIGN(diagnosis::Diagnosis found, diagnosis::diagnose(subject, asked.doctor));
  found.findings.insert(found.findings.begin(), std::make_move_iterator(refused.findings.begin()),
                        std::make_move_iterator(refused.findings.end()));
  found.checks.insert(found.checks.begin(), std::make_move_iterator(refused.checks.begin()),
                      std::make_move_iterator(refused.checks.end()));
  return to_json(found);
}

}  // namespace

std::span<const Call> diagnosis_calls() {
  static const Call calls[] = {{"compare", compare}, {"doctor", doctor}};
  return calls;
}

}  // namespace doppler::web
