// What lies on this machine: the Hugging Face cache, and Ollama's store.
#include "hub/hub_server.h"  // its hashes
#include "hub/ollama.h"
#include "hub/pull.h"
#include "testing.h"

namespace doppler::hub {
namespace {

using testing::read_file;
using testing::sha256_of;
using testing::TempDir;
using testing::write_file;

namespace fs = std::filesystem;

const std::string kFirst(40, '1'), kSecond(40, '2');

class Stores : public ::testing::Test {
 protected:
  // A file of a snapshot as Hugging Face's programs leave it.
  void cache(const std::string& commit, const std::string& path, const std::string& bytes) {
    const fs::path folder = cache_ / "models--org--name", link = folder / "snapshots" / commit / path;
    fs::create_directories(folder / "blobs");
    fs::create_directories(link.parent_path());
    write_file(folder / "blobs" / sha256_of(bytes), bytes);
    fs::create_symlink(fs::relative(folder / "blobs" / sha256_of(bytes), link.parent_path()), link);
  }
  void ref(const std::string& name, const std::string& commit) {
    fs::create_directories(cache_ / "models--org--name/refs");
    write_file(cache_ / "models--org--name/refs" / name, commit);
  }
  Result<std::optional<FoundModel>> find(const std::string& name) {
    return find_in_cache(cache_, *parse_name(name), std::nullopt);
  }
  bool has_blob(const std::string& bytes) const {
    return fs::exists(cache_ / "models--org--name/blobs" / sha256_of(bytes));
  }
  void remove(const std::string& name) {
    ASSERT_OK_AND_ASSIGN(const Removal removal, plan_removal(cache_, *parse_name(name)));
    ASSERT_OK(hub::remove(removal));
  }

  // A model of Ollama's with these layers: kind and bytes.
  void ollama(const std::string& path, const std::vector<std::pair<std::string, std::string>>& layers) {
    Json list = Json::array();
    fs::create_directories(store_ / "blobs");
    for (const auto& [kind, bytes] : layers) {
      write_file(store_ / "blobs" / ("sha256-" + sha256_of(bytes)), bytes);
      list.push_back({{"mediaType", "application/vnd.ollama.image." + kind},
                      {"digest", "sha256:" + sha256_of(bytes)},
                      {"size", bytes.size()}});
    }
    const fs::path manifest = store_ / "manifests" / path;
    fs::create_directories(manifest.parent_path());
    write_file(manifest, Json({{"schemaVersion", 2}, {"layers", list}}).dump());
  }

  TempDir dir_;
  fs::path cache_ = dir_ / "hub", store_ = dir_ / "ollama";
};

TEST_F(Stores, AModelIsFoundThroughItsRef) {
  cache(kFirst, "m-Q4_0.gguf", "GGUF old");
  cache(kSecond, "m-Q4_0.gguf", "GGUF new");
  ref("main", kSecond);
  ref("v1", kFirst);
  ASSERT_OK_AND_ASSIGN(const auto main, find("org/name"));
  ASSERT_TRUE(main.has_value());
  EXPECT_EQ(read_file(main->path), "GGUF new");
  ASSERT_OK_AND_ASSIGN(const auto old, find("org/name@v1:Q4_0"));
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(read_file(old->path), "GGUF old");
  ASSERT_OK_AND_ASSIGN(const auto commit, find("org/name@1111111"));
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(read_file(commit->path), "GGUF old");
  EXPECT_FALSE(find("org/other")->has_value());
  EXPECT_FALSE(find("org/name:Q8_0")->has_value());
  // Its folder by path stands for the same.
  Places places;
  places.cache = cache_;
  ASSERT_OK_AND_ASSIGN(const auto folder, resolve_here(places, (cache_ / "models--org--name").string()));
  EXPECT_EQ(folder->path, cache_ / "models--org--name/snapshots" / kSecond);
}

TEST_F(Stores, APartOfAModelIsNotTheModel) {
  cache(kFirst, "config.json", "{}");
  cache(kFirst, "model.safetensors.index.json",
        R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)"
        R"("b":"model-00002-of-00002.safetensors"}})");
  cache(kFirst, "model-00001-of-00002.safetensors", "one");
  EXPECT_FALSE(find("org/name")->has_value());
  cache(kFirst, "model-00002-of-00002.safetensors", "two");
  ASSERT_OK_AND_ASSIGN(const auto whole, find("org/name"));
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->path, cache_ / "models--org--name/snapshots" / kFirst);
  cache(kFirst, "m-Q4_0-00001-of-00002.gguf", "GGUF");
  EXPECT_FALSE(find("org/name:Q4_0")->has_value());
  // A link to a blob that somebody removed.
  cache(kFirst, "m-Q2_K.gguf", "GGUF two");
  EXPECT_TRUE(find("org/name:Q2_K")->has_value());
  fs::remove(cache_ / "models--org--name/blobs" / sha256_of("GGUF two"));
  EXPECT_FALSE(find("org/name:Q2_K")->has_value());
}

