#include "base/log.h"

#include <thread>

#include "base/json.h"
#include "testing.h"

namespace doppler {
namespace {

using testing::read_file;
using testing::TempDir;

// Lines are read back from the ring; nothing is printed.
class Log : public ::testing::Test {
 protected:
  void SetUp() override { options_.screen = false; }
  void TearDown() override { EXPECT_TRUE(close_log().has_value()); }
  std::vector<std::string> texts() const {
    std::vector<std::string> all;
    for (const LogRecord& record : log_history(1000)) all.push_back(record.text);
    return all;
  }
  LogOptions options_;
};

std::vector<Json> json_lines(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line, nullptr, false));
  return lines;
}

TEST_F(Log, LevelsLetThroughWhatIsAtLeastAsSevere) {
  for (std::size_t i = 0; i < all_levels().size(); ++i) {
    options_.level = static_cast<Level>(i);
    ASSERT_OK(configure_log(options_));
    for (std::size_t j = 0; j < 5; ++j) {
      EXPECT_EQ(log_wanted(static_cast<Level>(j)), j >= i);
      log(static_cast<Level>(j), "Test", "{} at {}", all_levels()[j], all_levels()[i]);
    }
    log(Level::kSilent, "Test", "never");
    EXPECT_EQ(texts().size(), 5 - i) << all_levels()[i];
    ASSERT_OK(close_log());
    EXPECT_EQ(level_from_name(all_levels()[i]), static_cast<Level>(i));
  }
  EXPECT_EQ(level_from_name("loud"), std::nullopt);
}

