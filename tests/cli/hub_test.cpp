// Models by name, as a user meets them: pull, run, list, rm, and what is said of things that are no models.
#include "cli/program.h"
#include "hub/hub_server.h"

namespace doppler::testing {
namespace {

namespace fs = std::filesystem;

// A Hub with a model that runs, and a home of its own for the program.
class HubCommands : public ::testing::Test {
 protected:
  static std::vector<FakeHub::File> model_files() {
    std::vector<FakeHub::File> files = {
        {"model-Q4_K_M.gguf", read_file(data_path("gguf/gemma3_k288.Q4_K_M.gguf")), true},
        {"model-Q4_0.gguf", read_file(data_path("gguf/gemma3_k288.Q4_0.gguf")), true}};
    return files;
  }

  fs::path repo() const { return home_ / "hub/models--org--name"; }
  std::string gguf() const {
    return (repo() / "snapshots" / FakeHub::kCommit / "model-Q4_K_M.gguf").string();
  }
  // A program that has nothing but what is here.
  static Outcome offline(std::vector<std::string> arguments) {
    const Environment without("HF_HUB_OFFLINE", "1");
    return doppler(std::move(arguments));
  }
  static std::vector<std::string> run_ids(const std::string& model) {
    return {"run", model, "--prompt-ids", "2,5,9", "--max-tokens", "3", "--backend", "cpu", "--json"};
  }

