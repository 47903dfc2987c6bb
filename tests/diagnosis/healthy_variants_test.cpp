// Healthy models as people store them: configurations in old and new keys, several shards, other float types,
// GGUF of many types, with recordings whole, partial and none at all, and beside their source. The doctor
// must be quiet. A few of these run with all tests; docs/faults.md says how to run all.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "convert/convert.h"
#include "convert/mix.h"
#include "diagnosis/compare/thinned.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::diagnosis {
namespace {

namespace fs = std::filesystem;
using testing::all_findings;
using testing::PatientFolder;
using testing::RawTensor;
using testing::RawTensors;
using testing::TempDir;

// A copy of the model at `dir`; an empty path where the variant makes no sense for it.
struct Variant {
  const char* name;
  std::function<Result<fs::path>(const std::string& model, const TempDir& dir)> make;
};

Result<fs::path> copy_of(const std::string& model, const TempDir& dir) {
  const fs::path to = dir / "copy";
  fs::create_directory(to);
  for (const auto& entry : fs::directory_iterator(testing::patient_source(model))) {
    if (entry.is_regular_file() && entry.path().filename() != "reference.safetensors")
      fs::copy_file(entry.path(), to / entry.path().filename());
  }
  return to;
}

// Every float tensor in another type: exactly in F32, rounded in F16.
Result<fs::path> of_type(const std::string& model, const TempDir& dir, DType type) {
  DOPPLER_ASSIGN(const fs::path to, copy_of(model, dir));
  DOPPLER_ASSIGN(const TensorStore store,
                 open_safetensors(testing::patient_source(model) / "model.safetensors"));
  std::vector<std::vector<std::byte>> kept;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : store.tensors()) {
    if (tensor.dtype == DType::kU8) {  // experts in blocks, which are not numbers yet
      views.push_back(tensor);
      continue;
    }
    std::vector<float> values(element_count(tensor.shape).value_or(0));
    DOPPLER_TRY(decode_f32(tensor, 0, values));
    auto& bytes = kept.emplace_back();
    for (const float x : values) {
      const std::uint16_t half = f32_to_f16(x);
      const void* from = type == DType::kF16 ? static_cast<const void*>(&half) : &x;
      const auto* begin = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), begin, begin + (type == DType::kF16 ? 2 : 4));
    }
    views.push_back({name, type, tensor.shape, bytes});
  }
  DOPPLER_TRY(testing::write_tensors(to / "model.safetensors", views));
  return to;
}

Result<fs::path> sharded(const std::string& model, const TempDir& dir) {
  DOPPLER_ASSIGN(const fs::path to, copy_of(model, dir));
  DOPPLER_ASSIGN(const TensorStore store,
                 open_safetensors(testing::patient_source(model) / "model.safetensors"));
  constexpr std::size_t kShards = 3;
  std::array<std::vector<TensorView>, kShards> shards;
  Json map = Json::object();
  const auto name_of = [&](std::size_t i) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, kShards);
  };
  std::size_t count = 0;
  for (const auto& [name, tensor] : store.tensors()) {
    map[name] = name_of(count % kShards);
    shards[count++ % kShards].push_back(tensor);
  }
  for (std::size_t i = 0; i < kShards; ++i) DOPPLER_TRY(testing::write_tensors(to / name_of(i), shards[i]));
  testing::write_file(to / "model.safetensors.index.json",
                      Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
  fs::remove(to / "model.safetensors");
  return to;
}