TEST_F(Stores, OfSeveralTypesTheBestIsTakenAndSaid) {
  cache(kFirst, "m-Q4_0.gguf", "GGUF 4");
  cache(kFirst, "m-Q8_0.gguf", "GGUF 8");
  ASSERT_OK_AND_ASSIGN(const auto found, find("org/name"));
  EXPECT_EQ(read_file(found->path), "GGUF 8");
  EXPECT_EQ(found->said, "org/name: Q8_0; also here: Q4_0");
}

TEST_F(Stores, RemovingATypeLeavesWhatOthersUse) {
  cache(kFirst, "m-Q4_0.gguf", "GGUF 4");
  cache(kFirst, "m-Q8_0.gguf", "GGUF 8");
  cache(kSecond, "m-Q4_0.gguf", "GGUF 4");
  ref("main", kFirst);
  remove("org/name:Q4_0");
  EXPECT_TRUE(has_blob("GGUF 4")) << "the other snapshot has it";
  EXPECT_FALSE(find("org/name:Q4_0")->has_value());
  remove("org/name@2222222");
  EXPECT_FALSE(has_blob("GGUF 4"));
  EXPECT_TRUE(has_blob("GGUF 8"));
  EXPECT_ERROR(plan_removal(cache_, *parse_name("org/name:Q2_K")), "there is no Q2_K here", "doppler list");
  remove("org/name:Q8_0");
  EXPECT_FALSE(fs::exists(cache_ / "models--org--name")) << "the last one takes the folder with it";
  EXPECT_ERROR(plan_removal(cache_, *parse_name("org/name")), "no model org/name here");
}

TEST_F(Stores, RemovingNeverFollowsALinkOut) {
  cache(kFirst, "m-Q4_0.gguf", "GGUF 4");
  cache(kFirst, "m-Q8_0.gguf", "GGUF 8");
  write_file(dir_ / "precious", "mine");
  const fs::path link = cache_ / "models--org--name/snapshots" / kFirst / "m-Q2_K.gguf";
  fs::create_symlink(dir_ / "precious", link);
  remove("org/name:Q2_K");
  EXPECT_FALSE(fs::is_symlink(link));
  fs::create_directory_symlink(dir_.path(), cache_ / "models--org--name/snapshots" / kFirst / "folder");
  remove("org/name");
  EXPECT_EQ(read_file(dir_ / "precious"), "mine");
}

TEST_F(Stores, AnOllamaModelIsFoundByNameTagAndManifest) {
  ollama("registry.ollama.ai/library/llama3.2/1b", {{"model", "GGUF weights"}, {"template", "t"}});
  ollama("registry.ollama.ai/me/own/latest", {{"model", "GGUF own"}});
  ollama("hf.co/org/name/Q4_0", {{"model", "GGUF hub"}});
  Places places;
  places.ollama = {store_};
  const auto path = [&](const std::string& name) {
    const auto found = resolve_here(places, name);
    return found && *found ? read_file((*found)->path) : found.error().message;
  };
  EXPECT_EQ(path("ollama:llama3.2:1b"), "GGUF weights");
  EXPECT_EQ(path("ollama:me/own"), "GGUF own");
  EXPECT_EQ(path("ollama:hf.co/org/name:Q4_0"), "GGUF hub");
  EXPECT_EQ(path((store_ / "manifests/registry.ollama.ai/library/llama3.2/1b").string()), "GGUF weights");
  EXPECT_EQ(path("llama3.2:1b"), "There is no file or folder llama3.2:1b. Did you mean ollama:llama3.2:1b?");
  EXPECT_ERROR(resolve_here(places, "ollama:llama3.2"), "no model llama3.2", "It has", "llama3.2:1b",
               "me/own:latest");
  EXPECT_ERROR(resolve_here(places, "ollama:../../x:y"), "is no name");
  EXPECT_ERROR(find_ollama({}, "x"), "OLLAMA_MODELS");
}

