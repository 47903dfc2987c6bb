// GGUF files of models with latent attention, of which one architecture holds several families.
#include "convert/convert.h"
#include "convert/source.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "model_fixture.h"
#include "testing.h"

namespace doppler::convert {
namespace {

using testing::TempDir;
using testing::TinyModel;

// A tiny folder of the family with these values, converted.
Result<ConvertReport> convert_changed(const TempDir& dir, const std::string& family, const Json& change) {
  Json config = testing::tiny_config(family);
  config.update(change);
  const TinyModel tiny(family, config);
  std::filesystem::create_directory(dir / "model");
  DOPPLER_TRY(tiny.write(dir / "model"));
  DOPPLER_ASSIGN(const Mix* exact, find_mix("F32"));
  return convert_model(dir / "model", *exact, dir / "out.gguf", {});
}

// The file's spec if it did not have the key, or this value of it.
Result<ModelSpec> read_with(const std::filesystem::path& file, const TempDir& dir, std::string_view key,
                            std::optional<std::uint32_t> value) {
  DOPPLER_ASSIGN(const GgufFile written, open_gguf(file));
  DOPPLER_ASSIGN(GgufWriter copy, GgufWriter::create(dir / "copy.gguf"));
  for (const GgufMetadata::Entry& entry : written.metadata.entries()) {
    if (entry.key != key) DOPPLER_TRY(copy.add_entry(entry));
  }
  if (value) DOPPLER_TRY(copy.add<std::uint32_t>(std::string(key), *value));
  DOPPLER_ASSIGN(const GgufMetadata metadata, copy.metadata());
  return read_gguf_spec(metadata, written.tensors);
}

struct Variant {
  const char *family, *architecture;
  Json change;
};

TEST(LatentFiles, ReadBackAsTheSameModel) {
  const Json plain = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
  Json yarn = {{"rope_type", "yarn"}, {"factor", 8.0},         {"original_max_position_embeddings", 8},
               {"mscale", 0.7},       {"mscale_all_dim", 0.7}, {"rope_theta", 10000.0}};
  Json scaled_queries = plain;
  scaled_queries.update({{"llama_4_scaling_beta", 0.2}, {"original_max_position_embeddings", 4}});
  const Variant variants[] = {
      {"deepseek_v2", "deepseek2", {{"n_shared_experts", 0}}},
      {"deepseek_v3", "deepseek2", {{"routed_scaling_factor", 1.0}, {"first_k_dense_replace", 0}}},
      {"glm4_moe_lite", "deepseek2", Json::object()},
      {"glm4_moe_lite", "deepseek2", {{"norm_topk_prob", false}, {"routed_scaling_factor", 1.0}}},
      {"glm4_moe_lite", "deepseek2", {{"n_group", 4}, {"topk_group", 2}, {"q_lora_rank", nullptr}}},
      {"glm4_moe_lite", "deepseek2", {{"rope_parameters", yarn}}},
      {"mistral4", "mistral4", Json::object()},
      {"mistral4", "mistral4", {{"norm_topk_prob", false}, {"n_group", 4}, {"topk_group", 2}}},
      {"mistral4", "mistral4", {{"q_lora_rank", nullptr}, {"rope_parameters", scaled_queries}}},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(fmt::format("{} {}", variant.family, variant.change.dump()));
    const TempDir dir;
    ASSERT_OK_AND_ASSIGN(const ConvertReport report, convert_changed(dir, variant.family, variant.change));
    EXPECT_EQ(report.architecture, variant.architecture);
    ASSERT_OK_AND_ASSIGN(const Model folder, load_model(dir / "model"));
    ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
    EXPECT_EQ(spec_differences(folder.spec, read.spec), std::vector<std::string>());
    // Queries keep their pairs' places wherever the family's class does.
    EXPECT_EQ(read.spec.layers[1].attention.rope.layout, folder.spec.layers[1].attention.rope.layout);
  }
}

TEST(LatentFiles, WhatTheirArchitectureCannotSayIsNamed) {
  const Json llama3 = {{"rope_type", "llama3"},  {"factor", 8.0},
                       {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0},
                       {"rope_theta", 10000.0},  {"original_max_position_embeddings", 8}};
  const TempDir a, b, c;
  EXPECT_ERROR(convert_changed(a, "mistral4", {{"rope_interleave", false}}),
               "attention.rope.layout is interleaved, not half");
  EXPECT_ERROR(convert_changed(b, "glm4_moe_lite", {{"mlp_layer_types", {"sparse", "dense", "sparse"}}}),
               "GGUF cannot hold this model");
  EXPECT_ERROR(convert_changed(c, "glm4_moe_lite", {{"rope_parameters", llama3}}),
               "attention.rope.scaling is none, not llama3");
}

// GLM 4.7 Flash's config.json has no scoring_func, so that files of it may have no such key.
TEST(LatentFiles, ACorrectionOfScoresMakesThemSigmoids) {
  const TempDir dir;
  constexpr std::string_view kKey = "deepseek2.expert_gating_func";
  ASSERT_OK(convert_changed(dir, "glm4_moe_lite", Json::object()));
  ASSERT_OK_AND_ASSIGN(const ModelSpec silent, read_with(dir / "out.gguf", dir, kKey, std::nullopt));
  EXPECT_EQ(silent.layers[1].ffn.router.score, RouterScore::kSigmoid);
  EXPECT_TRUE(silent.layers[1].ffn.router.correction);
  EXPECT_ERROR(read_with(dir / "out.gguf", dir, kKey, 4), "deepseek2.expert_gating_func = 4",
               "does not know");
}

// Queries grow with their position by numbers of their own keys.
TEST(LatentFiles, MistralsQueriesGrowAsTheirKeysSay) {
  const TempDir dir;
  const Json yarn = {{"rope_type", "yarn"},
                     {"factor", 8.0},
                     {"original_max_position_embeddings", 8},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"rope_theta", 10000.0},
                     {"llama_4_scaling_beta", 0.1}};
  ASSERT_OK(convert_changed(dir, "mistral4", {{"rope_parameters", yarn}}));
  ASSERT_OK_AND_ASSIGN(const Model read, load_model(dir / "out.gguf"));
  EXPECT_GT(read.spec.layers[0].attention.query_scale.every, 0u);
  EXPECT_NE(read.files.tensors.find("blk.1.ffn_gate_up_exps.weight"), nullptr);
  constexpr const char* kLength = "mistral4.attention.temperature_length";
  EXPECT_ERROR(read_with(dir / "out.gguf", dir, kLength, 3), "temperature_length = 3",
               "original_context_length");
}

}  // namespace
}  // namespace doppler::convert
