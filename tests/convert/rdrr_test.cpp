// Models as RDRR packages: the same bytes under the same names, the same spec, the same files each time.
#include <fstream>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "convert/convert.h"
#include "convert/source.h"
#include "formats/rdrr.h"
#include "model/family.h"
#include "testing.h"

namespace doppler::convert {
namespace {

using testing::data_path;
using testing::read_file;
using testing::TempDir;
using testing::write_file;

// Small enough that tensors of the smallest models lie in several.
constexpr std::uint64_t kSmallShards = 10'000;

Result<ConvertReport> keep(const std::filesystem::path& model, const std::filesystem::path& output,
                           RdrrHash hash = RdrrHash::kSha256) {
  return convert_to_rdrr(model, nullptr, output, hash, {.threads = 2}, kSmallShards);
}

void expect_same_tensors(const TensorStore& wanted, const TensorStore& got) {
  ASSERT_EQ(got.tensors().size(), wanted.tensors().size());
  for (const auto& [name, tensor] : wanted.tensors()) {
    const TensorView* const other = got.find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(other->dtype, tensor.dtype) << name;
    EXPECT_EQ(other->shape, tensor.shape) << name;
    EXPECT_TRUE(std::ranges::equal(other->data, tensor.data)) << name;
  }
}

// A package of a folder, and one of that package, say and hold what the folder does.
class PackageOf : public ::testing::TestWithParam<std::string> {};

TEST_P(PackageOf, KeepsEveryBitAndTheSpec) {
  const std::filesystem::path folder = data_path("models/" + GetParam());
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const ConvertReport report, keep(folder, dir / "one"));
  EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
  ASSERT_OK(keep(dir / "one", dir / "two", RdrrHash::kBlake3));
  ASSERT_OK_AND_ASSIGN(const ModelFiles source, open_model_files(folder));
  ASSERT_OK_AND_ASSIGN(const Model model, load_model(folder));
  for (const char* name : {"one", "two"}) {
    ASSERT_OK_AND_ASSIGN(const RdrrPackage package, open_rdrr(dir / name));
    expect_same_tensors(source.tensors, package.tensors);
    ASSERT_OK_AND_ASSIGN(const RdrrPackage pieces, open_rdrr(dir / name, Opening::kPieces));
    EXPECT_EQ(pieces.tensors.copied_bytes(), 0u);
    for (const auto& [tensor_name, tensor] : package.tensors.tensors())
      EXPECT_TRUE(same_bytes(tensor, *pieces.tensors.find(tensor_name)).value()) << tensor_name;
    EXPECT_GT(package.manifest.shards.size(), 1u);
    ASSERT_OK_AND_ASSIGN(const Model loaded, load_model(dir / name));
    EXPECT_EQ(spec_differences(model.spec, loaded.spec), std::vector<std::string>());
    EXPECT_EQ(loaded.spec.eos_ids, model.spec.eos_ids);
    ASSERT_OK_AND_ASSIGN(const RdrrCheck check, check_rdrr(dir / name, [](double, auto) { return true; }));
    EXPECT_TRUE(check.problems.empty());
  }
}

// But those of families that are only guessed.
std::vector<std::string> all_models() {
  const std::set<std::string> guessed = {"arcee", "gpt_bigcode", "vaultgemma"};
  std::vector<std::string> names;
  for (const auto& folder : sorted_entries(data_path("models"))) {
    if (!guessed.contains(folder.filename().string())) names.push_back(folder.filename().string());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, PackageOf, ::testing::ValuesIn(all_models()),
                         [](const auto& model) { return model.param; });

std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& path : sorted_entries(folder)) files[path.filename().string()] = read_file(path);
  return files;
}

TEST(RdrrPackage, IsTheSameWheneverItIsMade) {
  const TempDir first, second;
  const std::filesystem::path folder = data_path("models/llama");
  ASSERT_OK_AND_ASSIGN(const Mix* mix, find_mix("Q4_0"));
  ASSERT_OK(convert_to_rdrr(folder, mix, first / "m", RdrrHash::kSha256, {.threads = 1}, kSmallShards));
  ASSERT_OK(convert_to_rdrr(folder, mix, second / "m", RdrrHash::kSha256, {.threads = 3}, kSmallShards));
  EXPECT_EQ(files_of(first / "m"), files_of(second / "m"));
  // All shards but the last are full.
  ASSERT_OK_AND_ASSIGN(const RdrrManifest manifest, read_rdrr_manifest(first / "m"));
  for (std::size_t i = 0; i + 1 < manifest.shards.size(); ++i)
    EXPECT_EQ(manifest.shards[i].size, kSmallShards);
}

TEST(RdrrPackage, HasItsTensorsInTheOrderOfLoading) {
  const TempDir dir;
  ASSERT_OK(keep(data_path("models/deepseek_v3"), dir / "m"));
  ASSERT_OK_AND_ASSIGN(const RdrrManifest manifest, read_rdrr_manifest(dir / "m"));
  const auto place = [&](std::string_view id) {
    const auto group = std::ranges::find(manifest.groups, id, &RdrrGroup::id);
    EXPECT_NE(group, manifest.groups.end()) << id;
    const RdrrSpan& span = manifest.tensors[group->tensors[0]].spans[0];
    return manifest.shards[span.shard].offset + span.offset;
  };
  EXPECT_EQ(place("embed"), 0u);
  EXPECT_LT(place("layer.0"), place("layer.1"));
  EXPECT_LT(place("layer.1"), place("layer.1.expert.0"));
  EXPECT_LT(place("layer.1.expert.0"), place("layer.1.expert.2"));
  EXPECT_LT(place("layer.1.expert.2"), place("layer.2"));
  EXPECT_LT(place("layer.2"), place("head"));
}

