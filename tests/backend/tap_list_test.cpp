#include "backend/tap_list.h"

#include <gtest/gtest.h>

#include "backend/backend.h"

namespace doppler {
namespace {

// Wants some columns of one stage, and counts what it is shown.
struct PartTap final : Tap {
  PartTap(Stage only, Columns some) : stage(only), part(some) {}
  bool wants(Stage s, int) const override { return s == stage; }
  Columns columns(Stage, int) const override { return part; }
  void on_stage(const TapEvent& event) override {
    ++events;
    EXPECT_EQ(event.stage, stage);
  }
  Stage stage;
  Columns part;
  std::size_t events = 0;
};

TEST(TapList, AsksForTheColumnsThatItsTapsNeed) {
  PartTap low(Stage::kLayerOut, {3, 4}), high(Stage::kLayerOut, {10, 2}), other(Stage::kQProj, {0, 1});
  TapList list;
  list.add(&low).add(&high).add(&other);
  EXPECT_EQ(list.columns(Stage::kLayerOut, 0), (Columns{3, 9}))
      << "from the first to the last as one stretch";
  EXPECT_EQ(list.columns(Stage::kQProj, 0), (Columns{0, 1})) << "those who do not want a stage have no say";
  PartTap all(Stage::kQProj, {});
  list.add(&all);
  EXPECT_EQ(list.columns(Stage::kQProj, 0), Columns{}) << "one of them needs whole rows";
}

TEST(TapList, ListsWithinListsAskForTheSame) {
  PartTap low(Stage::kLayerOut, {3, 4}), high(Stage::kLayerOut, {10, 2});
  TapList inner, outer;
  PartTap logits(Stage::kLogits, {});
  inner.add(&low).add(&high);
  outer.add(&logits).add(inner.get());
  EXPECT_EQ(outer.columns(Stage::kLayerOut, 0), (Columns{3, 9}));
  EXPECT_TRUE(outer.wants(Stage::kLogits, -1));
  EXPECT_FALSE(outer.wants(Stage::kKProj, 0));
}

TEST(TapList, ShowsEachTapWhatItWants) {
  PartTap layer(Stage::kLayerOut, {}), query(Stage::kQProj, {});
  TapList none, one, both;
  EXPECT_EQ(none.add(nullptr).get(), nullptr) << "nothing is looked at";
  EXPECT_EQ(one.add(&layer).add(nullptr).get(), &layer) << "one tap needs no list";
  Tap* const tap = both.add(&layer).add(&query).get();
  for (const Stage stage : {Stage::kQProj, Stage::kLayerOut, Stage::kLayerOut, Stage::kKProj}) {
    if (tap->wants(stage, 0)) tap->on_stage({.stage = stage, .layer = 0});
  }
  EXPECT_EQ(layer.events, 2u);
  EXPECT_EQ(query.events, 1u);
}

}  // namespace
}  // namespace doppler
