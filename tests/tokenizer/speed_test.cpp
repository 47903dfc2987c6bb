// Encoding is linear in the text, also where nothing cuts it into words: counted in steps, not in seconds.
#include "testing.h"
#include "tokenizer/model.h"

namespace doppler::tokenizer {
namespace {

// Runs of one letter, doubling: the longest chain of merges over a text that never falls apart.
TokenizerSpec doubling_spec(ModelKind kind) {
  TokenizerSpec spec;
  spec.kind = kind;
  const auto add = [&](const std::string& piece, double score, PieceType type) {
    spec.vocabulary.add(piece, static_cast<TokenId>(spec.vocabulary.size()));
    spec.scores.push_back(score);
    spec.types.push_back(type);
  };
  add("<unk>", 0, PieceType::kUnknown);
  spec.unknown = 0;
  std::string run = "a";
  add(run, -1, PieceType::kNormal);
  for (int i = 0; i < 8; ++i) {
    run += run;
    add(run, -1 - 0.01 * i, PieceType::kNormal);  // short before long; few pieces beat many
    const auto id = static_cast<TokenId>(spec.vocabulary.size() - 1);
    spec.merges.push_back({id - 1, id - 1, id});
  }
  // A quarter of a million other pieces around them.
  for (int i = 0; i < 262'144; ++i) add(fmt::format("b{}", i), -100, PieceType::kNormal);
  return spec;
}

std::uint64_t steps_of(const Model& model, std::size_t bytes) {
  Pieces pieces;
  pieces.text = std::string(bytes, 'a');
  pieces.ranges = {{0, bytes}};
  std::vector<TokenId> ids;
  EncodeWork work;
  EXPECT_TRUE(model.encode(pieces, ids, work).has_value());
  EXPECT_EQ(ids.size(), bytes / 256);
  return work.steps;
}

class Linear : public ::testing::TestWithParam<ModelKind> {};

TEST_P(Linear, StepsGrowWithTheText) {
  const TokenizerSpec spec = doubling_spec(GetParam());
  ASSERT_OK_AND_ASSIGN(const auto model, make_model(spec));
  const std::uint64_t small = steps_of(*model, 1 << 12), large = steps_of(*model, 1 << 15);
  EXPECT_GT(small, 1u << 11);
  EXPECT_LT(large, small * 9) << "8 times the text";
  EXPECT_LT(large, std::uint64_t{10} << 15) << "a few steps a byte";
}

INSTANTIATE_TEST_SUITE_P(Models, Linear,
                         ::testing::Values(ModelKind::kBpe, ModelKind::kSentencePieceBpe, ModelKind::kUnigram,
                                           ModelKind::kSentencePieceUnigram));

}  // namespace
}  // namespace doppler::tokenizer
