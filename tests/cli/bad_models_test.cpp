// Models whose parts contradict each other, or that compute what is no number: a sentence and exit 3, on
// every backend.
#include <cstring>
#include <limits>

#include "cli/program.h"
#include "diagnosis/doctor_patients.h"

namespace doppler::testing {
namespace {

struct BadModel {
  const char* name;
  const char* model;
  std::function<void(PatientFolder&)> harm;
  std::vector<const char*> says;
};

std::function<void(PatientFolder&)> tensors(std::function<void(RawTensors&)> change) {
  return [change = std::move(change)](PatientFolder& patient) { patient.change_tensors(change); };
}
std::function<void(PatientFolder&)> described(std::function<void(Json&)> change) {
  return [change = std::move(change)](PatientFolder& patient) { patient.change_json("config.json", change); };
}
// The first value of a BF16 tensor is NaN.
std::function<void(PatientFolder&)> nan_in(std::string name) {
  return tensors([name = std::move(name)](RawTensors& all) {
    RawTensor& tensor = all.at(name);
    const std::uint16_t bits = f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
    ASSERT_EQ(tensor.dtype, DType::kBF16);
    std::memcpy(tensor.bytes.data(), &bits, sizeof bits);
  });
}

std::vector<std::string> answer(const std::filesystem::path& model, const std::string& backend) {
  return {"run",       model.string(), "--prompt-ids",  "1,2,3", "--max-tokens", "3",
          "--context", "64",           "--temperature", "0",     "--backend",    backend};
}

// Nothing is computed of these, so that one backend stands for all.
TEST(BadModels, ThatContradictThemselvesAreRefused) {
  const std::vector<BadModel> cases = {
      {"an expert is missing",
       "glm4_moe",
       tensors([](RawTensors& all) { all.erase("model.layers.1.mlp.experts.2.up_proj.weight"); }),
       {"experts.2.up_proj.weight", "missing"}},
      {"an expert too many",
       "glm4_moe",
       tensors([](RawTensors& all) {
         all["model.layers.1.mlp.experts.99.up_proj.weight"] =
             all.at("model.layers.1.mlp.experts.2.up_proj.weight");
       }),
       {"experts.99.up_proj.weight", "uses it"}},
      {"fewer rows than experts",
       "glm4_moe",
       tensors([](RawTensors& all) {
         RawTensor& router = all.at("model.layers.1.mlp.gate.weight");
         // g++ 12 takes a resize for one that may grow without end.
         router.bytes.erase(router.bytes.end() - static_cast<std::ptrdiff_t>(router.row_bytes()),
                            router.bytes.end());
         --router.shape[0];
       }),
       {"mlp.gate.weight", "asks for"}},
      {"fewer experts in a stack",
       "gpt_oss",
       described([](Json& c) { c["num_local_experts"] = 5; }),
       {"gate_up_proj_blocks", "5 experts"}},
      {"more experts than there are",
       "glm4_moe",
       described([](Json& c) { c["num_experts_per_tok"] = 1000; }),
       {"num_experts_per_tok = 1000"}},
      {"widths whose product is no number",
       "glm4_moe",
       described([](Json& c) { c["hidden_size"] = 2147483646, c["moe_intermediate_size"] = 2147483647; }),
       {"2147483646"}},
      {"states beyond memory",
       "mamba2",
       described([](Json& c) { c["state_size"] = 2147483647; }),
       {"2147483647"}},
      {"too few types of layers",
       "qwen3_5",
       described([](Json& c) { c["layer_types"].erase(0); }),
       {"3 layer_types", "4"}},
  };
  for (const BadModel& bad : cases) {
    SCOPED_TRACE(bad.name);
    PatientFolder patient(bad.model);
    bad.harm(patient);
    const Outcome outcome = doppler(answer(patient.path(), "reference"));
    EXPECT_EQ(outcome.status, 3) << outcome.err;
    for (const char* part : bad.says) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

TEST(BadModels, WhoseStatesAreNotFiniteAreToldOf) {
  std::vector<std::string> backends = {"reference", "cpu"};
  if (!doppler({"inspect", "--gpu", "--json"}).json()["adapters"].empty()) backends.emplace_back("gpu");
  const std::vector<BadModel> cases = {
      {"the decay of a delta net", "qwen3_5", nan_in("model.layers.0.linear_attn.A_log"), {}},
      {"a short convolution", "lfm2", nan_in("model.layers.0.conv.conv.weight"), {}},
      {"the decay of a Mamba 2", "mamba2", nan_in("backbone.layers.0.mixer.A_log"), {}},
      {"a router", "glm4_moe", nan_in("model.layers.1.mlp.gate.weight"), {}},
  };
  for (const BadModel& bad : cases) {
    PatientFolder patient(bad.model);
    bad.harm(patient);
    for (const std::string& backend : backends) {
      SCOPED_TRACE(std::string(bad.name) + " on " + backend);
      const Outcome outcome = doppler(answer(patient.path(), backend));
      EXPECT_EQ(outcome.status, 3) << outcome.err;
      EXPECT_NE(outcome.err.find("so the weights or the computation are broken"), std::string::npos)
          << outcome.err;
    }
  }
}

TEST(BadModels, IdsOutOfRangeAreRefused) {
  const std::string model = model_path("glm4_moe");
  for (const char* ids : {"1,2,99999", "1,-2,3", "4294967299"}) {
    SCOPED_TRACE(ids);
    auto arguments = answer(model, "cpu");
    arguments[3] = ids;
    const Outcome outcome = doppler(arguments);
    EXPECT_TRUE(outcome.status == 2 || outcome.status == 3) << outcome.status << outcome.err;
    EXPECT_FALSE(outcome.err.empty());
  }
}

}  // namespace
}  // namespace doppler::testing
