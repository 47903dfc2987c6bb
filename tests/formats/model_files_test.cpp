// What a user may point at: folders and files, whole, broken, incomplete and of the wrong kind.
#include "formats/model_files.h"

#include "base/json.h"
#include "formats/safetensors.h"
#include "tensors.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::data_path;
using testing::TempDir;
using testing::write_file;

void write_weights(const std::filesystem::path& file, const std::vector<std::string>& names) {
  static const std::vector<std::byte> data(8);
  std::vector<TensorView> tensors;
  for (const std::string& name : names) tensors.push_back({name, DType::kF32, {2}, data});
  ASSERT_OK(testing::write_tensors(file, tensors));
}

std::string index_of(const std::string& weight_map) {
  return "{\"metadata\":{\"total_size\":16},\"weight_map\":{" + weight_map + "}}";
}

TEST(ModelFiles, AFolderOrItsSafetensorsFileOpenTheSame) {
  ASSERT_OK_AND_ASSIGN(const ModelFiles folder, open_model_files(data_path("models/gemma3")));
  ASSERT_OK_AND_ASSIGN(const ModelFiles file, open_model_files(data_path("models/gemma3/model.safetensors")));
  EXPECT_EQ(*folder.config, *file.config);
  EXPECT_EQ(folder.tensors.tensors().size(), file.tensors.tensors().size());
  EXPECT_EQ(file.folder, data_path("models/gemma3"));
  ASSERT_OK_AND_ASSIGN(const Json config, read_config(data_path("models/gemma3")));
  EXPECT_EQ(config, *folder.config);
}

TEST(ModelFiles, TheOnlySafetensorsFileOfAFolderIsTheModel) {
  TempDir dir;
  write_file(dir / "config.json", "{}");
  write_weights(dir / "weights.safetensors", {"w"});
  write_weights(dir / ".hidden.safetensors", {"h"});
  ASSERT_OK_AND_ASSIGN(const ModelFiles model, open_model_files(dir.path()));
  EXPECT_NE(model.tensors.find("w"), nullptr);
  EXPECT_FALSE(model.generation_config.has_value());
  write_weights(dir / "more.safetensors", {"x"});
  EXPECT_ERROR(open_model_files(dir.path()), "2 .safetensors files (more.safetensors, weights.safetensors)",
               "index");
  write_weights(dir / "model.safetensors", {"m"});
  ASSERT_OK_AND_ASSIGN(const ModelFiles named, open_model_files(dir.path()));
  EXPECT_NE(named.tensors.find("m"), nullptr);
}

TEST(ModelFiles, WhatIsNotThereIsNamed) {
  TempDir dir;
  EXPECT_ERROR(open_model_files(dir / "nothing"), "nothing", "does not exist", "Check the path");
  EXPECT_ERROR(open_model_files(dir.path()), "holds no weights", "model.safetensors", "Download");
  write_file(dir / "config.json", "{}");
  EXPECT_ERROR(open_model_files(dir.path()), "holds no weights");
  std::filesystem::remove(dir / "config.json");
  write_weights(dir / "model.safetensors", {"w"});
  EXPECT_ERROR(open_model_files(dir.path()), "holds no config.json");
  EXPECT_ERROR(open_model_files(dir / "model.safetensors"), "holds no config.json");
  EXPECT_EQ(open_model_files(dir.path()).error().code, ErrorCode::kNotFound);
}

TEST(ModelFiles, OtherFormatsSayWhatIsRead) {
  TempDir dir;
  for (const char* name : {"pytorch_model.bin", "model.pt", "model.onnx", "notes.txt"}) {
    write_file(dir / name, "x");
    const auto model = open_model_files(dir / name);
    EXPECT_ERROR(model, name, "Doppler reads", "config.json", ".safetensors");
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  }
  EXPECT_ERROR(open_model_files(dir.path()), "holds model.onnx (an ONNX model)",
               "neither .safetensors nor .gguf", "convert it");
}