  TempDir home_;
  FakeHub hub_{model_files()};
  const Environment endpoint_{"HF_ENDPOINT", hub_.url().c_str()}, hf_home_{"HF_HOME", home_.path().c_str()},
      cache_{"HF_HUB_CACHE", nullptr}, old_cache_{"HUGGINGFACE_HUB_CACHE", nullptr},
      token_{"HF_TOKEN", nullptr}, old_token_{"HUGGING_FACE_HUB_TOKEN", nullptr},
      token_path_{"HF_TOKEN_PATH", nullptr}, offline_{"HF_HUB_OFFLINE", nullptr},
      ollama_{"OLLAMA_MODELS", (home_ / "ollama").c_str()}, proxy_{"http_proxy", nullptr},
      all_proxy_{"all_proxy", nullptr};
};

TEST_F(HubCommands, APulledModelRunsByNameWithoutTheNetwork) {
  const Outcome pulled = doppler({"pull", "org/name:q4_k_m"});
  ASSERT_EQ(pulled.status, 0) << pulled.err;
  EXPECT_EQ(pulled.out, gguf() + "\n");
  EXPECT_NE(pulled.err.find("takes Q4_K_M, as named"), std::string::npos) << pulled.err;
  const Outcome by_name = offline(run_ids("org/name"));
  ASSERT_EQ(by_name.status, 0) << by_name.err;
  EXPECT_EQ(by_name.json()["ids"], doppler(run_ids(gguf())).json()["ids"]);
  EXPECT_EQ(offline(run_ids(repo().string())).json()["ids"], by_name.json()["ids"])
      << "the cache's folder is the model, too";
  const fs::path blob = fs::canonical(gguf());
  EXPECT_EQ(offline(run_ids(blob.string())).json()["ids"], by_name.json()["ids"])
      << "a blob is known by its first bytes";
}

TEST_F(HubCommands, RunDownloadsWhatIsNotHere) {
  const Outcome run = doppler(run_ids("org/name:Q4_0"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("org/name at 0123456"), std::string::npos) << run.err;
  EXPECT_EQ(run.json()["ids"].size(), 3U);
  EXPECT_EQ(hub_.cdn.count("Q4_K_M"), 0U);
}

TEST_F(HubCommands, ThePlanComesBeforeTheFirstByte) {
  const Outcome plan = doppler({"pull", "org/name", "--plan"});
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("> Q4_K_M"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("the best of 2"), std::string::npos) << plan.out;
  EXPECT_TRUE(hub_.cdn.requests().empty());
  EXPECT_FALSE(fs::exists(repo()));
  const Json json = doppler({"pull", "org/name", "--plan", "--json"}).json();
  EXPECT_EQ(json["chosen"], "Q4_K_M");
  EXPECT_EQ(json["variants"].size(), 2U);
  EXPECT_EQ(json["bytes_to_get"], hub_.files[0].bytes.size());
}

TEST_F(HubCommands, ListShowsAndRmRemoves) {
  EXPECT_NE(doppler({"list"}).err.find("There are no models here"), std::string::npos);
  ASSERT_EQ(doppler({"pull", "org/name:Q4_K_M"}).status, 0);
  ASSERT_EQ(doppler({"pull", "org/name:Q4_0"}).status, 0);
  const Json models = doppler({"list", "--json"}).json()["models"];
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0]["name"], "org/name:Q4_K_M");
  EXPECT_EQ(models[0]["bytes"], hub_.files[0].bytes.size());
  EXPECT_EQ(models[0]["path"], gguf());
  EXPECT_NE(doppler({"list"}).out.find("org/name:Q4_0"), std::string::npos);
  EXPECT_REFUSAL(doppler({"rm", "org/name:Q4_K_M"}), 2, "Give --yes");
  EXPECT_TRUE(fs::exists(gguf()));
  ASSERT_EQ(doppler({"rm", "org/name:Q4_K_M", "--yes"}).status, 0);
  EXPECT_FALSE(fs::exists(gguf()));
  EXPECT_EQ(doppler({"list", "--json"}).json()["models"].size(), 1U);
  ASSERT_EQ(doppler({"rm", "org/name", "--yes"}).status, 0);
  EXPECT_FALSE(fs::exists(repo()));
  EXPECT_REFUSAL(doppler({"rm", "org/name", "--yes"}), 3, "no model org/name here");
}

TEST_F(HubCommands, AFullDiskLeavesABeginningThatTheNextPullContinues) {
  const Outcome full = Program({"pull", "org/name:Q4_K_M"}, "", 200 << 10).wait();
  EXPECT_EQ(full.status, 3);
  EXPECT_NE(full.err.find("cannot be written"), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("it goes on where it was"), std::string::npos) << full.err;
  EXPECT_FALSE(fs::exists(gguf()));
  EXPECT_FALSE(fs::exists(repo() / "refs"));
  const fs::path part = repo() / "blobs" / (sha256_of(hub_.files[0].bytes) + ".incomplete");
  EXPECT_GT(fs::file_size(part), 0U);
  ASSERT_EQ(doppler({"pull", "org/name:Q4_K_M"}).status, 0);
  EXPECT_EQ(read_file(gguf()), hub_.files[0].bytes);
}

TEST_F(HubCommands, CtrlCLeavesABeginningThatTheNextPullContinues) {
  std::atomic<bool> reached = false, slow = true;
  hub_.on_cdn = [&](const Request& request, Connection& connection) {
    if (!slow) return hub_.answer_cdn(request, connection);
    const std::string& bytes = hub_.files[0].bytes;
    connection.send("HTTP/1.1 206 X\r\nContent-Length: " + std::to_string(bytes.size()) +
                    "\r\nContent-Range: bytes 0-" + std::to_string(bytes.size() - 1) + "/" +
                    std::to_string(bytes.size()) + "\r\n\r\n" + bytes.substr(0, 100'000));
    reached = true;
    reached.notify_all();
    connection.stall();
  };
  Program pull({"pull", "org/name:Q4_K_M"});
  reached.wait(false);
  const fs::path part = repo() / "blobs" / (sha256_of(hub_.files[0].bytes) + ".incomplete");
  pull.wait_until([&] { return fs::exists(part); });
  pull.interrupt();
  const Outcome stopped = pull.wait();
  EXPECT_EQ(stopped.status, 130);
  EXPECT_NE(stopped.err.find("the same command goes on from there"), std::string::npos) << stopped.err;
  EXPECT_FALSE(fs::exists(gguf()));
  slow = false;
  ASSERT_EQ(doppler({"pull", "org/name:Q4_K_M"}).status, 0);
  EXPECT_EQ(read_file(gguf()), hub_.files[0].bytes);
}

TEST_F(HubCommands, ATokenComesFromTheUsualPlaces) {
  const auto sent = [&] {
    doppler({"pull", "org/name", "--plan"});
    return hub_.hub.requests().back().header("authorization");
  };
  EXPECT_EQ(sent(), "");
  write_file(home_ / "token", "hf_file\n");
  EXPECT_EQ(sent(), "Bearer hf_file");
  write_file(home_ / "elsewhere", "hf_elsewhere");
  const Environment path("HF_TOKEN_PATH", (home_ / "elsewhere").c_str());
  EXPECT_EQ(sent(), "Bearer hf_elsewhere");
  const Environment older("HUGGING_FACE_HUB_TOKEN", "hf_older");
  EXPECT_EQ(sent(), "Bearer hf_older");
  const Environment newest("HF_TOKEN", " hf_newest ");
  EXPECT_EQ(sent(), "Bearer hf_newest");
  const Environment evil("HF_TOKEN", "hf\r\nX-Evil: 1");
  EXPECT_REFUSAL(doppler({"pull", "org/name", "--plan"}), 2, "the variable HF_TOKEN",
                 "characters that no token has");
}

TEST_F(HubCommands, WhatIsHereNeedsNothingOfTheHub) {
  const Environment token("HF_TOKEN", "hf\r\nX-Evil: 1"), endpoint("HF_ENDPOINT", "no address");
  const Outcome inspected = doppler({"inspect", DOPPLER_SOURCE_DIR "/demo"});
  EXPECT_EQ(inspected.status, 0) << inspected.err;
  EXPECT_EQ(doppler(run_ids("org/name")).status, 2) << "a name is still looked up with them";
}

TEST_F(HubCommands, WhatIsNoModelIsNamedForWhatItIs) {
  EXPECT_REFUSAL(doppler(run_ids("org/nothing")), 3, "There is no model org/nothing", "HF_TOKEN");
  EXPECT_REFUSAL(offline(run_ids("org/name")), 3, "org/name is not here", "HF_HUB_OFFLINE");
  EXPECT_REFUSAL(doppler(run_ids("https://example.org/model.gguf")), 2,
                 "does not lead to a model of the Hub");
  EXPECT_REFUSAL(doppler({"pull", "name/with/three"}), 2, "is no model's name");
  EXPECT_REFUSAL(doppler({"pull", "ollama:llama3.2"}), 2, "ollama pull llama3.2");
  EXPECT_REFUSAL(doppler(run_ids("ollama:llama3.2")), 3, "OLLAMA_MODELS");
  EXPECT_REFUSAL(doppler(run_ids("demo2.gguf")), 3, "does not exist");
  hub_.files = {{"adapter_config.json", "{}"}, {"adapter_model.safetensors", "x"}};
  EXPECT_REFUSAL(doppler({"pull", "org/name"}), 3, "LoRA adapter");
}

TEST_F(HubCommands, AModelOfAnotherKindIsNotDownloaded) {
  hub_.on_hub = [&](const Request& request, Connection& connection) {
    std::string info = hub_.info();
    if (request.target.starts_with("/api")) info.replace(info.find("gemma3_text"), 11, "rwkv7");
    connection.answer(200, info);
  };
  const Outcome pull = doppler({"pull", "org/name"});
  EXPECT_EQ(pull.status, 3);
  EXPECT_NE(pull.err.find("of the kind rwkv7"), std::string::npos) << pull.err;
  EXPECT_FALSE(fs::exists(repo()));
}

TEST_F(HubCommands, AnOllamaModelRuns) {
  const std::string& bytes = hub_.files[1].bytes;
  fs::create_directories(home_ / "ollama/blobs");
  fs::create_directories(home_ / "ollama/manifests/registry.ollama.ai/library/gemma");
  write_file(home_ / "ollama/blobs" / ("sha256-" + sha256_of(bytes)), bytes);
  write_file(home_ / "ollama/manifests/registry.ollama.ai/library/gemma/latest",
             Json({{"layers",
                    {{{"mediaType", "application/vnd.ollama.image.model"},
                      {"digest", "sha256:" + sha256_of(bytes)},
                      {"size", bytes.size()}}}}})
                 .dump());
  const Outcome run = doppler(run_ids("ollama:gemma"));
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(doppler({"list", "--json"}).json()["models"][0]["name"], "ollama:gemma:latest");
  EXPECT_NE(doppler({"tokenize", "ollama:gemma", "the sky"}).err.find("The GGUF file has no tokenizer"),
            std::string::npos)
      << "a file without an ending is read as what it is";
}

}  // namespace
}  // namespace doppler::testing