TEST_F(Stores, OllamaModelsWithoutWeightsSayWhatTheyAre) {
  ollama("registry.ollama.ai/library/lora/latest", {{"model", "GGUF base"}, {"adapter", "GGUF lora"}});
  ollama("registry.ollama.ai/library/cloud/latest", {{"params", "{}"}});
  ollama("registry.ollama.ai/library/cut/latest", {{"model", "GGUF cut"}});
  write_file(store_ / "blobs" / ("sha256-" + sha256_of("GGUF cut")), "GGUF");
  ollama("registry.ollama.ai/library/gone/latest", {{"model", "GGUF gone"}});
  fs::remove(store_ / "blobs" / ("sha256-" + sha256_of("GGUF gone")));
  const auto weights = [&](const char* name) { return ollama_weights(*find_ollama({store_}, name)); };
  EXPECT_ERROR(weights("lora"), "LoRA adapter");
  EXPECT_ERROR(weights("cloud"), "no weights on this machine");
  EXPECT_ERROR(weights("cut"), "holds 4 bytes", "says 8", "ollama pull cut");
  EXPECT_ERROR(weights("gone"), "is missing", "ollama pull gone");
}

TEST_F(Stores, OllamaBlobsOfOtherModelsStay) {
  ollama("registry.ollama.ai/library/a/latest", {{"model", "GGUF a"}, {"license", "shared"}});
  ollama("registry.ollama.ai/library/b/latest", {{"model", "GGUF b"}, {"license", "shared"}});
  const auto blob = [&](const std::string& bytes) {
    return fs::exists(store_ / "blobs" / ("sha256-" + sha256_of(bytes)));
  };
  ASSERT_OK_AND_ASSIGN(const Removal removal, plan_ollama_removal(*find_ollama({store_}, "a")));
  EXPECT_EQ(removal.bytes, 6U);
  ASSERT_OK(hub::remove(removal));
  EXPECT_FALSE(blob("GGUF a"));
  EXPECT_TRUE(blob("shared"));
  EXPECT_TRUE(blob("GGUF b"));
  fs::create_directories(store_ / "manifests/registry.ollama.ai/library/c");
  write_file(store_ / "manifests/registry.ollama.ai/library/c/latest", "damaged");
  EXPECT_ERROR(plan_ollama_removal(*find_ollama({store_}, "b")), "cannot be read", "which blobs it needs");
}

TEST_F(Stores, DigestsThatArePathsAreRefused) {
  const auto manifest = [](const std::string& digest) {
    return parse_ollama_manifest(
        Json({{"layers",
               {{{"mediaType", "application/vnd.ollama.image.model"}, {"digest", digest}, {"size", 1}}}}})
            .dump(),
        "It");
  };
  EXPECT_TRUE(manifest("sha256:" + std::string(64, 'a')).has_value());
  const std::vector<std::string> digests = {"sha256:../../../etc/passwd",
                                            "",
                                            "sha256:abc",
                                            "md5:" + std::string(64, 'a'),
                                            "sha256:" + std::string(64, 'G'),
                                            "sha256:" + std::string(62, 'a') + "/."};
  for (const std::string& digest : digests) EXPECT_ERROR(manifest(digest), "names the digest", "no manifest");
  EXPECT_ERROR(parse_ollama_manifest("[1]", "It"), "lists no layers");
}

}  // namespace
}  // namespace doppler::hub
