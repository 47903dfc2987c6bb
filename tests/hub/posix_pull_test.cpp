// Downloads from a Hub that behaves, and from many that do not.
#include "hub/pull.h"

#include "hub/hub_server.h"
#include "system/shared_folder.h"
#include "testing.h"

namespace doppler::hub {
namespace {

using testing::Connection;
using testing::FakeHub;
using testing::git_hash_of;
using testing::noise;
using testing::read_file;
using testing::Request;
using testing::sha256_of;
using testing::TempDir;
using testing::write_file;

namespace fs = std::filesystem;

// Limits that let a failure show at once. A busy machine may stand still for seconds, so that what stalls has
// the usual limit where nothing is to stall.
Patience impatient() {
  return {.attempts = 3, .first_wait_ms = 1, .longest_wait_ms = 5};
}

class Pull : public ::testing::Test {
 protected:
  // A repository of a GGUF file and what stands beside it.
  static std::vector<FakeHub::File> usual(std::size_t size = 300'000) {
    return {{"README.md", "# A model"}, {"model-Q4_K_M.gguf", "GGUF" + noise(size), true}};
  }

  Places places(const FakeHub& hub) const {
    Places places;
    places.endpoint = hub.url();
    places.cache = dir_ / "hub";
    return places;
  }

  static PullOptions options() {
    PullOptions options;
    options.download.patience = impatient();
    options.download.piece_bytes = 40'000;
    return options;
  }

  Result<Pulled> pull(const FakeHub& hub, const std::string& name = "org/name") {
    return pull(hub, name, options());
  }
  Result<Pulled> pull(const FakeHub& hub, const std::string& name, const PullOptions& options) {
    return hub::pull(places(hub), *parse_name(name), options);
  }

  fs::path folder() const { return dir_ / "hub/models--org--name"; }
  fs::path blob(const FakeHub::File& file) const {
    return folder() / "blobs" / (file.large ? sha256_of(file.bytes) : git_hash_of(file.bytes));
  }
  fs::path part(const FakeHub::File& file) const { return fs::path(blob(file).string() + ".incomplete"); }
  // Nothing passes for whole that is not.
  void expect_nothing_whole(const FakeHub& hub) const {
    for (const FakeHub::File& file : hub.files)
      EXPECT_FALSE(fs::exists(blob(file)) && read_file(blob(file)) != file.bytes);
    EXPECT_FALSE(fs::exists(folder() / "refs/main"));
    EXPECT_FALSE(fs::exists(folder() / "snapshots"));
  }