// The keys of transformers before its fifth version.
void use_old_keys(Json& c) {
  if (c.contains("dtype")) c["torch_dtype"] = c["dtype"], c.erase("dtype");
  if (!c.contains("rope_parameters")) return;
  Json rope = c["rope_parameters"];
  c.erase("rope_parameters");
  if (rope.contains("sliding_attention") && c.value("model_type", "").starts_with("gemma3")) {
    c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"];
    rope = Json(rope["full_attention"]);
    c.erase("layer_types");
  }
  if (rope.contains("full_attention")) rope = Json(rope["full_attention"]);
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (rope.contains(key)) c[key] = rope[key], rope.erase(key);
  }
  if (rope.value("rope_type", "default") != "default") c["rope_scaling"] = rope;
}
// Those of the fifth.
void use_new_keys(Json& c) {
  if (c.contains("torch_dtype")) c["dtype"] = c["torch_dtype"], c.erase("torch_dtype");
  if (c.contains("rope_parameters") || !c.contains("rope_theta")) return;
  Json rope =
      c.contains("rope_scaling") && c["rope_scaling"].is_object() ? c["rope_scaling"] : Json::object();
  if (!rope.contains("rope_type")) rope["rope_type"] = "default";
  rope["rope_theta"] = c["rope_theta"];
  c.erase("rope_theta"), c.erase("rope_scaling");
  if (c.contains("rope_local_base_freq")) {
    rope = {{"full_attention", rope},
            {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", c["rope_local_base_freq"]}}}};
    c.erase("rope_local_base_freq");
  }
  c["rope_parameters"] = rope;
}

Result<fs::path> with_keys(const std::string& model, const TempDir& dir, void (*change)(Json&)) {
  // The old keys have no words for some layers scaled, or for two bases in this family.
  const std::string name = fs::path(model).filename();
  if (change == use_old_keys && (name == "olmo3" || name.starts_with("gemma4"))) return fs::path();
  DOPPLER_ASSIGN(const fs::path to, copy_of(model, dir));
  DOPPLER_ASSIGN(Json config, parse_json(testing::read_file(to / "config.json"), "config.json"));
  const Json before = config;
  change(config);
  if (config == before) return fs::path();
  testing::write_file(to / "config.json", config.dump());
  return to;
}

// Nothing for an architecture that llama.cpp has no words for.
Result<fs::path> gguf(const std::string& model, const TempDir& dir, const char* type) {
  const fs::path from = testing::patient_source(model), to = dir / "copy.gguf";
  DOPPLER_ASSIGN(const convert::Mix* mix, convert::find_mix(type));
  const auto made = convert::convert_model(
      from, *mix, to,
      {.with_tokenizer = fs::exists(from / "tokenizer.json"), .search = EncodeSearch::kNearest});
  if (!made && made.error().code == ErrorCode::kUnsupported) return fs::path();
  if (!made) return std::unexpected(made.error());
  return to;
}

const std::vector<Variant>& variants() {
  static const std::vector<Variant> kVariants = [] {
    std::vector<Variant> all = {
        {"as_it_is",
         [](const auto& m, const auto&) -> Result<fs::path> { return testing::patient_source(m); }},
        {"F32", [](const auto& m, const auto& d) { return of_type(m, d, DType::kF32); }},
        {"F16", [](const auto& m, const auto& d) { return of_type(m, d, DType::kF16); }},
        {"sharded", sharded},
        {"old_keys", [](const auto& m, const auto& d) { return with_keys(m, d, use_old_keys); }},
        {"new_keys", [](const auto& m, const auto& d) { return with_keys(m, d, use_new_keys); }}};
    for (const char* type : {"BF16", "F16", "Q8_0", "Q5_1", "Q4_0", "Q4_K_M"})
      all.push_back({type, [type](const auto& m, const auto& d) { return gguf(m, d, type); }});
    for (std::size_t i = 6; i < all.size(); ++i) {  // names of their own, beside those of folders
      static constexpr const char* kNames[] = {"gguf_BF16", "gguf_F16",  "gguf_Q8_0",
                                               "gguf_Q5_1", "gguf_Q4_0", "gguf_Q4_K_M"};
      all[i].name = kNames[i - 6];
    }
    return all;
  }();
  return kVariants;
}

// What the doctor is told: "whole", "none", "source", or a thinning's name.
std::vector<std::string> all_truths() {
  std::vector<std::string> all = {"whole", "none", "source"};
  for (const Thinning& thinning : all_thinnings()) all.emplace_back(thinning.name);
  return all;
}

struct Told {
  bool applies = true;
  std::string alarms;  // findings; empty: none
};
Result<Told> examine_variant(const std::string& model, const fs::path& file, const std::string& truth) {
  const fs::path source_folder = testing::patient_source(model);
  if (truth == "source" && file == source_folder) return Told{.applies = false};
  LoadOptions load;
  load.backend = "reference";
  load.context = 256;
  DOPPLER_ASSIGN(const Loaded loaded, load_all(file, load));
  DoctorOptions options{.seconds = 600};
  std::optional<Recording> recording;
  std::optional<Loaded> source;
  if (truth == "source") {
    DOPPLER_ASSIGN(source, load_all(source_folder, load));
    options.source = &*source;
  } else if (truth != "none") {
    DOPPLER_ASSIGN(recording, open_recording(source_folder / "reference.safetensors"));
    if (const Thinning* thinning = find_thinning(truth)) {
      DOPPLER_ASSIGN(recording, thin(*recording, *thinning));
    }
    options.reference = &*recording;
  }
  Subject subject = subject_of(loaded, "cpu");
  subject.options.threads = 1;
  DOPPLER_ASSIGN(const Diagnosis diagnosis, diagnose(subject, options));
  return Told{.alarms = all_findings(diagnosis)};
}

// A model of another kind for each variant, so that few runs see much.
constexpr const char* kModels[] = {"gemma3", "llama3", "qwen2", "phi3", "olmo3", "glm4"};

class HealthyVariants : public ::testing::TestWithParam<std::size_t> {};

TEST_P(HealthyVariants, RaiseNoAlarm) {
  const Variant& variant = variants()[GetParam()];
  const std::string model = kModels[GetParam() % std::size(kModels)];
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const fs::path file, variant.make(model, dir));
  if (file.empty()) GTEST_SKIP() << model << " has no such variant";
  for (const std::string& truth :
       {std::string("whole"), std::string("source"), std::string("hidden_states")}) {
    SCOPED_TRACE(model + " " + truth);
    ASSERT_OK_AND_ASSIGN(const Told told, examine_variant(model, file, truth));
    EXPECT_EQ(told.alarms, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Doctor, HealthyVariants, ::testing::Range<std::size_t>(1, variants().size()),
                         [](const auto& test) { return variants()[test.param].name; });

// Three quantised products among exact ones, because the others' rows are too short for blocks; and a
// rotation that only a key of ours describes.
TEST(HealthyVariantsOf, FewQuantisedProductsAndOwnKeys) {
  for (const auto& [model, type] : {std::pair{"mamba2", "Q8_0"}, {"mamba2", "Q4_0"}, {"gpt_oss", "BF16"}}) {
    SCOPED_TRACE(std::string(model) + " " + type);
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const fs::path file, gguf(model, dir, type));
    ASSERT_FALSE(file.empty());
    ASSERT_OK_AND_ASSIGN(const Told told, examine_variant(model, file, "whole"));
    EXPECT_EQ(told.alarms, "");
  }
}

// The folders below `root` that hold a model and its recording.
std::vector<std::string> recorded_models(const fs::path& root) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (fs::exists(entry.path() / "reference.safetensors") && fs::exists(entry.path() / "config.json"))
      found.push_back(entry.path().string());
  }
  std::ranges::sort(found);
  return found;
}

