// What ports do to weights: each fault of faults_ports.cpp is put into models of several families, named and
// located; and repairs that explain nothing claim nothing.
#include "convert/convert.h"
#include "convert/mix.h"
#include "diagnosis/doctor_patients.h"
#include "diagnosis/faults/faults.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::patient_source;
using testing::TempDir;

struct PortedModel {
  Loaded loaded;
  Recording recording;
};

Result<PortedModel> open_ported(const std::filesystem::path& model, const std::filesystem::path& recording) {
  LoadOptions options;
  options.backend = "reference";
  options.context = 64;
  PortedModel ward;
  DOPPLER_ASSIGN(ward.loaded, load_all(model, options));
  DOPPLER_ASSIGN(ward.recording, open_recording(recording));
  return ward;
}

Result<Diagnosis> examine_with(const PortedModel& ward, std::string_view fault, FaultPlace* place,
                               const std::string& backend) {
  Subject subject = subject_of(ward.loaded, backend);
  subject.options.threads = 1;
  if (!fault.empty()) {
    DOPPLER_ASSIGN(*place, inject(fault, subject));
  }
  return diagnose(subject, {.reference = &ward.recording, .seconds = 600, .only = {"recording", "truth"}});
}

constexpr std::string_view kFaults[] = {
    "qkv_split_grouped",     "qkv_split_order",      "gate_up_interleaved", "gate_up_halves",
    "gate_up_sharded",       "columns_shuffled",     "columns_sharded",     "row_scales_lost",
    "column_scales_lost",    "baked_without_offset", "baked_signed",        "baked_nibbles",
    "baked_without_minimum", "baked_unsigned",       "block_scales_off",    "row_scale_off",
    "norm_read_as_f16",      "bias_read_as_f16",     "bias_twice",          "bias_not_permuted"};

std::size_t expect_all_named(const PortedModel& ward, const std::string& who,
                             const std::string& backend = "reference") {
  std::size_t tried = 0;
  for (const std::string_view fault : kFaults) {
    if (!applies(fault, subject_of(ward.loaded, backend))) continue;
    ++tried;
    SCOPED_TRACE(fmt::format("{} in {}", fault, who));
    FaultPlace place;
    const auto diagnosis = examine_with(ward, fault, &place, backend);
    if (!diagnosis || diagnosis->healthy()) {
      ADD_FAILURE() << (diagnosis ? "nothing found" : diagnosis.error().message);
      continue;
    }
    const auto info = std::ranges::find(all_faults(), fault, &FaultInfo::name);
    EXPECT_EQ(diagnosis->findings[0].cause, info->cause) << all_findings(*diagnosis);
    EXPECT_EQ(diagnosis->findings[0].stage, stage_name(place.stage));
    EXPECT_EQ(diagnosis->findings[0].layer, place.layer);
  }
  return tried;
}

TEST(Ports, NamedInFloats) {
  // As many of the faults as apply to each.
  const std::pair<const char*, std::size_t> kFamilies[] = {{"gemma3", 9}, {"llama3", 10}, {"qwen3", 10},
                                                           {"qwen2", 13}, {"phi3", 10},   {"demo", 10}};
  for (const auto& [family, faults] : kFamilies) {
    ASSERT_OK_AND_ASSIGN(
        const PortedModel ward,
        open_ported(patient_source(family), patient_source(family) / "reference.safetensors"));
    EXPECT_EQ(expect_all_named(ward, family), faults) << family;
  }
}

// The truth is what a healthy backend makes of the same blocks.
TEST(Ports, NamedInBlocks) {
  TempDir folder;
  for (const char* family : {"gemma3", "llama3", "qwen3"}) {
    ASSERT_OK_AND_ASSIGN(const Recording floats,
                         open_recording(patient_source(family) / "reference.safetensors"));
    for (const char* type : {"Q4_0", "Q4_1", "Q8_0"}) {
      const auto file = folder / "model.gguf", truth = folder / "truth.safetensors";
      ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix(type));
      ASSERT_OK(convert::convert_model(patient_source(family), *mix, file, {.with_tokenizer = false}));
      LoadOptions options;
      options.backend = "reference";
      options.context = 64;
      ASSERT_OK_AND_ASSIGN(const Loaded loaded, load_all(file, options));
      ASSERT_OK(record_run(*loaded.backend, {.prompt_ids = floats.prompt_ids, .decode_steps = 1}, truth));
      ASSERT_OK_AND_ASSIGN(const PortedModel ward, open_ported(file, truth));
      EXPECT_GE(expect_all_named(ward, fmt::format("{} {}", family, type)), 9u);
    }
  }
}

// A recording of the floats that were quantised: what quantising explains is no finding, and a scale that is
// off by less than that for any single value is one.
TEST(Ports, ScaleOffWithinTheNoiseOfQuantising) {
  TempDir folder;
  for (const char* type : {"Q8_0", "Q4_0", "Q4_K", "Q2_K"}) {
    SCOPED_TRACE(type);
    const auto file = folder / "model.gguf";
    ASSERT_OK_AND_ASSIGN(const convert::Mix* mix, convert::find_mix(type));
    ASSERT_OK(convert::convert_model(patient_source("demo"), *mix, file, {.with_tokenizer = false}));
    ASSERT_OK_AND_ASSIGN(const PortedModel ward,
                         open_ported(file, patient_source("demo") / "reference.safetensors"));
    FaultPlace place;
    ASSERT_OK_AND_ASSIGN(const Diagnosis healthy, examine_with(ward, "", &place, "reference"));
    EXPECT_TRUE(healthy.healthy()) << all_findings(healthy);
    if (!applies("block_scales_off", subject_of(ward.loaded, "reference"))) continue;
    ASSERT_OK_AND_ASSIGN(const Diagnosis sick, examine_with(ward, "block_scales_off", &place, "reference"));
    ASSERT_FALSE(sick.healthy());
    EXPECT_EQ(sick.findings[0].cause, "weight_scaled") << all_findings(sick);
    EXPECT_EQ(sick.findings[0].layer, place.layer);
  }
}

// Random values in the place of a weight: no search has so much freedom as to explain them.
TEST(Ports, NothingExplainsRandomValues) {
  ASSERT_OK_AND_ASSIGN(
      const PortedModel ward,
      open_ported(patient_source("llama3"), patient_source("llama3") / "reference.safetensors"));
  for (const WeightRole role : {WeightRole::kQ, WeightRole::kO, WeightRole::kUp, WeightRole::kDown}) {
    Subject subject = subject_of(ward.loaded, "reference");
    TensorView tensor = subject.weights[subject.weights.find(role, 1)];
    std::vector<std::byte> bytes(tensor.data.size());
    std::uint32_t state = 7;
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      state = state * 1664525 + 1013904223;
      const std::uint16_t bits = f32_to_bf16(static_cast<float>(state >> 8) / (1 << 24) - 0.5F);
      std::memcpy(&bytes[i], &bits, 2);
    }
    tensor.data = bytes;
    subject.weights.add(role, 1, tensor);
    ASSERT_OK_AND_ASSIGN(
        const Diagnosis diagnosis,
        diagnose(subject, {.reference = &ward.recording, .seconds = 600, .only = {"truth"}}));
    ASSERT_EQ(diagnosis.findings.size(), 1u) << all_findings(diagnosis);
    EXPECT_EQ(diagnosis.findings[0].cause, "weight_wrong");
    EXPECT_NE(diagnosis.findings[0].explanation.find("no permutation, scale or type"), std::string::npos)
        << diagnosis.findings[0].explanation;
  }
}

}  // namespace
}  // namespace doppler::diagnosis