  TempDir dir_;
};

TEST_F(Pull, AFileComesInPiecesAndLiesWhereHuggingFaceLooksForIt) {
  const FakeHub hub(usual());
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  const fs::path snapshot = folder() / "snapshots" / FakeHub::kCommit;
  EXPECT_EQ(pulled.model.path, snapshot / "model-Q4_K_M.gguf");
  EXPECT_EQ(read_file(pulled.model.path), hub.files[1].bytes);
  EXPECT_EQ(fs::read_symlink(pulled.model.path), "../../blobs/" + sha256_of(hub.files[1].bytes));
  EXPECT_EQ(read_file(folder() / "refs/main"), FakeHub::kCommit);
  EXPECT_FALSE(fs::exists(part(hub.files[1])));
  EXPECT_FALSE(fs::exists(snapshot / "README.md")) << "only what the model needs";
}

TEST_F(Pull, SeveralConnectionsEachFetchAPiece) {
  FakeHub hub(usual());
  ASSERT_OK(pull(hub));
  EXPECT_EQ(hub.cdn.count("model-Q4_K_M"), 8U);  // 300,004 bytes in pieces of 40,000
  for (const Request& request : hub.cdn.requests()) EXPECT_TRUE(request.range().has_value());
  // The Hub itself is asked only until the redirect is known: once for each connection.
  EXPECT_LE(hub.hub.count("resolve"), 4U);
}

TEST_F(Pull, WhatIsHereIsNotFetchedAgain) {
  FakeHub hub(usual());
  ASSERT_OK(pull(hub));
  const std::size_t before = hub.cdn.requests().size();
  ASSERT_OK_AND_ASSIGN(const Pulled again, pull(hub));
  EXPECT_EQ(hub.cdn.requests().size(), before);
  EXPECT_EQ(again.plan.bytes_to_get(), 0U);
}

TEST_F(Pull, AnEarlierPartIsContinuedAndChecked) {
  FakeHub hub(usual());
  const FakeHub::File& file = hub.files[1];
  fs::create_directories(folder() / "blobs");
  write_file(part(file), file.bytes.substr(0, 123'456));  // as Hugging Face's own program leaves it
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  EXPECT_EQ(read_file(pulled.model.path), file.bytes);
  EXPECT_EQ(pulled.plan.bytes_here, 123'456U);
  std::size_t first = SIZE_MAX;
  for (const Request& request : hub.cdn.requests()) first = std::min(first, request.range()->first);
  EXPECT_EQ(first, 123'456U);
}

TEST_F(Pull, AnEarlierPartOfOtherBytesIsFetchedAnew) {
  FakeHub hub(usual());
  const FakeHub::File& file = hub.files[1];
  fs::create_directories(folder() / "blobs");
  write_file(part(file), noise(50'000, 7));
  std::vector<std::string> notes;
  PullOptions options = this->options();
  options.download.on_note = [&](const std::string& note) { notes.push_back(note); };
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub, "org/name", options));
  EXPECT_EQ(read_file(pulled.model.path), file.bytes);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("does not have the hash"), std::string::npos);
  write_file(part(file), noise(500'000, 7));  // longer than the file
  fs::remove(blob(file));
  ASSERT_OK(pull(hub));
  EXPECT_EQ(read_file(blob(file)), file.bytes);
}

TEST_F(Pull, TheTokenGoesToTheHubAndNowhereElse) {
  FakeHub hub(usual());
  Places with_token = places(hub);
  with_token.token = Token{"hf_secret", "the variable HF_TOKEN"};
  ASSERT_OK(hub::pull(with_token, *parse_name("org/name"), options()));
  for (const Request& request : hub.hub.requests())
    EXPECT_EQ(request.header("authorization"), "Bearer hf_secret");
  ASSERT_FALSE(hub.cdn.requests().empty());
  for (const Request& request : hub.cdn.requests()) {
    for (const auto& [name, value] : request.headers)
      EXPECT_EQ(value.find("secret"), std::string::npos) << name;
  }
}

TEST_F(Pull, StoppingLeavesABeginningThatTheNextPullContinues) {
  FakeHub hub(usual());
  const FakeHub::File& file = hub.files[1];
  bool stop = false;
  PullOptions options = this->options();
  options.download.connections = 1;
  options.download.cancelled = [&] { return stop; };
  options.download.on_progress = [&](const DownloadProgress& p) { stop = p.bytes > 90'000; };
  EXPECT_ERROR(pull(hub, "org/name", options), "Stopped", "goes on from there");
  expect_nothing_whole(hub);
  const std::string kept = read_file(part(file));
  EXPECT_GT(kept.size(), 0U);
  EXPECT_EQ(kept, file.bytes.substr(0, kept.size()));
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  EXPECT_EQ(pulled.plan.bytes_here, kept.size());
  EXPECT_EQ(read_file(pulled.model.path), file.bytes);
}

TEST_F(Pull, CutConnectionsAreTakenUpWhereTheyBroke) {
  FakeHub hub(usual());
  hub.on_cdn = [&](const Request& request, Connection& connection) {
    if (request.number % 3 == 2) return hub.answer_cdn(request, connection);
    const auto [begin, last] = *request.range();
    const std::string& bytes = hub.files[1].bytes;
    connection.send("HTTP/1.1 206 X\r\nContent-Length: " + std::to_string(last - begin + 1) +
                    "\r\nContent-Range: bytes " + std::to_string(begin) + "-" + std::to_string(last) + "/" +
                    std::to_string(bytes.size()) + "\r\n\r\n" + bytes.substr(begin, (last - begin + 1) / 3));
    connection.cut();
  };
  PullOptions patient = options();
  patient.download.patience.attempts = 100;
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub, "org/name", patient));
  EXPECT_EQ(read_file(pulled.model.path), hub.files[1].bytes);
}

TEST_F(Pull, AServerThatAlwaysCutsIsGivenUp) {
  FakeHub hub(usual());
  hub.on_cdn = [](const Request&, Connection& connection) { connection.cut(); };
  EXPECT_ERROR(pull(hub), "model-Q4_K_M.gguf of org/name", "broke off", "goes on where it was");
  expect_nothing_whole(hub);
}

TEST_F(Pull, AServerThatStallsIsGivenUp) {
  FakeHub hub(usual());
  hub.on_cdn = [](const Request&, Connection& connection) {
    connection.send("HTTP/1.1 206 X\r\nContent-Length: 40000\r\nContent-Range: bytes 0-39999/300004\r\n\r\n");
    connection.stall();
  };
  PullOptions options = this->options();
  options.download.patience.http.stall_ms = 100;
  EXPECT_ERROR(pull(hub, "org/name", options), "stopped coming");
  expect_nothing_whole(hub);
}

TEST_F(Pull, AServerWithoutRangesSendsTheWholeFile) {
  FakeHub hub(usual());
  hub.on_cdn = [&](const Request&, Connection& connection) { connection.answer(200, hub.files[1].bytes); };
  const FakeHub::File& file = hub.files[1];
  fs::create_directories(folder() / "blobs");
  write_file(part(file), file.bytes.substr(0, 100'000));
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  EXPECT_EQ(read_file(pulled.model.path), file.bytes);
}

TEST_F(Pull, LyingServersAreNotBelieved) {
  struct Lie {
    const char* what;
    std::function<void(const FakeHub&, const Request&, Connection&)> tell;
    std::vector<const char*> said;
  };
  const std::vector<Lie> lies = {
      {"other bytes",
       [](const FakeHub& hub, const Request& request, Connection& connection) {
         testing::deliver(noise(hub.files[1].bytes.size(), 9), request, connection);
       },
       {"does not have the hash", "thrown away"}},
      {"a shorter file",
       [](const FakeHub& hub, const Request&, Connection& connection) {
         connection.answer(200, hub.files[1].bytes.substr(0, 1000));
       },
       {"holds 1000 bytes"}},
      {"another range",
       [](const FakeHub&, const Request&, Connection& connection) {
         connection.answer(206, "abc", "Content-Range: bytes 7-9/300004\r\n");
       },
       {"answers with the range", "bytes 7-9/300004"}},
      {"a range of another file",
       [](const FakeHub&, const Request& request, Connection& connection) {
         testing::deliver(noise(400'000), request, connection);
       },
       {"answers with the range", "/400000"}},
      {"a range that is none",
       [](const FakeHub&, const Request&, Connection& connection) {
         connection.answer(206, "abc", "Content-Range: bytes 0-99999999999999999999/*\r\n");
       },
       {"answers with the range"}},
      {"an endless body",
       [](const FakeHub&, const Request&, Connection& connection) {
         connection.send("HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
         while (connection.send("1000\r\n" + std::string(0x1000, 'x') + "\r\n")) {
         }
         connection.cut();
       },
       {"sends more bytes than there are"}},
      {"endless headers",
       [](const FakeHub&, const Request&, Connection& connection) {
         connection.send("HTTP/1.1 206 X\r\n");
         while (connection.send("X-Filler: " + std::string(1000, 'x') + "\r\n")) {
         }
         connection.cut();
       },
       {"model-Q4_K_M.gguf"}},
      {"nothing at all",
       [](const FakeHub&, const Request& request, Connection& connection) {
         connection.answer(206, "",
                           "Content-Range: bytes " + std::to_string(request.range()->first) + "-" +
                               std::to_string(request.range()->second) + "/300004\r\n");
       },
       {"sends fewer"}},
      {"redirects in circles",
       [](const FakeHub&, const Request& request, Connection& connection) {
         connection.answer(302, "", "Location: " + request.target + "\r\n");
       },
       {"redirected again and again"}},
      {"a redirect to a file of this machine",
       [](const FakeHub&, const Request&, Connection& connection) {
         connection.answer(302, "", "Location: file:///etc/passwd\r\n");
       },
       {"redirected to no address"}},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.what);
    FakeHub hub(usual());
    hub.on_cdn = [&](const Request& request, Connection& connection) { lie.tell(hub, request, connection); };
    const auto pulled = pull(hub);
    ASSERT_FALSE(pulled.has_value());
    for (const char* part : lie.said)
      EXPECT_NE(pulled.error().message.find(part), std::string::npos) << pulled.error().message;
    expect_nothing_whole(hub);
    fs::remove_all(folder());
  }
}

TEST_F(Pull, AFileThatChangesOnTheWayIsNoticed) {
  FakeHub hub(usual());
  hub.on_hub = [&](const Request& request, Connection& connection) {
    if (request.target.find("resolve") == std::string::npos) return hub.answer_hub(request, connection);
    connection.answer(
        302, "", "Location: " + hub.cdn.url() + "/cdn/x\r\nX-Linked-ETag: \"" + sha256_of("new") + "\"\r\n");
  };
  EXPECT_ERROR(pull(hub), "has changed while it was downloaded");
  expect_nothing_whole(hub);
}

TEST_F(Pull, AnAddressThatHasRunOutIsAskedForAgain) {
  FakeHub hub(usual());
  std::atomic<int> refused = 0;
  hub.on_cdn = [&](const Request& request, Connection& connection) {
    if (request.range()->first == 80'000 && refused++ == 0) return connection.answer(403, "expired");
    hub.answer_cdn(request, connection);
  };
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  EXPECT_EQ(read_file(pulled.model.path), hub.files[1].bytes);
}

TEST_F(Pull, ARefusalOfWhoDeliversIsNotTheHubs) {
  FakeHub hub(usual());
  hub.on_cdn = [](const Request&, Connection& connection) { connection.answer(403, "expired"); };
  EXPECT_ERROR(pull(hub), "delivers the file model-Q4_K_M.gguf of org/name", "status 403");
}

TEST_F(Pull, RefusalsSayWhatToDo) {
  struct Refusal {
    int status;
    const char* headers;
    bool token;
    std::vector<const char*> said;
  };
  const std::vector<Refusal> refusals = {
      {401,
       "X-Error-Code: RepoNotFound\r\n",
       false,
       {"There is no model org/name", "or it is private", "HF_TOKEN"}},
      {404,
       "X-Error-Code: RepoNotFound\r\n",
       true,
       {"There is no model org/name", "token in the variable HF_TOKEN"}},
      {401,
       "X-Error-Code: GatedRepo\r\n",
       false,
       {"is gated", "accept its conditions", "/settings/tokens", "HF_TOKEN"}},
      {403, "X-Error-Code: GatedRepo\r\n", true, {"is gated", "has no access", "Ask for it"}},
      {401, "", true, {"does not accept the token in the variable HF_TOKEN"}},
      {404, "X-Error-Code: RevisionNotFound\r\n", false, {"no revision main"}},
      {429, "Retry-After: 300\r\n", false, {"asked too often", "300 s", "HF_TOKEN"}},
      {500, "", false, {"status 500", "Try again later"}},
      {418, "", false, {"status 418"}},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.status);
    FakeHub hub(usual());
    hub.on_hub = [&](const Request&, Connection& connection) {
      connection.answer(refusal.status, "{}", refusal.headers);
    };
    Places places = this->places(hub);
    if (refusal.token) places.token = Token{"hf_x", "the variable HF_TOKEN"};
    const auto pulled = hub::pull(places, *parse_name("org/name"), options());
    ASSERT_FALSE(pulled.has_value());
    for (const char* part : refusal.said)
      EXPECT_NE(pulled.error().message.find(part), std::string::npos) << pulled.error().message;
  }
}

TEST_F(Pull, AGatedFileIsNamedAsSuch) {
  FakeHub hub(usual());
  hub.on_hub = [&](const Request& request, Connection& connection) {
    if (request.target.find("resolve") == std::string::npos) return hub.answer_hub(request, connection);
    connection.answer(403, "", "X-Error-Code: GatedRepo\r\n");
  };
  EXPECT_ERROR(pull(hub), "org/name is gated");
}

TEST_F(Pull, WhatComesRightByItselfIsTriedAgain) {
  FakeHub hub(usual());
  hub.on_hub = [&](const Request& request, Connection& connection) {
    if (request.number == 0) return connection.answer(503, "");
    hub.answer_hub(request, connection);
  };
  hub.on_cdn = [&](const Request& request, Connection& connection) {
    if (request.number == 1) return connection.answer(429, "");
    hub.answer_cdn(request, connection);
  };
  ASSERT_OK(pull(hub));
}

TEST_F(Pull, NoNetworkIsNamed) {
  Places nowhere;
  nowhere.endpoint = "http://127.0.0.1:1";  // a port that nobody listens at
  nowhere.cache = dir_ / "hub";
  EXPECT_ERROR(hub::pull(nowhere, *parse_name("org/name"), options()), "127.0.0.1:1 cannot be reached",
               "doppler list");
  nowhere.offline = true;
  EXPECT_ERROR(hub::pull(nowhere, *parse_name("org/name"), options()), "HF_HUB_OFFLINE");
}

TEST_F(Pull, AnAnswerThatNeverEndsIsCutOff) {
  FakeHub hub(usual());
  hub.on_hub = [](const Request&, Connection& connection) {
    connection.send("HTTP/1.1 200 X\r\n\r\n[");
    while (connection.send(std::string(1 << 16, '['))) {
    }
    connection.cut();
  };
  EXPECT_ERROR(pull(hub), "is longer than");
}

TEST_F(Pull, AFolderOfSafetensorsComesWithWhatBelongsToIt) {
  FakeHub hub({{"config.json", "{}"},
               {"tokenizer.json", noise(50'000, 2), true},
               {"tokenizer_config.json", "{}"},
               {"model.safetensors.index.json", R"({"weight_map":{"a":"model-00001-of-00002.safetensors",)"
                                                R"("b":"model-00002-of-00002.safetensors"}})"},
               {"model-00001-of-00002.safetensors", noise(90'000, 3), true},
               {"model-00002-of-00002.safetensors", noise(90'000, 4), true},
               {"pytorch_model.bin", noise(90'000, 5), true},
               {"consolidated.safetensors", noise(90'000, 6), true},
               {"onnx/model.onnx", noise(10, 6), true},
               {"empty.txt", ""},
               {"added_tokens.json", ""}});
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  const fs::path snapshot = folder() / "snapshots" / FakeHub::kCommit;
  EXPECT_EQ(pulled.model.path, snapshot);
  for (const FakeHub::File& file : hub.files) {
    const bool wanted = file.path != "pytorch_model.bin" && file.path != "consolidated.safetensors" &&
                        file.path != "onnx/model.onnx" && file.path != "empty.txt";
    EXPECT_EQ(fs::exists(snapshot / file.path), wanted) << file.path;
    if (wanted) {
      EXPECT_EQ(read_file(snapshot / file.path), file.bytes) << file.path;
    }
  }
}

TEST_F(Pull, TwoAtOnceDoNotWriteOneFile) {
  FakeHub hub(usual());
  const CachedRepo repo(dir_ / "hub", "org/name");
  ASSERT_OK(repo.prepare());
  const auto lock = system::FileLock::try_take(repo.lock(sha256_of(hub.files[1].bytes)));
  ASSERT_TRUE(lock.has_value() && lock->has_value());
  EXPECT_ERROR(pull(hub), "being downloaded by another program");
}

TEST_F(Pull, AMirrorThatListsNoHashesIsAskedForEach) {
  FakeHub hub(usual());
  hub.on_hub = [&](const Request& request, Connection& connection) {
    if (!request.target.starts_with("/api")) return hub.answer_hub(request, connection);
    connection.answer(200, Json({{"id", "org/name"},
                                 {"sha", FakeHub::kCommit},
                                 {"siblings", {{{"rfilename", "model-Q4_K_M.gguf"}}}}})
                               .dump());
  };
  ASSERT_OK_AND_ASSIGN(const Pulled pulled, pull(hub));
  EXPECT_EQ(read_file(pulled.model.path), hub.files[1].bytes);
}

TEST_F(Pull, WithoutAHashNothingIsBelieved) {
  FakeHub hub(usual());
  hub.on_hub = [&](const Request& request, Connection& connection) {
    if (!request.target.starts_with("/api")) return connection.answer(200, "", "", true);
    connection.answer(200, Json({{"id", "org/name"},
                                 {"sha", FakeHub::kCommit},
                                 {"siblings", {{{"rfilename", "model-Q4_K_M.gguf"}}}}})
                               .dump());
  };
  EXPECT_ERROR(pull(hub), "no size or hash", "could not be checked");
}

}  // namespace
}  // namespace doppler::hub
