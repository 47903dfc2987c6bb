// Llama 4's GGUF files, where llama.cpp's format can say what the folder does.
#include <fmt/format.h>

#include <utility>

#include "convert/convert.h"
#include "convert/source.h"
#include "formats/gguf.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler::convert {
namespace {

using testing::TempDir;
using testing::TinyModel;

// Experts in every second layer, of four layers the last without rope and without chunks.
Json llama4_config(std::uint64_t chunk) {
  Json config = testing::tiny_config("llama4_text");
  config.update({{"num_hidden_layers", 4},
                 {"attention_chunk_size", chunk},
                 {"floor_scale", 8192},
                 {"no_rope_layers", {1, 1, 1, 0}},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 1},
                 {"interleave_moe_layer_step", 2},
                 {"intermediate_size_mlp", 64}});
  return config;
}

Result<ConvertReport> convert_llama4(const TempDir& dir, std::uint64_t chunk) {
  TinyModel tiny("llama4_text", llama4_config(chunk));
  // Folders have an expert's columns first, and gates and ups as one tensor; any numbers will do.
  for (const char* layer : {"1", "3"}) {
    const std::string experts = fmt::format("model.layers.{}.feed_forward.experts.", layer);
    testing::TinyTensor gate_up = tiny.tensors.at(experts + "gate_proj");
    const testing::TinyTensor up = tiny.tensors.at(experts + "up_proj");
    gate_up.bytes.insert(gate_up.bytes.end(), up.bytes.begin(), up.bytes.end());
    gate_up.shape = {gate_up.shape[0], gate_up.shape[2], 2 * gate_up.shape[1]};
    tiny.tensors.erase(experts + "gate_proj");
    tiny.tensors.erase(experts + "up_proj");
    tiny.tensors[experts + "gate_up_proj"] = std::move(gate_up);
    testing::TinyTensor& down = tiny.tensors.at(experts + "down_proj");
    std::swap(down.shape[1], down.shape[2]);
  }
  std::filesystem::create_directory(dir / "model");
  DOPPLER_TRY(tiny.write(dir / "model"));
  DOPPLER_ASSIGN(const Mix* exact, find_mix("F32"));
  return convert_model(dir / "model", *exact, dir / "out.gguf", {});
}

TEST(Llama4Gguf, ReadsBackAsTheSameModel) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const ConvertReport report, convert_llama4(dir, 8192));
  EXPECT_EQ(report.architecture, "llama4");
  ASSERT_OK_AND_ASSIGN(const Model folder, load_model(dir / "model"));
  ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
  EXPECT_EQ(spec_differences(folder.spec, read.spec), std::vector<std::string>());
  EXPECT_EQ(read.spec.layers[0].attention.kind, AttentionKind::kChunked);
  EXPECT_EQ(read.spec.layers[0].attention.window, 8192u);
  EXPECT_EQ(read.spec.layers[3].attention.kind, AttentionKind::kFull);
  EXPECT_EQ(read.spec.layers[3].attention.rope.rotary_dim, 0u);
  EXPECT_EQ(read.spec.layers[0].ffn.experts, 0u);
  EXPECT_EQ(read.spec.layers[1].ffn.experts, 4u);
  EXPECT_EQ(read.spec.layers[0].ffn.width, 64u);
}

TEST(Llama4Gguf, ChunksThatLlamaCppDoesNotKnowAreNamed) {
  const TempDir dir;
  EXPECT_ERROR(convert_llama4(dir, 8), "8192, not 8 in layer 0");
  EXPECT_FALSE(std::filesystem::exists(dir / "out.gguf"));
}

}  // namespace
}  // namespace doppler::convert
