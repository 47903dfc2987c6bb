// Stop strings end the text before their first appearance, however the text arrives.
#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace doppler {
namespace {

// What comes out when the text arrives in pieces of so many bytes.
std::string through(const std::vector<std::string>& stops, std::string_view text, std::size_t piece,
                    bool* found = nullptr) {
  StopStrings watcher(stops);
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece) out += watcher.feed(text.substr(i, piece));
  out += watcher.flush();
  if (found != nullptr) *found = watcher.found();
  return out;
}

void expect_cut(const std::vector<std::string>& stops, std::string_view text, std::string_view wanted) {
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    bool found = false;
    EXPECT_EQ(through(stops, text, piece, &found), wanted) << "pieces of " << piece;
    EXPECT_EQ(found, wanted.size() < text.size());
  }
}

TEST(StopStrings, CutTheTextWherePiecesFall) {
  expect_cut({"END"}, "some text END and more", "some text ");
  expect_cut({"END"}, "END", "");
  expect_cut({"\n\n"}, "line\nline\n\nafter", "line\nline");
}

TEST(StopStrings, TextWithoutOneComesThroughWhole) {
  expect_cut({"END"}, "EN ENE EEND_", "EN ENE E");
  expect_cut({"END"}, "almost EN", "almost EN");
  expect_cut({"abcabd"}, "abcabcabcab", "abcabcabcab");
  expect_cut({}, "anything", "anything");
}

TEST(StopStrings, BeginningsThatOverlapThemselves) {
  expect_cut({"aab"}, "aaaab!", "aa");
  expect_cut({"abab"}, "xababab", "x");
  expect_cut({"abcabd"}, "abcabcabd", "abc");
}

TEST(StopStrings, TheFirstOfSeveral) {
  expect_cut({"two", "one"}, "zero one two", "zero ");
  expect_cut({"</s>", "\nUser:"}, "hi\nUser: x</s>", "hi");
  // Both end at the same place: the one that begins first counts when the text comes at once or not.
  expect_cut({"bc", "abc"}, "xabcd", "x");
}

TEST(StopStrings, BytesOfACharacterMayArriveApart) {
  expect_cut({"é"}, "caf\u00e9!", "caf");
}

TEST(StopStrings, HoldBackOnlyWhatMayStillBecomeOne) {
  StopStrings watcher({"STOP"});
  EXPECT_EQ(watcher.feed("go ST"), "go ");
  EXPECT_EQ(watcher.feed("A"), "STA");
  EXPECT_EQ(watcher.feed("SSTO"), "S");
  EXPECT_EQ(watcher.feed(""), "");
  EXPECT_FALSE(watcher.found());
  EXPECT_EQ(watcher.flush(), "STO");
  EXPECT_EQ(watcher.flush(), "");
}

TEST(StopStrings, NothingComesAfterOne) {
  StopStrings watcher({"."});
  EXPECT_EQ(watcher.feed("One. Two"), "One");
  EXPECT_TRUE(watcher.found());
  EXPECT_EQ(watcher.feed("Three"), "");
  EXPECT_EQ(watcher.flush(), "");
}

}  // namespace
}  // namespace doppler
