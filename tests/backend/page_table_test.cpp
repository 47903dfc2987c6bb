// Pages that slots take from a pool, give back, and share.
#include "backend/page_table.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "testing.h"

namespace doppler {
namespace {

std::vector<std::uint32_t> pages_of(const PageTable& table, std::uint32_t slot) {
  const auto row = table.row(slot).first(table.count(slot));
  return {row.begin(), row.end()};
}
using Pages = std::vector<std::uint32_t>;

TEST(PageTable, GivesASlotThePagesOfItsLength) {
  PageTable table(8, 3, 128);
  ASSERT_OK_AND_ASSIGN(const auto copy, table.reserve(1, 0, 33));
  EXPECT_FALSE(copy);
  EXPECT_EQ(pages_of(table, 1), (Pages{0, 1}));
  ASSERT_OK(table.reserve(1, 33, 64));
  EXPECT_EQ(table.count(1), 2u) << "the second page has room";
  ASSERT_OK(table.reserve(0, 0, 1));
  ASSERT_OK(table.reserve(1, 64, 65));
  EXPECT_EQ(pages_of(table, 1), (Pages{0, 1, 3}));
  EXPECT_EQ(table.page(1, 64), 3u);
  EXPECT_EQ(table.page(1, 63), 1u);
  EXPECT_EQ(table.free_pages(), 4u);
}

TEST(PageTable, HandsOutAgainWhatIsGivenBack) {
  PageTable table(3, 2, 96);
  ASSERT_OK(table.reserve(0, 0, 96));
  table.cut(0, 64);
  EXPECT_EQ(table.count(0), 2u) << "the end of the second page is the last position";
  table.cut(0, 33);
  EXPECT_EQ(table.count(0), 2u);
  ASSERT_OK(table.reserve(1, 0, 32));
  EXPECT_EQ(pages_of(table, 1), (Pages{2}));
  table.release(0);
  ASSERT_OK(table.reserve(1, 32, 96));
  EXPECT_EQ(pages_of(table, 1), (Pages{2, 0, 1}));
}

TEST(PageTable, SaysThatPagesRanOutAndChangesNothing) {
  PageTable table(3, 2, 96);
  ASSERT_OK(table.reserve(0, 0, 64));
  const auto refused = table.reserve(1, 0, 33);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_ERROR(refused, "room for 96 positions", "slot 1", "fewer sequences", "cache_positions");
  EXPECT_EQ(table.count(1), 0u);
  EXPECT_EQ(table.free_pages(), 1u);
  EXPECT_TRUE((table.reserve(1, 0, 32)).has_value());
}

TEST(PageTable, AsksWhetherASlotCanSpareItsPages) {
  PageTable table(3, 3, 96);
  ASSERT_OK(table.reserve(0, 0, 64));
  ASSERT_OK(table.reserve(1, 0, 32));
  Pages asked;
  table.on_shortage([&](std::uint32_t slot) {
    asked.push_back(slot);
    if (asked.size() > 2) return false;
    table.release(static_cast<std::uint32_t>(asked.size()) - 1);
    return true;
  });
  ASSERT_OK(table.reserve(2, 0, 96));
  EXPECT_EQ(asked, (Pages{2, 2}));
  EXPECT_EQ(table.count(2), 3u);
  EXPECT_FALSE(table.reserve(0, 0, 1));
}

TEST(PageTable, SharesABeginningUntilOneGoesOn) {
  PageTable table(8, 3, 256);
  ASSERT_OK(table.reserve(0, 0, 80));
  table.share(0, 1, 80);
  table.share(0, 2, 64);
  EXPECT_EQ(pages_of(table, 1), pages_of(table, 0));
  EXPECT_EQ(pages_of(table, 2), (Pages{0, 1}));
  EXPECT_EQ(table.free_pages(), 5u);
  ASSERT_OK_AND_ASSIGN(const auto copy, table.reserve(1, 80, 81));
  ASSERT_TRUE(copy);
  EXPECT_EQ(*copy, (PageCopy{2, 3})) << "the page with the last 16 positions";
  EXPECT_EQ(pages_of(table, 1), (Pages{0, 1, 3}));
  ASSERT_OK_AND_ASSIGN(const auto own, table.reserve(0, 80, 81));
  EXPECT_FALSE(own) << "nobody else has its last page now";
  ASSERT_OK_AND_ASSIGN(const auto whole, table.reserve(2, 64, 65));
  EXPECT_FALSE(whole) << "a beginning of whole pages needs no copy";
  table.release(0);
  table.release(1);
  EXPECT_EQ(pages_of(table, 2), (Pages{0, 1, 4}));
  EXPECT_EQ(table.free_pages(), 5u);
}

TEST(PageTable, CopiesASharedPageThatACutLeavesInPart) {
  PageTable table(8, 2, 256);
  ASSERT_OK(table.reserve(0, 0, 64));
  table.share(0, 1, 64);
  table.cut(1, 40);
  ASSERT_OK_AND_ASSIGN(const auto copy, table.reserve(1, 40, 100));
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->from, 1u);
  EXPECT_EQ(copy->to, table.page(1, 40));
  EXPECT_NE(table.page(1, 63), table.page(0, 63));
  EXPECT_EQ(table.page(1, 0), table.page(0, 0));
  // Begun anew in pages that are still shared: nothing of them stays, so nothing is copied.
  table.share(0, 1, 64);
  ASSERT_OK_AND_ASSIGN(const auto none, table.reserve(1, 0, 10));
  EXPECT_FALSE(none);
  EXPECT_NE(table.page(1, 0), table.page(0, 0));
}

TEST(PageTable, NoticesWhichRowsChange) {
  PageTable table(4, 2, 64);
  EXPECT_FALSE(table.take_changed(0));
  ASSERT_OK(table.reserve(0, 0, 5));
  EXPECT_TRUE(table.take_changed(0));
  EXPECT_FALSE(table.take_changed(0));
  EXPECT_FALSE(table.take_changed(1));
  table.share(0, 1, 5);
  EXPECT_TRUE(table.take_changed(1));
}

TEST(PageTable, OfACacheWithoutPagesAgreesToAll) {
  PageTable none;
  EXPECT_TRUE((none.reserve(3, 0, 1000)).has_value());
  none.cut(3, 5);
  none.share(1, 2, 7);
  EXPECT_EQ(none.count(1), 0u);
}

// Whatever happens: pages in use and free ones are all there are, a page that two slots have is full in both
// or copied before either writes it, and no page that is written belongs to anybody else.
TEST(PageTable, KeepsItsBooksWhateverHappens) {
  constexpr std::uint32_t kPages = 12, kSlots = 4, kContext = 200;
  PageTable table(kPages, kSlots, kContext);
  std::vector<std::uint64_t> lengths(kSlots, 0);
  std::mt19937 random(7);
  int refused = 0, copies = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::uint32_t slot = random() % kSlots, other = random() % kSlots;
    switch (random() % 4) {
      case 0:
      case 1: {
        const std::uint64_t length = std::min<std::uint64_t>(kContext, lengths[slot] + random() % 50);
        const auto copy = table.reserve(slot, lengths[slot], length);
        if (!copy) {
          ++refused;
          break;
        }
        copies += *copy ? 1 : 0;
        for (std::uint64_t p = lengths[slot]; p < length; ++p) {
          for (std::uint32_t s = 0; s < kSlots; ++s) {
            const Pages theirs = pages_of(table, s);
            ASSERT_TRUE(s == slot || std::ranges::count(theirs, table.page(slot, p)) == 0);
          }
        }
        lengths[slot] = length;
        break;
      }
      case 2:
        lengths[slot] = lengths[slot] == 0 ? 0 : random() % lengths[slot];
        table.cut(slot, lengths[slot]);
        break;
      default:
        if (slot == other) break;
        lengths[other] = lengths[slot] == 0 ? 0 : random() % (lengths[slot] + 1);
        table.share(slot, other, lengths[other]);
    }
    std::vector<int> used(kPages, 0);
    for (std::uint32_t s = 0; s < kSlots; ++s) {
      ASSERT_EQ(table.count(s), pages_for(lengths[s]));
      for (const std::uint32_t page : pages_of(table, s)) used[page] = 1;
    }
    ASSERT_EQ(table.free_pages() + std::accumulate(used.begin(), used.end(), 0u), kPages);
  }
  EXPECT_GT(refused, 10);
  EXPECT_GT(copies, 10);
}

}  // namespace
}  // namespace doppler
