// GGUF files that a converter or a hand made wrong: the doctor names what happened, also where loading has
// put rows into another order since.
#include "diagnosis/doctor_patients.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace doppler::diagnosis {
namespace {

using testing::all_findings;
using testing::data_path;
using testing::examine;
using testing::RawTensor;
using testing::RawTensors;

struct GgufCase {
  const char *name, *file;  // of tests/data/gguf
  const char *cause, *stage;
  int layer;
  const char* dropped_key;  // of the metadata; null: none
  std::function<void(RawTensors&)> harm;
};

// Bytes `a` and `a + 1` of every block.
void swap_bytes(RawTensor& tensor, std::size_t block, std::size_t a) {
  for (std::size_t at = 0; at < tensor.bytes.size(); at += block)
    std::swap(tensor.bytes[at + a], tensor.bytes[at + a + 1]);
}

const std::vector<GgufCase>& gguf_cases() {
  static const std::vector<GgufCase> kCases = {
      {"keys_and_values", "llama", "tensor_swapped", "k_proj", 1, nullptr,
       [](RawTensors& t) { std::swap(t.at("blk.1.attn_k.weight"), t.at("blk.1.attn_v.weight")); }},
      {"transposed_queries", "llama3", "weight_transposed", "q_proj", 0, nullptr,
       [](RawTensors& t) { t.at("blk.0.attn_q.weight").transpose(); }},
      {"embedding_and_head", "llama", "tensor_swapped", "embed_out", -1, nullptr,
       [](RawTensors& t) { std::swap(t.at("output.weight"), t.at("token_embd.weight")); }},
      {"half_the_vocabulary", "llama3", "weight_shifted", "embed_out", -1, nullptr,
       [](RawTensors& t) {
         t.at("token_embd.weight").permute([](std::size_t r) { return (r + 100) % 256; });
       }},
      {"rows_not_restored", "qwen2", "weight_permuted", "q_proj", 0, nullptr,
       [](RawTensors& t) {
         for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_q.bias"}) {
           RawTensor& tensor = t.at(name);
           const std::vector<std::byte> was = tensor.bytes;
           const std::size_t row = was.size() / tensor.shape[0], dim = 16;
           for (std::size_t r = 0; r < tensor.shape[0]; ++r) {
             const std::size_t i = r % dim, from = r / dim * dim + (i % 2) * dim / 2 + i / 2;
             std::memcpy(&tensor.bytes[r * row], &was[from * row], row);
           }
         }
       }},
      {"padding_left_out", "llama.Q4_0", "weight_shifted", "ffn_gate", 0, nullptr,
       [](RawTensors& t) {
         auto& bytes = t.at("blk.0.ffn_gate.weight").bytes;
         std::rotate(bytes.begin(), bytes.begin() + 32, bytes.end());
       }},
      {"big_endian_scales", "llama.Q8_0", "wrong_dtype", "ffn_up", 0, nullptr,
       [](RawTensors& t) { swap_bytes(t.at("blk.0.ffn_up.weight"), 34, 0); }},
      {"another_block_type", "llama.Q4_0", "wrong_dtype", "ffn_gate", 1, nullptr,
       [](RawTensors& t) { t.at("blk.1.ffn_gate.weight").dtype = DType::kIQ4_NL; }},
      {"every_nibble", "llama.Q4_0", "nibble_order", "q_proj", 0, nullptr,
       [](RawTensors& all) {
         for (auto& [name, t] : all) {
           if (t.dtype != DType::kQ4_0 || !name.starts_with("blk.")) continue;
           for (std::size_t i = 0; i < t.bytes.size(); ++i) {
             if (i % 18 >= 2) t.bytes[i] = (t.bytes[i] << 4) | (t.bytes[i] >> 4);
           }
         }
       }},
      {"damaged", "llama3", "weight_wrong", "ffn_up", 1, nullptr,
       [](RawTensors& t) {
         t.at("blk.1.ffn_up.weight").each([](float x) { return std::clamp(x, -0.1f, 0.1f); });
       }},
      {"no_window", "gemma3", "sliding_window", "q_rope", 0, "gemma3.attention.sliding_window", {}},
      {"no_epsilon", "llama", "norm_eps", "", -1, "llama.attention.layer_norm_rms_epsilon", {}},
      {"too_few_blocks", "qwen2", "layer_count", "", -1, "qwen2.block_count", {}},
  };
  return kCases;
}

void write_patient(const GgufCase& c, const std::filesystem::path& path) {
  ASSERT_OK_AND_ASSIGN(const GgufFile file, open_gguf(data_path(std::string("gguf/") + c.file + ".gguf")));
  RawTensors tensors;
  for (const auto& [name, tensor] : file.tensors.tensors())
    tensors[name] = {tensor.dtype, tensor.shape, {tensor.data.begin(), tensor.data.end()}};
  if (c.harm) c.harm(tensors);
  ASSERT_OK_AND_ASSIGN(GgufWriter writer, GgufWriter::create(path));
  for (const GgufMetadata::Entry& entry : file.metadata.entries()) {
    if (c.dropped_key == nullptr || entry.key != c.dropped_key) ASSERT_OK(writer.add_entry(entry));
  }
  if (c.dropped_key != nullptr && std::string(c.dropped_key) == "qwen2.block_count")
    ASSERT_OK(writer.add<std::uint32_t>(c.dropped_key, 2));
  for (const auto& [name, tensor] : tensors)
    ASSERT_OK(writer.declare_tensor(name, tensor.dtype, tensor.shape));
  ASSERT_OK(writer.write_header());
  for (const auto& [name, tensor] : tensors) ASSERT_OK(writer.write_tensor_data(tensor.bytes));
  ASSERT_OK(writer.finish());
}

class GgufPatient : public ::testing::TestWithParam<std::size_t> {};

TEST_P(GgufPatient, IsNamedFirst) {
  const GgufCase& c = gguf_cases()[GetParam()];
  const testing::TempDir folder;
  const auto path = folder / "patient.gguf";
  ASSERT_NO_FATAL_FAILURE(write_patient(c, path));
  const std::string model(c.file, std::string_view(c.file).find_first_of('.') == std::string_view::npos
                                      ? std::string_view(c.file).size()
                                      : std::string_view(c.file).find_first_of('.'));
  ASSERT_OK_AND_ASSIGN(const Diagnosis diagnosis,
                       examine(path, data_path("models") / model / "reference.safetensors"));
  ASSERT_FALSE(diagnosis.healthy());
  const Finding& first = diagnosis.findings[0];
  EXPECT_EQ(first.cause, c.cause) << all_findings(diagnosis);
  EXPECT_EQ(diagnosis.findings.size(), first.stage == "embed_out" ? diagnosis.findings.size() : 1u)
      << all_findings(diagnosis);
  if (*c.stage != '\0') {
    EXPECT_EQ(first.stage, c.stage) << all_findings(diagnosis);
    EXPECT_EQ(first.layer, c.layer);
  }
  EXPECT_FALSE(first.repair.empty());
}

INSTANTIATE_TEST_SUITE_P(Doctor, GgufPatient, ::testing::Range(std::size_t{0}, gguf_cases().size()),
                         [](const auto& test) { return gguf_cases()[test.param].name; });

}  // namespace
}  // namespace doppler::diagnosis
