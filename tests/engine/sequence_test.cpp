// Sequences: several in one engine, cut, forked, kept in files, and never another model's.
#include <cstring>

#include "backend/host_cache.h"
#include "doppler/doppler.h"
#include "engines.h"

namespace doppler {
namespace {

// Gemma's windows are 4 to 8 tokens here, so that rings turn; llama has none.
struct Case {
  const char* backend;
  const char* model;
  const char* kv_type;
};
class Sequences : public ::testing::TestWithParam<Case> {
 protected:
  Engine engine(std::uint32_t sequences = 2, std::uint64_t context = 128) const {
    return load_engine(testing::data_path(GetParam().model), {.backend = GetParam().backend,
                                                              .context = context,
                                                              .sequences = sequences,
                                                              .kv_type = GetParam().kv_type});
  }
};

Ids some(std::size_t count, TokenId first = 3) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<TokenId>((first + 7 * i) % 60);
  return ids;
}

TEST_P(Sequences, DoNotDisturbEachOther) {
  Engine engine = this->engine();
  ASSERT_OK_AND_ASSIGN(const Generation alone, engine.generate(some(9), just(12)));
  ASSERT_OK_AND_ASSIGN(Sequence one, engine.new_sequence());
  ASSERT_OK_AND_ASSIGN(Sequence two, engine.new_sequence());
  EXPECT_ERROR(engine.new_sequence(), "All 2 sequences");
  ASSERT_OK(one.append(some(9)));
  ASSERT_OK(two.append(some(5, 11)));
  Ids generated;
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK_AND_ASSIGN(const Generation part, one.resume(just(3)));
    EXPECT_EQ(part.timings.cached_tokens + 1, part.prompt_ids.size()) << "only the newest token is computed";
    generated.insert(generated.end(), part.ids.begin(), part.ids.end());
    ASSERT_OK(two.resume(just(2)));
  }
  EXPECT_EQ(generated, alone.ids);
  EXPECT_EQ(one.length(), 21u);
  EXPECT_EQ(two.length(), 13u);
  {
    const Sequence gone = std::move(two);
  }
  ASSERT_OK_AND_ASSIGN(Sequence again, engine.new_sequence());  // the place is free
  EXPECT_EQ(again.length(), 0u);
  EXPECT_ERROR(again.resume(just(1)), "empty");
}

TEST_P(Sequences, ForkAndCutGoOnAsOneThatWasNeverCut) {
  Engine engine = this->engine();
  ASSERT_OK_AND_ASSIGN(Sequence trunk, engine.new_sequence());
  ASSERT_OK(trunk.append(some(30)));
  ASSERT_OK_AND_ASSIGN(const Generation straight, trunk.resume(just(10)));
  ASSERT_OK_AND_ASSIGN(Sequence branch, trunk.fork());
  EXPECT_EQ(branch.tokens(), trunk.tokens());
  ASSERT_OK_AND_ASSIGN(const Generation on, trunk.resume(just(5)));
  ASSERT_OK_AND_ASSIGN(const Generation off, branch.resume(just(5)));
  EXPECT_EQ(on.ids, off.ids);
  EXPECT_GT(off.timings.cached_tokens, 30u);

  ASSERT_OK_AND_ASSIGN(const std::size_t again, trunk.cut(30));
  EXPECT_EQ(again, 0u) << "a ring has room for a step besides its window";
  EXPECT_EQ(trunk.tokens(), some(30));
  ASSERT_OK_AND_ASSIGN(const Generation repeated, trunk.resume(just(10)));
  EXPECT_EQ(repeated.ids, straight.ids);
  EXPECT_GE(repeated.timings.cached_tokens, 29u);
  EXPECT_ERROR(trunk.cut(1000), "cut to 1000", "it has 40");
  ASSERT_OK(trunk.clear());
  EXPECT_EQ(trunk.length(), 0u);
}

TEST_P(Sequences, AreKeptInFiles) {
  const testing::TempDir folder;
  const auto file = folder / "sequence";
  Ids expected;
  {
    Engine engine = this->engine();
    ASSERT_OK_AND_ASSIGN(Sequence sequence, engine.sequence());
    ASSERT_OK(sequence.append(some(40)));
    ASSERT_OK(sequence.resume(just(6)));
    ASSERT_OK(sequence.save(file));
    ASSERT_OK_AND_ASSIGN(const Generation next, sequence.resume(just(6)));
    expected = next.ids;
  }
  Engine engine = this->engine(0);
  ASSERT_OK_AND_ASSIGN(Sequence sequence, engine.sequence());
  ASSERT_OK(sequence.load(file));
  EXPECT_EQ(sequence.length(), 46u);
  ASSERT_OK_AND_ASSIGN(const Generation next, sequence.resume(just(6)));
  EXPECT_EQ(next.ids, expected);
  EXPECT_EQ(next.timings.cached_tokens, 45u);
}

