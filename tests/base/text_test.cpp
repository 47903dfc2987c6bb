#include "base/text.h"

#include <gtest/gtest.h>

#include <random>

namespace doppler {
namespace {

// RFC 3629 by code points: decodes `length` bytes the simple way and asks whether the number deserves that
// length.
std::size_t sequence_by_definition(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf8 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (length == 0 || text.size() < length) return 0;
  unsigned point = lead & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
    point = point << 6 | (byte(i) & 0x3fu);
  }
  const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return point >= least[length] && point <= 0x10ffff && !surrogate ? length : 0;
}

TEST(Utf8, SequenceLengthFollowsTheDefinition) {
  for (unsigned first = 0; first < 256; ++first) {
    for (unsigned second = 0; second < 256; ++second) {
      for (const char* rest : {"", "\x80", "\x80\x80", "\xbf\xbf", "a\x80",
                               "\x80"
                               "a"}) {
        const std::string text = {static_cast<char>(first), static_cast<char>(second)};
        const std::string all = text + rest;
        EXPECT_EQ(utf8_sequence_length(all), sequence_by_definition(all)) << first << " " << second;
      }
    }
  }
  EXPECT_EQ(utf8_sequence_length(""), 0u);
  EXPECT_EQ(utf8_sequence_length("\xe2\x82"), 0u) << "incomplete";
}

TEST(Utf8, IncompleteSuffixIsWhatANextByteCouldComplete) {
  struct Case {
    const char* text;
    std::size_t suffix;
  };
  const Case cases[] = {
      {"", 0},
      {"abc", 0},
      {"é", 0},
      {"a\xc3", 1},
      {"a\xe2", 1},
      {"a\xe2\x82", 2},
      {"€", 0},
      {"\xf0\x9f", 2},
      {"\xf0\x9f\x98", 3},
      {"😀", 0},
      {"a\x80", 0},
      {"\x80\x80\x80\x80", 0},
      {"\xc0", 0},
      {"\xff", 0},
      {"\xe0\x80", 0},
      {"\xed\xa0", 0},
      {"\xf4\x90", 0},
      {"\xe2\x82\xac\xe2", 1},
      {"\xc3\xa9\x80", 0},
      {"\xf5\x80", 0},
  };
  for (const Case& c : cases) EXPECT_EQ(incomplete_utf8_suffix(c.text), c.suffix) << printable(c.text);
}

TEST(Utf8, LossyReplacesEachMaximalInvalidPart) {
  struct Case {
    const char* bytes;
    const char* text;
  };
  // What Python's bytes.decode("utf-8", "replace") gives.
  const Case cases[] = {
      {"plain é €", "plain é €"},
      {"a\xff"
       "b",
       "a\uFFFDb"},
      {"\xe2\x82", "\uFFFD"},
      {"\xe2\x82"
       "x",
       "\uFFFDx"},
      {"\xf0\x9f\x98", "\uFFFD"},
      {"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
      {"\xc3\xc3\xa9", "\uFFFDé"},
      {"\x80\x80", "\uFFFD\uFFFD"},
      {"\xf1\x80\x80\xe2\x82\xac", "\uFFFD€"},
  };
  for (const Case& c : cases) EXPECT_EQ(utf8_lossy(c.bytes), c.text) << printable(c.bytes);
}

TEST(Utf8, LossyIsAlwaysValidAndLeavesValidTextAlone) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 12, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 2 == 0 ? random() % 128 : 128 + random() % 128);
    const std::string text = utf8_lossy(bytes);
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = utf8_sequence_length(std::string_view(text).substr(i));
      ASSERT_NE(length, 0u) << printable(bytes);
      i += length;
    }
    EXPECT_EQ(utf8_lossy(text), text);
  }
}

TEST(Printable, EscapesWhatATerminalMustNotSee) {
  EXPECT_EQ(printable("tab\tline\nbell\aesc\x1b[31m"), "tab\\tline\\nbell\\x07esc\\x1b[31m");
  EXPECT_EQ(printable("é\xff\xc2\x9b\x7f"), "é\\xff\\xc2\\x9b\\x7f");
  EXPECT_EQ(printable(std::string("nul\0", 4)), "nul\\x00");
  EXPECT_EQ(printable("12345", 5), "12345");
  EXPECT_EQ(printable("123456", 5), "12345…");
  EXPECT_EQ(printable("1234é€", 5), "1234é…") << "never cuts a character";
}

TEST(HumanBytes, OneDigitAndTheUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(637'049), "637.0 kB");
  EXPECT_EQ(human_bytes(999'949), "999.9 kB");
  EXPECT_EQ(human_bytes(999'950), "1.0 MB");
  EXPECT_EQ(human_bytes(1'234'567'890), "1.2 GB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18.4 EB");
}

TEST(NearestName, FindsATypingErrorAndNothingElse) {
  const std::vector<std::string> names = {"temperature", "top_k", "top_p", "seed", "max_tokens"};
  EXPECT_EQ(nearest_name("temperatur", names), "temperature");
  EXPECT_EQ(nearest_name("tempreature", names), "temperature");
  EXPECT_EQ(nearest_name("topk", names), "top_k");
  EXPECT_EQ(nearest_name("sead", names), "seed");
  EXPECT_EQ(nearest_name("seed", names), "seed");
  EXPECT_EQ(nearest_name("quantization", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("x", {}), "");
  const std::vector<std::string> stages = {"q_proj", "q_norm"};
  EXPECT_EQ(nearest_name("q_nrom", stages), "q_norm");  // two letters swapped are one mistake
  const std::string absurd(100'000, 's');
  EXPECT_EQ(nearest_name(absurd, std::vector{absurd}), "")
      << "comparing names of this length is not worth its time";
}

TEST(Trimmed, TakesOnlyAsciiSpaceAway) {
  EXPECT_EQ(trimmed(" \t\r\n\v\f a b \n"), "a b");
  EXPECT_EQ(trimmed(" \n "), "");
  EXPECT_EQ(trimmed("l\xc3\xa0 "), "l\xc3\xa0");
}

TEST(Counted, SaysOneAndMany) {
  EXPECT_EQ(counted(0, "line"), "0 lines");
  EXPECT_EQ(counted(1, "line"), "1 line");
  EXPECT_EQ(counted(12, "line"), "12 lines");
}

TEST(Join, PutsTheSeparatorBetween) {
  const std::vector<std::string> parts = {"a", "b", "c"};
  EXPECT_EQ(join(parts, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

}  // namespace
}  // namespace doppler
