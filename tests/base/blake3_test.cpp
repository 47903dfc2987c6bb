// BLAKE3 against the values that its authors publish for bytes 0, 1, ..., 250, 0, 1, ...
#include "base/blake3.h"

#include "base/sha256.h"
#include "testing.h"

namespace doppler {
namespace {

std::vector<std::byte> counted_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

struct Published {
  std::size_t size;
  const char* hash;
};
// Around the ends of blocks (64), chunks (1024) and subtrees.
constexpr Published kPublished[] = {
    {0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
    {1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
    {1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
    {1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
    {1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
    {2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
    {2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"},
    {3072, "b98cb0ff3623be03326b373de6b9095218513e64f1ee2edd2525c7ad1e5cffd2"},
    {4096, "015094013f57a5277b59d8475c0501042c0b642e531b0a1c8f58d2163229e969"},
    {4097, "9b4052b38f1c5fc8b1f9ff7ac7b27cd242487b3d890d15c96a1c25b8aa0fb995"},
    {5120, "9cadc15fed8b5d854562b26a9536d9707cadeda9b143978f319ab34230535833"},
    {5121, "628bd2cb2004694adaab7bbd778a25df25c47b9d4155a55f8fbd79f2fe154cff"},
    {6145, "f1323a8631446cc50536a9f705ee5cb619424d46887f3c376c695b70e0f0507f"},
    {7168, "61da957ec2499a95d6b8023e2b0e604ec7f6b50e80a9678b89d2628e99ada77a"},
};

TEST(Blake3, GivesThePublishedHashes) {
  for (const auto& [size, hash] : kPublished) {
    Blake3 hasher;
    hasher.add(counted_bytes(size));
    EXPECT_EQ(hex_digits(hasher.finish()), hash) << size;
  }
}

TEST(Blake3, IsTheSameInAnyPieces) {
  for (const auto& [size, hash] : kPublished) {
    const std::vector<std::byte> bytes = counted_bytes(size);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000}}) {
      Blake3 hasher;
      for (std::size_t at = 0; at < size; at += piece)
        hasher.add(std::span(bytes).subspan(at, std::min(piece, size - at)));
      EXPECT_EQ(hex_digits(hasher.finish()), hash) << size << " in pieces of " << piece;
    }
  }
}

TEST(Blake3, MayBeAskedBetweenPieces) {
  const std::vector<std::byte> bytes = counted_bytes(2048);
  Blake3 hasher;
  hasher.add(std::span(bytes).first(1024));
  EXPECT_EQ(hex_digits(hasher.finish()), kPublished[3].hash);
  hasher.add(std::span(bytes).subspan(1024));
  EXPECT_EQ(hex_digits(hasher.finish()), kPublished[5].hash);
}

}  // namespace
}  // namespace doppler