INSTANTIATE_TEST_SUITE_P(Backends, Sequences,
                         ::testing::Values(Case{"cpu", "models/llama", "f32"},
                                           Case{"cpu", "models/gemma3", "f16"},
                                           Case{"cpu", "models/gemma3", "q8_0"},
                                           Case{"reference", "models/gemma3", "f32"}),
                         [](const auto& parameter) {
                           return std::string(parameter.param.backend) + "_" +
                                  (std::string(parameter.param.model).substr(7)) + "_" +
                                  parameter.param.kv_type;
                         });

TEST(Sequence, AFileGoesFromOneBackendToAnother) {
  const testing::TempDir folder;
  const auto model = testing::data_path("models/gemma3");
  Engine cpu = load_engine(model, {.backend = "cpu", .kv_type = "f32"});
  Engine reference = load_engine(model, {.backend = "reference", .kv_type = "f32"});
  Sequence from = cpu.sequence().value(), to = reference.sequence().value();
  ASSERT_OK(from.append(some(20)));
  ASSERT_OK(from.save(folder / "s"));
  ASSERT_OK(to.load(folder / "s"));
  EXPECT_EQ(to.tokens(), some(20));
  ASSERT_OK_AND_ASSIGN(const Generation a, from.resume(just(5)));
  ASSERT_OK_AND_ASSIGN(const Generation b, to.resume(just(5)));
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(b.timings.cached_tokens, 19u);
}

TEST(Sequence, ACutThatARingHasOverwrittenIsComputedAgain) {
  Engine engine =
      load_engine(testing::data_path("models/gemma3"), {.backend = "cpu", .context = 1000, .cut_tokens = 0});
  Sequence sequence = engine.sequence().value();
  ASSERT_OK(sequence.append(some(600)));
  ASSERT_OK_AND_ASSIGN(const Generation straight, sequence.resume(just(3)));
  ASSERT_OK_AND_ASSIGN(const std::size_t near, sequence.cut(600));
  EXPECT_EQ(near, 0u);
  ASSERT_OK_AND_ASSIGN(const std::size_t far, sequence.cut(100));
  EXPECT_EQ(far, 100u);
  const Ids all = some(600);
  ASSERT_OK(sequence.append(std::span(all).subspan(100)));
  ASSERT_OK_AND_ASSIGN(const Generation again, sequence.resume(just(3)));
  EXPECT_EQ(again.ids, straight.ids);
}

TEST(Sequence, ARefusedAppendChangesNothing) {
  Engine engine = load_engine(testing::data_path("models/llama"), {.backend = "cpu", .context = 16});
  Sequence sequence = engine.sequence().value();
  ASSERT_OK(sequence.append(some(10)));
  EXPECT_ERROR(sequence.append(Ids{5, 100000}), "100000");
  EXPECT_ERROR(sequence.append(some(7)), "17 tokens", "context holds 16");
  EXPECT_EQ(sequence.tokens(), some(10));
  ASSERT_OK(sequence.append(some(6)));
  ASSERT_OK_AND_ASSIGN(const Generation last, sequence.resume(just(9)));
  EXPECT_EQ(last.ids.size(), 1u);
  EXPECT_EQ(last.stop_reason, StopReason::kContextEnd);
}

// --- hostile files

class SavedSequence : public ::testing::Test {
 protected:
  SavedSequence()
      : engine_(load_engine(testing::data_path("models/gemma3"), {.backend = "cpu", .context = 64})) {
    Sequence sequence = engine_.sequence().value();
    EXPECT_TRUE(sequence.append(some(20)).has_value());
    EXPECT_TRUE(sequence.save(file_).has_value());
    bytes_ = testing::read_file(file_);
  }
  Status load_changed(const std::string& bytes) {
    testing::write_file(file_, bytes);
    Sequence sequence = engine_.sequence().value();
    const Status status = sequence.load(file_);
    EXPECT_EQ(sequence.tokens(), some(20)) << "it holds what it held";
    return status;
  }
  testing::TempDir folder_;
  std::filesystem::path file_ = folder_ / "sequence";
  Engine engine_;
  std::string bytes_;
};

TEST_F(SavedSequence, IsRefusedWhereAnythingChanged) {
  ASSERT_OK(load_changed(bytes_));
  for (std::size_t at = 0; at < bytes_.size(); at += at < 200 ? 1 : 97) {
    std::string changed = bytes_;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    const Status status = load_changed(changed);
    EXPECT_FALSE(status.has_value()) << "byte " << at;
  }
  for (std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{47}, std::size_t{111}, bytes_.size() - 1})
    EXPECT_ERROR(load_changed(bytes_.substr(0, length)), "no sequence that Doppler has saved");
  EXPECT_ERROR(load_changed(bytes_ + "x"), "sizes do not fit");
}