TEST_F(Log, ModulesAreChosenOrLeftOutButWarningsAlwaysPass) {
  options_.level = Level::kInfo;
  const auto shown = [&](std::vector<std::string> modules) {
    options_.modules = std::move(modules);
    EXPECT_TRUE(configure_log(options_).has_value());
    for (const char* module : {"Loader", "GPU", "Engine"}) log(Level::kInfo, module, module);
    log(Level::kWarn, "GPU", "warning");
    const auto all = texts();
    EXPECT_TRUE(close_log().has_value());
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(shown({}), (Texts{"Loader", "GPU", "Engine", "warning"}));
  EXPECT_EQ(shown({"Loader"}), (Texts{"Loader", "warning"}));
  EXPECT_EQ(shown({"-GPU"}), (Texts{"Loader", "Engine", "warning"}));
  EXPECT_EQ(shown({"all", "-Loader"}), (Texts{"GPU", "Engine", "warning"}));
}

TEST_F(Log, LinesHaveTheShapesThatPeopleGrepFor) {
  LogRecord record;
  record.ms = 12.345;
  record.module = "Loader";
  record.text = "Shards: 0-15";
  EXPECT_EQ(format_line(record), "[12.3ms][Loader] Shards: 0-15");
  record.level = Level::kError;
  EXPECT_EQ(format_line(record), "[12.3ms][Loader] ERROR Shards: 0-15");
  record.is_trace = true;
  record.category = Category::kAttn;
  EXPECT_EQ(format_line(record), "[12.3ms][TRACE:attn] Shards: 0-15");
  record.layer = 3;
  record.text = "two\nlines \x1b[31m";
  EXPECT_EQ(format_line(record), "[12.3ms][TRACE:attn] L3: two\\nlines \\x1b[31m");
}

TEST_F(Log, CategoriesAreListedOrLeftOut) {
  const auto set = [](std::vector<std::string> words) { return parse_categories(words); };
  EXPECT_EQ(set({}), CategorySet{0});
  EXPECT_EQ(set({"all"}), kAllCategories);
  EXPECT_EQ(set({"attn", "ffn"}), category_bit(Category::kAttn) | category_bit(Category::kFfn));
  EXPECT_EQ(set({"all", "-buffers"}), kAllCategories & ~category_bit(Category::kBuffers));
  EXPECT_EQ(set({"-buffers"}), kAllCategories & ~category_bit(Category::kBuffers));
  EXPECT_EQ(set({"-all", "kv"}), category_bit(Category::kKv));
  EXPECT_ERROR(set({"atn"}), "atn", "Did you mean attn?");
  EXPECT_ERROR(set({"all", "-xyzzy"}), "xyzzy", "loader", "perf");
  EXPECT_ERROR(set({""}), "Categories are");
}

TEST_F(Log, TraceLinesAreFilteredByCategoryLayerAndStep) {
  options_.categories = category_bit(Category::kAttn);
  options_.trace_layers = {0, 5};
  options_.trace_steps = 2;
  ASSERT_OK(configure_log(options_));
  EXPECT_TRUE(trace_wanted(Category::kAttn, 5, 2));
  EXPECT_TRUE(trace_wanted(Category::kAttn));
  EXPECT_FALSE(trace_wanted(Category::kFfn, 5, 2));
  EXPECT_FALSE(trace_wanted(Category::kAttn, 4, 2));
  EXPECT_FALSE(trace_wanted(Category::kAttn, 5, 3));
  trace(Category::kAttn, 5, "shown");
  trace(Category::kAttn, 4, "another layer");
  trace(Category::kFfn, 5, "another category");
  trace(Category::kAttn, 0, "a late step", 3);
  trace(Category::kAttn, -1, "no layer", 0);
  EXPECT_EQ(texts(), (std::vector<std::string>{"shown", "no layer"}));
}

TEST_F(Log, NothingIsTracedUntilItIsAskedFor) {
  EXPECT_EQ(traced_categories(), 0u);
  for (const CategoryInfo& info : all_categories()) EXPECT_FALSE(trace_wanted(info.category));
  EXPECT_FALSE(log_wanted(Level::kInfo));
  EXPECT_TRUE(log_wanted(Level::kWarn));
}

TEST_F(Log, FilesHoldEveryLineAsJsonAndTheTraceFileOnlyTrace) {
  const TempDir dir;
  options_.level = Level::kInfo;
  options_.categories = kAllCategories;
  options_.file = (dir / "all.jsonl").string();
  options_.trace_file = (dir / "trace.jsonl").string();
  ASSERT_OK(configure_log(options_));
  log(Level::kInfo, "Loader", "a \"quoted\" text and \xff");
  trace(Category::kKv, 3, "kvLen=5", 1, R"({"kv_length": 5})");
  ASSERT_OK(close_log());
  const auto all = json_lines(dir / "all.jsonl"), traced = json_lines(dir / "trace.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["level"], "info");
  EXPECT_EQ(all[0]["module"], "Loader");
  EXPECT_EQ(all[0]["text"], "a \"quoted\" text and \xef\xbf\xbd");
  ASSERT_EQ(traced.size(), 1u);
  EXPECT_EQ(traced[0], all[1]);
  EXPECT_EQ(traced[0]["category"], "kv");
  EXPECT_EQ(traced[0]["layer"], 3);
  EXPECT_EQ(traced[0]["step"], 1);
  EXPECT_EQ(traced[0]["data"]["kv_length"], 5);
  EXPECT_TRUE(traced[0]["ms"].is_number());

  options_.append = true;
  ASSERT_OK(configure_log(options_));
  log(Level::kInfo, "Loader", "later");
  ASSERT_OK(close_log());
  EXPECT_EQ(json_lines(dir / "all.jsonl").size(), 3u);
  EXPECT_EQ(json_lines(dir / "trace.jsonl").size(), 0u);
}

TEST_F(Log, AFileThatCannotBeWrittenIsAnErrorWithItsName) {
  options_.file = "/nonexistent/folder/log.jsonl";
  EXPECT_ERROR(configure_log(options_), "/nonexistent/folder/log.jsonl", "cannot be opened");
  EXPECT_EQ(traced_categories(), 0u);
  options_.file = "/dev/full";
  options_.level = Level::kInfo;
  ASSERT_OK(configure_log(options_));
  log(Level::kInfo, "Loader", "lost");
  EXPECT_ERROR(close_log(), "/dev/full", "No space left");
}

TEST_F(Log, TheRingKeepsTheNewest) {
  options_.level = Level::kDebug;
  options_.history = 3;
  ASSERT_OK(configure_log(options_));
  for (int i = 0; i < 10; ++i) log(i == 8 ? Level::kWarn : Level::kDebug, "Test", "{}", i);
  EXPECT_EQ(texts(), (std::vector<std::string>{"7", "8", "9"}));
  ASSERT_EQ(log_history(1).size(), 1u);
  EXPECT_EQ(log_history(1)[0].text, "9");
  ASSERT_EQ(log_history(10, Level::kWarn).size(), 1u);
  EXPECT_EQ(log_history(10, Level::kWarn)[0].text, "8");
}

TEST_F(Log, ThreadsMayWriteAtOnce) {
  const TempDir dir;
  options_.level = Level::kDebug;
  options_.categories = kAllCategories;
  options_.file = (dir / "all.jsonl").string();
  ASSERT_OK(configure_log(options_));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        if (i % 2 == 0)
          log(Level::kInfo, "Test", "{} of {}", i, t);
        else if (trace_wanted(Category::kFfn, i, t))
          trace(Category::kFfn, i, "line", t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_OK(close_log());
  const auto lines = json_lines(dir / "all.jsonl");
  EXPECT_EQ(lines.size(), 800u);
  for (const Json& line : lines) ASSERT_TRUE(line.is_object());
}

}  // namespace
}  // namespace doppler
