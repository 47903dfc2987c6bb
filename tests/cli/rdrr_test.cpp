// RDRR packages as a user meets them: made, run, checked, refused.
#include <fmt/format.h>

#include "base/json.h"
#include "cli/program.h"

namespace doppler {
namespace {

using testing::doppler;
using testing::model_path;
using testing::Outcome;
using testing::TempDir;

Json ids_of(const std::string& model) {
  const Outcome outcome = doppler({"run", model, "--prompt-ids", "2,5,9,11", "--max-tokens", "12",
                                   "--ignore-eos", "--backend", "cpu", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.json()["ids"];
}

TEST(Rdrr, GivesTheSameTokensAsWhatItWasMadeOf) {
  const TempDir dir;
  const std::string package = dir / "package", blocks = dir / "blocks", gguf = dir / "m.gguf",
                    of_gguf = dir / "g";
  const std::string folder = model_path("gemma3");
  const Outcome made =
      doppler({"convert", folder, "-o", package, "--format", "rdrr", "--type", "keep", "--json"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(made.json()["type"], "keep");
  EXPECT_TRUE(made.json()["warnings"].empty());
  EXPECT_EQ(ids_of(package), ids_of(folder));
  EXPECT_EQ(ids_of(package + "/manifest.json"), ids_of(folder));

  ASSERT_EQ(doppler({"convert", folder, "-o", gguf, "--type", "Q8_0"}).status, 0);
  ASSERT_EQ(doppler({"convert", gguf, "-o", of_gguf, "--format", "rdrr", "--type", "keep"}).status, 0);
  EXPECT_EQ(ids_of(of_gguf), ids_of(gguf));
  const Outcome told =
      doppler({"convert", folder, "-o", blocks, "--format", "rdrr", "--type", "Q8_0", "--hash", "blake3"});
  ASSERT_EQ(told.status, 0) << told.err;
  EXPECT_NE(told.err.find("gemma3 in Q8_0"), std::string::npos) << told.err;
  EXPECT_EQ(ids_of(blocks), ids_of(gguf));
}

TEST(Rdrr, IsInspectedAndChecked) {
  const TempDir dir;
  const std::string package = dir / "package";
  ASSERT_EQ(
      doppler({"convert", model_path("gemma3"), "-o", package, "--format", "rdrr", "--type", "keep"}).status,
      0);
  const Json facts = doppler({"inspect", package, "--json"}).json()["package"];
  EXPECT_EQ(facts["id"], "package");
  EXPECT_EQ(facts["hash"], "sha256");
  EXPECT_NE(doppler({"inspect", package}).out.find("RDRR package package"), std::string::npos);

  const Outcome good = doppler({"inspect", package, "--check", "--json"});
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_TRUE(good.json()["problems"].empty());
  EXPECT_EQ(good.json()["shards"], 1);
  EXPECT_NE(doppler({"inspect", package, "--check"}).out.find("all hashes are those of the manifest"),
            std::string::npos);

  std::string bytes = testing::read_file(package + "/shard_00000.bin");
  bytes[bytes.size() / 2] ^= 1;
  testing::write_file(package + "/shard_00000.bin", bytes);
  const Outcome bad = doppler({"inspect", package, "--check", "--json"});
  EXPECT_EQ(bad.status, 1);
  EXPECT_EQ(bad.json()["problems"][0]["file"], "shard_00000.bin");
  EXPECT_EQ(doppler({"inspect", package, "--check"}).status, 1);
  EXPECT_REFUSAL(doppler({"inspect", model_path("gemma3"), "--check"}), 2, "is no RDRR package");
  EXPECT_REFUSAL(doppler({"inspect", package, "--check", "--context", "9"}), 2, "--context");
}

TEST(Rdrr, RefusesWhatMeansNothing) {
  const TempDir dir;
  const std::string out = dir / "out", llama = model_path("llama");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", out + ".gguf", "--type", "keep"}), 2, "for --format rdrr");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", out + ".gguf", "--hash", "blake3"}), 2, "--format rdrr");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", out, "--format", "rdrr", "--hash", "md5"}), 2, "md5");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", out, "--format", "onnx"}), 2, "onnx");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", out, "--format", "rdrr", "--no-tokenizer"}), 2,
                 "--no-tokenizer");
  EXPECT_REFUSAL(doppler({"convert", llama, "--format", "rdrr"}), 2, "-o FOLDER --format rdrr");
  EXPECT_REFUSAL(doppler({"convert", llama, "-o", dir.path(), "--format", "rdrr"}), 2, "exists already");
}

// What a person reads first when a download was not whole, or lies.
TEST(Rdrr, SaysWhatIsWrongWithAPackage) {
  const TempDir dir;
  const std::string package = dir / "package";
  ASSERT_EQ(
      doppler({"convert", model_path("llama"), "-o", package, "--format", "rdrr", "--type", "keep"}).status,
      0);
  const std::string text = testing::read_file(package + "/manifest.json");
  const auto with = [&](const std::string& key, const Json& value) {
    Json manifest = Json::parse(text);
    manifest[Json::json_pointer(key)] = value;
    testing::write_file(package + "/manifest.json", manifest.dump());
  };
  with("/architecture/hiddenSize", 63);
  EXPECT_REFUSAL(doppler({"inspect", package}), 3, "The manifest says architecture.hiddenSize = 63");
  with("/totalSize", 5);
  EXPECT_REFUSAL(doppler({"run", package, "Hello"}), 3, "totalSize is 5");
  with("/inference/attention/queryPreAttnScalar", 16.5);
  const Outcome warned = doppler({"inspect", package});
  EXPECT_EQ(warned.status, 0);
  EXPECT_NE(warned.err.find("inference.attention.queryPreAttnScalar = 16.5, but"), std::string::npos)
      << warned.err;
  testing::write_file(package + "/manifest.json", text);
  EXPECT_EQ(doppler({"inspect", package}).err, "");
  std::filesystem::remove(package + "/shard_00000.bin");
  EXPECT_REFUSAL(doppler({"run", package, "Hello"}), 3, "shard_00000.bin", "is missing. Download it.");
}

}  // namespace
}  // namespace doppler