TEST_F(SavedSequence, SizesThatOverflowAreRefused) {
  for (const std::size_t at : {24, 32, 40, 48}) {  // tokens, cached, bytes of the cache, of the text
    for (const std::uint64_t value :
         {UINT64_MAX, UINT64_MAX / 4, std::uint64_t{1} << 40, std::uint64_t{21}}) {
      std::string changed = bytes_;
      std::memcpy(changed.data() + at, &value, sizeof(value));
      EXPECT_ERROR(load_changed(changed), "no sequence that Doppler has saved");
    }
  }
}

TEST_F(SavedSequence, AnotherModelsAndAnotherTypesAreRefused) {
  const auto refuses = [&](const char* model, LoadOptions options, const char* why) {
    options.backend = "cpu";
    Engine other = load_engine(testing::data_path(model), options);
    EXPECT_ERROR(other.sequence().value().load(file_), why);
  };
  refuses("models/llama", {.context = 64}, "another model");
  refuses("models/gemma2", {.context = 64}, "another model");
  refuses("models/gemma3", {.context = 64, .kv_type = "f16"}, "another type");
  refuses("models/gemma3", {.context = 10}, "context holds 10");
  EXPECT_ERROR(engine_.sequence().value().load("/nowhere/at/all"), "/nowhere");
}

TEST_F(SavedSequence, KeepsATextBeside) {
  Sequence sequence = engine_.sequence().value();
  const std::string text("two\nlines and a \0 byte", 22);
  ASSERT_OK(sequence.save(file_, text));
  std::string read = "something";
  ASSERT_OK(sequence.load(file_, &read));
  EXPECT_EQ(read, text);
  bytes_ = testing::read_file(file_);
  for (std::size_t back = 65; back < 65 + text.size(); ++back) {
    std::string changed = bytes_;
    changed[changed.size() - back] ^= 1;
    EXPECT_ERROR(load_changed(changed), "content has changed");
  }
}

// --- what a ring still holds

TEST(SlotLengths, KnowWhatARingHasOverwritten) {
  const std::vector<KvLayer> layers = {{.kv_heads = 1, .head_dim = 4, .window = 0},
                                       {.kv_heads = 1, .head_dim = 4, .window = 5}};
  PageTable pages(8, 2, 100);
  SlotLengths slots(layers, 100, 2, 4, pages);  // a ring of 8
  for (int i = 0; i < 20; ++i) slots.grow(0);
  EXPECT_TRUE(slots.can_cut(0, 20));
  EXPECT_TRUE(slots.can_cut(0, 16)) << "the token at 16 looks back to 12, the oldest there";
  EXPECT_FALSE(slots.can_cut(0, 15));
  EXPECT_TRUE(slots.can_cut(0, 0));
  EXPECT_FALSE(slots.can_cut(0, 21));
  slots.cut(0, 16);
  EXPECT_FALSE(slots.can_cut(0, 15)) << "what was overwritten does not come back";
  slots.clear(0);
  for (int i = 0; i < 8; ++i) slots.grow(0);
  EXPECT_TRUE(slots.can_cut(0, 1));
  slots.keep(0, 6, 9);  // tokens that a device has written ahead
  EXPECT_EQ(slots[0], 6u);
  EXPECT_TRUE(slots.can_cut(0, 5));
  EXPECT_FALSE(slots.can_cut(0, 4)) << "position 0 is overwritten";
  slots.fill(1, 10);
  EXPECT_TRUE(slots.can_cut(1, 10));
  EXPECT_FALSE(slots.can_cut(1, 9)) << "only what the next token sees was put in";
  slots.fill(1, 4);
  EXPECT_TRUE(slots.can_cut(1, 1));
}

TEST(SlotLengths, GivePagesBackWithTheTokens) {
  PageTable pages(8, 2, 100);
  SlotLengths slots({{.kv_heads = 1, .head_dim = 4, .window = 0}}, 100, 2, 4, pages);
  ASSERT_OK(pages.reserve(0, 0, 100));
  for (int i = 0; i < 70; ++i) slots.grow(0);
  slots.keep(0, 70, 100);
  EXPECT_EQ(pages.count(0), 3u);
  slots.cut(0, 64);
  EXPECT_EQ(pages.count(0), 2u);
  slots.clear(0);
  EXPECT_EQ(pages.free_pages(), 8u);
}

}  // namespace
}  // namespace doppler
