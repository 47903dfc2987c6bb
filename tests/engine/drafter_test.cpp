// What follows is guessed from the latest earlier place that ends alike, in constant time and bounded memory.
#include "engine/drafter.h"

#include <gtest/gtest.h>

#include <random>

namespace doppler {
namespace {

using Guesses = std::vector<TokenId>;

Guesses guesses_after(std::initializer_list<TokenId> ids, std::size_t count) {
  Drafter drafter(100);
  drafter.push(std::vector<TokenId>(ids));
  Guesses guesses;
  drafter.draft(count, guesses);
  return guesses;
}

TEST(Drafter, GuessesWhatFollowedTheSameEndBefore) {
  EXPECT_EQ(guesses_after({1, 2, 3, 4, 5, 9, 1, 2}, 3), (Guesses{3, 4, 5}));
}

TEST(Drafter, OneTokenInCommonIsNoReason) {
  EXPECT_EQ(guesses_after({1, 2, 3, 9, 2}, 3), Guesses());
  EXPECT_EQ(guesses_after({1}, 3), Guesses());
  EXPECT_EQ(guesses_after({}, 3), Guesses());
}

TEST(Drafter, TheLongestEndDecidesAndOfEqualOnesTheLatest) {
  EXPECT_EQ(guesses_after({1, 2, 3, 40, 7, 2, 3, 50, 1, 2, 3}, 1), (Guesses{40}));
  EXPECT_EQ(guesses_after({2, 3, 40, 7, 2, 3, 50, 8, 2, 3}, 1), (Guesses{50}));
}

TEST(Drafter, TextThatTurnsInACircleIsGuessedBeyondItsEnd) {
  EXPECT_EQ(guesses_after({9, 1, 2, 3, 1, 2, 3, 1, 2}, 7), (Guesses{3, 1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(guesses_after({5, 5, 5}, 4), (Guesses{5, 5, 5, 5}));
}

TEST(Drafter, WhatAgreesForLongIsFollowedThoughShorterEndsStandLater) {
  Drafter drafter(100);
  drafter.push(std::vector<TokenId>{1, 2, 3, 4, 5, 6, 7, 8, 30, 3, 4, 5, 6, 31, 1, 2, 3, 4, 5, 6});
  EXPECT_EQ(drafter.agreed(), 6u);
  EXPECT_EQ(drafter.guess(), 7);
  drafter.push(99);
  EXPECT_EQ(drafter.agreed(), 0u) << "a wrong guess ends it";
}

TEST(Drafter, WhatHashesAlikeIsNoMatch) {
  // Many more ends than places: a guess is still only made where the tokens are the same.
  Drafter drafter(8);
  std::mt19937 random(1);
  std::vector<TokenId> ids;
  for (int i = 0; i < 3000; ++i) {
    ids.push_back(static_cast<TokenId>(random() % 40));
    drafter.push(ids.back());
    if (drafter.agreed() == 0) continue;
    Guesses guess;
    drafter.draft(1, guess);
    bool stood = false;
    for (std::size_t at = 2; at < ids.size() && !stood; ++at)
      stood = ids[at] == guess[0] && ids[at - 1] == ids[ids.size() - 1] && ids[at - 2] == ids[ids.size() - 2];
    ASSERT_TRUE(stood) << "after " << ids.size() << " tokens";
  }
}

}  // namespace
}  // namespace doppler