TEST(ModelFiles, AConfigThatIsNoObjectOrNoJsonIsAnError) {
  TempDir dir;
  write_weights(dir / "model.safetensors", {"w"});
  const auto with_config = [&](const std::string& text) {
    write_file(dir / "config.json", text);
    return open_model_files(dir.path());
  };
  EXPECT_ERROR(with_config("[1, 2]"), "config.json", "kind array", "object");
  EXPECT_ERROR(with_config(""), "config.json", "not valid JSON");
  EXPECT_ERROR(with_config("{\n\"rope_theta\": nan}"), "config.json", "line 2, column 16");
  EXPECT_ERROR(with_config(std::string(17 << 20, ' ')), "config.json", "17825792 bytes", "right file");
  EXPECT_ERROR(with_config("{\"a\":" + std::string(100'000, '[')), "config.json", "deeper than");
  write_file(dir / "config.json", "{}");
  write_file(dir / "generation_config.json", "7");
  EXPECT_ERROR(open_model_files(dir.path()), "generation_config.json", "kind number");
}

TEST(ModelFiles, AFolderInAFilesPlaceSaysSo) {
  TempDir dir;
  write_weights(dir / "model.safetensors", {"w"});
  std::filesystem::create_directory(dir / "config.json");
  EXPECT_ERROR(open_model_files(dir.path()), "config.json", "not a regular file");
}

TEST(ModelFiles, ADamagedWeightFileIsNamed) {
  TempDir dir;
  write_file(dir / "config.json", "{}");
  write_file(dir / "model.safetensors", "neither a length nor a brace\n");
  EXPECT_ERROR(open_model_files(dir.path()), "model.safetensors", "Check that it is a safetensors file");
}

TEST(ModelFiles, WhatStandsForAModelIsNamed) {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
  for (const char* name : {"model.safetensors", "model.gguf", "sha256-0"}) {
    TempDir dir;
    write_file(dir / "config.json", "{}");
    write_file(dir / name, pointer);
    EXPECT_ERROR(open_model_files(dir / name), name, "Git LFS pointer", "git lfs pull", "doppler pull");
    write_file(dir / name, "\n<!doctype html><html>");
    EXPECT_ERROR(open_model_files(dir / name), name, "web page");
  }
  // A clone without Git LFS: the index is there, the shards are pointers.
  TempDir clone;
  write_file(clone / "config.json", "{}");
  write_file(clone / "model.safetensors.index.json", index_of(R"("a":"one.safetensors")"));
  write_file(clone / "one.safetensors", pointer);
  EXPECT_ERROR(open_model_files(clone.path()), "one.safetensors", "Git LFS pointer");
}

TEST(ModelFiles, AnAdapterIsNoModel) {
  TempDir dir;
  write_file(dir / "adapter_config.json", R"({"base_model_name_or_path": "google/gemma-3-1b-it"})");
  write_weights(dir / "adapter_model.safetensors", {"lora_A"});
  EXPECT_ERROR(open_model_files(dir.path()), "LoRA adapter", "for the model google/gemma-3-1b-it", "Merge");
  write_file(dir / "adapter_config.json", "damaged");
  EXPECT_ERROR(open_model_files(dir.path()), "LoRA adapter", "Merge");
}

TEST(ModelFiles, MistralsOwnLayoutIsNamed) {
  TempDir dir;
  write_file(dir / "config.json", "{}");
  write_weights(dir / "consolidated.safetensors", {"w"});
  EXPECT_ERROR(open_model_files(dir.path()), "consolidated.safetensors", "Mistral's own layout");
  write_weights(dir / "weights.safetensors", {"m"});
  ASSERT_OK_AND_ASSIGN(const ModelFiles model, open_model_files(dir.path()));
  EXPECT_NE(model.tensors.find("m"), nullptr);
}

TEST(ModelFiles, WeightsWithoutAnEndingAreKnownByTheirFirstBytes) {
  TempDir dir;
  std::filesystem::copy(data_path("gguf/llama.gguf"), dir / "sha256-0");
  ASSERT_OK_AND_ASSIGN(const ModelFiles gguf, open_model_files(dir / "sha256-0"));
  EXPECT_TRUE(gguf.gguf.has_value());
  write_file(dir / "config.json", "{}");
  write_weights(dir / "0123abc", {"w"});
  ASSERT_OK_AND_ASSIGN(const ModelFiles safetensors, open_model_files(dir / "0123abc"));
  EXPECT_NE(safetensors.tensors.find("w"), nullptr);
}

TEST(ModelFiles, AFolderOfTheHuggingFaceCacheIsItsSnapshot) {
  TempDir dir;
  const std::string old(40, '1'), newest(40, '2');
  for (const std::string& commit : {old, newest}) {
    std::filesystem::create_directories(dir / "snapshots" / commit);
    write_file(dir / "snapshots" / commit / "config.json", "{}");
    write_weights(dir / "snapshots" / commit / "model.safetensors", {"w" + commit});
  }
  std::filesystem::create_directory(dir / "refs");
  write_file(dir / "refs/main", newest);
  ASSERT_OK_AND_ASSIGN(const ModelFiles model, open_model_files(dir.path()));
  EXPECT_NE(model.tensors.find("w" + newest), nullptr);
  write_file(dir / "refs/main", "../../elsewhere");
  EXPECT_ERROR(open_model_files(dir.path()), "holds no weights");
}

class Sharded : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(dir_ / "config.json", "{}");
    write_weights(dir_ / "one.safetensors", {"a", "b"});
    write_weights(dir_ / "two.safetensors", {"c"});
  }
  Result<ModelFiles> opened(const std::string& index) {
    write_file(dir_ / "model.safetensors.index.json", index);
    return open_model_files(dir_.path());
  }
  TempDir dir_;
};

TEST_F(Sharded, AllShardsMakeOneModel) {
  ASSERT_OK_AND_ASSIGN(
      const ModelFiles model,
      opened(index_of(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")")));
  EXPECT_EQ(model.tensors.tensors().size(), 3u);
  EXPECT_EQ(model.tensors.files().size(), 2u);
  ASSERT_OK_AND_ASSIGN(const ModelFiles same, open_model_files(dir_ / "model.safetensors.index.json"));
  EXPECT_EQ(same.tensors.tensors().size(), 3u);
}

TEST_F(Sharded, AMissingShardIsNamed) {
  const auto model =
      opened(index_of(R"("a":"one.safetensors","b":"one.safetensors","c":"three.safetensors")"));
  EXPECT_ERROR(model, "shard three.safetensors", "is missing", "Download it");
  EXPECT_EQ(model.error().code, ErrorCode::kNotFound);
}

TEST_F(Sharded, IndexAndShardsMustAgree) {
  EXPECT_ERROR(opened(index_of(R"("a":"one.safetensors","c":"two.safetensors")")), "shard one.safetensors",
               "tensor b", "does not name");
  EXPECT_ERROR(opened(index_of(R"("a":"one.safetensors","b":"two.safetensors","c":"two.safetensors")")),
               "shard one.safetensors", "tensor b", "puts into two.safetensors");
  EXPECT_ERROR(
      opened(index_of(
          R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors","d":"two.safetensors")")),
      "tensor d into two.safetensors", "does not hold it");
}

TEST_F(Sharded, NoFileNameLeavesTheFolder) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "..", ".", "", "sub/one.safetensors",
                           "sub\\\\one", "one\\u0000.safetensors"}) {
    EXPECT_ERROR(opened(index_of(std::string("\"a\":\"") + name + "\"")), "tensor a",
                 "not the name of a file beside it");
  }
  EXPECT_ERROR(opened(index_of("\"a\":7")), "tensor a into 7");
}

TEST_F(Sharded, AnIndexOfAnotherShapeIsAnError) {
  EXPECT_ERROR(opened("[]"), "index.json", "no object weight_map");
  EXPECT_ERROR(opened("{}"), "no object weight_map");
  EXPECT_ERROR(opened("{\"weight_map\":[]}"), "no object weight_map");
  EXPECT_ERROR(opened(index_of("")), "empty weight_map");
  EXPECT_ERROR(opened("{\"weight_map\":"), "not valid JSON");
}

TEST_F(Sharded, OneShardOfManyIsNotAModel) {
  ASSERT_TRUE(
      opened(index_of(R"("a":"one.safetensors","b":"one.safetensors","c":"two.safetensors")")).has_value());
  EXPECT_ERROR(open_model_files(dir_ / "two.safetensors"), "two.safetensors", "one of 2 shards",
               "Give the folder");
}

}  // namespace
}  // namespace doppler