struct TruthRuns {
  std::size_t runs = 0, alarms = 0;
  double seconds = 0;
};

// Whether a run that takes long, as every trial of the loss of plain English does in the demo, is one of the
// sample.
bool is_sampled(std::size_t variant, const std::string& model, const std::string& truth) {
  constexpr std::size_t kEvery = 5;
  return model != "demo" || truth != "none" || variant % kEvery == 0;
}

// Every family, variant and truth: minutes. Run by hand. DOPPLER_MORE_MODELS names folders of more models
// with recordings, separated by colons; those that cannot be loaded yet are listed.
TEST(AllHealthyVariants, DISABLED_RaiseNoAlarm) {
  std::vector<std::string> models = recorded_models(testing::data_path("models"));
  models.insert(models.begin(), "demo");
  if (const char* more = std::getenv("DOPPLER_MORE_MODELS")) {
    std::istringstream roots(more);
    for (std::string root; std::getline(roots, root, ':');)
      std::ranges::copy(recorded_models(root), std::back_inserter(models));
  }
  std::map<std::string, TruthRuns> by_truth;
  std::size_t made = 0;
  std::set<std::string> examined;
  for (const std::string& model : models) {
    if (const auto loaded = testing::load_patient(testing::patient_source(model), 256); !loaded) {
      fmt::print("{}: {}\n", model, loaded.error().message);
      continue;
    }
    examined.insert(model);
    const auto before = std::chrono::steady_clock::now();
    for (std::size_t v = 0; v < variants().size(); ++v) {
      const Variant& variant = variants()[v];
      const TempDir dir;
      const Result<fs::path> file = variant.make(model, dir);
      if (!file) {
        ADD_FAILURE() << model << " " << variant.name << ": " << file.error().message;
        continue;
      }
      if (file->empty()) continue;
      ++made;
      for (const std::string& truth : all_truths()) {
        if (!is_sampled(v, model, truth)) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", model, variant.name, truth));
        const auto start = std::chrono::steady_clock::now();
        const auto told = examine_variant(model, *file, truth);
        if (!told) {
          ADD_FAILURE() << told.error().message;
          continue;
        }
        if (!told->applies) continue;
        TruthRuns& runs = by_truth[truth];
        ++runs.runs, runs.alarms += !told->alarms.empty();
        runs.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        EXPECT_EQ(told->alarms, "");
      }
    }
    fmt::print("{}: {:.0f} s\n", model,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
    std::fflush(stdout);
  }
  TruthRuns all;
  fmt::print("{} variants of {} models\n| truth | runs | alarms | seconds each |\n|---|---|---|---|\n", made,
             examined.size());
  for (const auto& [truth, runs] : by_truth) {
    fmt::print("| {} | {} | {} | {:.2f} |\n", truth, runs.runs, runs.alarms,
               runs.seconds / static_cast<double>(runs.runs));
    all.runs += runs.runs, all.alarms += runs.alarms;
  }
  fmt::print("{} runs, {} alarms\n", all.runs, all.alarms);
}

}  // namespace
}  // namespace doppler::diagnosis