// Blocks of a mix stand where the floats did; what is rearranged at load keeps its floats, and says so.
TEST(RdrrPackage, TakesAMixAndLoads) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const Mix* mix, find_mix("Q8_0"));
  for (const char* name : {"gemma3_k288", "phi3", "gpt2"}) {
    const std::filesystem::path folder = data_path(std::string("models/") + name);
    ASSERT_OK_AND_ASSIGN(const ConvertReport report,
                         convert_to_rdrr(folder, mix, dir / name, RdrrHash::kBlake3, {}, kSmallShards));
    std::size_t blocks = 0, kept = 0;
    for (const TensorReport& tensor : report.tensors) {
      blocks += tensor.type == DType::kQ8_0;
      kept += tensor.reason.starts_with("nothing is computed with it");
    }
    EXPECT_GT(blocks, 0u) << name;
    EXPECT_EQ(kept > 0, name == std::string_view("gpt2")) << name;  // its matrices are [in, out]
    ASSERT_OK(load_model(dir / name));
  }
}

TEST(RdrrPackage, OfAGgufFileHoldsWhatItSays) {
  const TempDir dir;
  ASSERT_OK_AND_ASSIGN(const Mix* mix, find_mix("Q8_0"));
  for (const char* name : {"llama3", "gemma3", "qwen3_5"}) {
    const std::string gguf = std::string(name) + ".gguf", again = std::string(name) + "-again.gguf";
    ASSERT_OK(convert_model(data_path(std::string("models/") + name), *mix, dir / gguf, {}));
    ASSERT_OK(keep(dir / gguf, dir / name));
    ASSERT_OK_AND_ASSIGN(const Model file, load_model(dir / gguf));
    ASSERT_OK_AND_ASSIGN(const Model package, load_model(dir / name));
    EXPECT_EQ(spec_differences(file.spec, package.spec), std::vector<std::string>());
    expect_same_tensors(file.files.tensors, package.files.tensors);
    // And back: the same tensors in a GGUF file.
    ASSERT_OK(convert_model(dir / name, *mix, dir / again, {}));
    ASSERT_OK_AND_ASSIGN(const Model returned, load_model(dir / again));
    expect_same_tensors(file.files.tensors, returned.files.tensors);
  }
}

// A manifest without config describes the decoder itself, as those of other programs do.
TEST(RdrrPackage, IsDescribedByItsManifestAlone) {
  for (const char* name : {"gemma2", "gemma3", "llama", "mistral", "qwen2", "qwen3"}) {
    const TempDir dir;
    const std::filesystem::path folder = data_path(std::string("models/") + name);
    ASSERT_OK(keep(folder, dir / "m"));
    Json manifest = Json::parse(read_file(dir / "m/manifest.json"));
    manifest.erase("config");
    manifest["modelType"] = "transformer";
    write_file(dir / "m/manifest.json", manifest.dump());
    ASSERT_OK_AND_ASSIGN(const Model wanted, load_model(folder));
    ASSERT_OK_AND_ASSIGN(const Model got, load_model(dir / "m"));
    EXPECT_EQ(got.spec.family, "guess");
    EXPECT_EQ(spec_differences(wanted.spec, got.spec), std::vector<std::string>()) << name;

    // Sizes that the tensors deny.
    manifest["architecture"]["maxSeqLen"] = 7;
    manifest["architecture"]["vocabSize"] = 7;
    write_file(dir / "m/manifest.json", manifest.dump());
    EXPECT_ERROR(load_model(dir / "m"),
                 "The manifest says architecture.vocabSize = 7, but by its config and tensors");
  }
}

TEST(RdrrPackage, IsNotWrittenOverAnything) {
  const TempDir dir;
  write_file(dir / "there", "mine");
  EXPECT_ERROR(keep(data_path("models/llama"), dir / "there"), "exists already");
  EXPECT_EQ(read_file(dir / "there"), "mine");
  std::filesystem::create_directory(dir / "new.partial");
  EXPECT_ERROR(keep(data_path("models/llama"), dir / "new"), "left from an earlier try");
  EXPECT_ERROR(keep(data_path("models/nothing"), dir / "x"), "does not exist");
  EXPECT_FALSE(std::filesystem::exists(dir / "x.partial"));

  std::filesystem::remove(dir / "new.partial");
  EXPECT_ERROR(convert_to_rdrr(data_path("models/llama"), nullptr, dir / "new", RdrrHash::kSha256,
                               {.is_cancelled = [] { return true; }}),
               "interrupted");
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
  EXPECT_FALSE(std::filesystem::exists(dir / "new.partial"));
}

}  // namespace
}  // namespace doppler::convert
