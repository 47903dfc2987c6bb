// How people name models, and which names are none.
#include "hub/name.h"

#include "hub/url.h"
#include "testing.h"

namespace doppler::hub {
namespace {

TEST(HubName, HasARepositoryARevisionAndAPick) {
  struct Case {
    const char *text, *repo, *revision, *pick;
  };
  for (const Case& c : std::vector<Case>{
           {"org/name", "org/name", "main", ""},
           {"org/name:Q4_K_M", "org/name", "main", "Q4_K_M"},
           {"org/name@v1:dir/file.gguf", "org/name", "v1", "dir/file.gguf"},
           {"org/name@refs/pr/1", "org/name", "refs/pr/1", ""},
           {"gpt2", "gpt2", "main", ""},
           {"hf:org/name:q8_0", "org/name", "main", "q8_0"},
           {"hf.co/org/name:Q4_0", "org/name", "main", "Q4_0"},
           {"https://huggingface.co/org/name", "org/name", "main", ""},
           {"https://huggingface.co/org/name/", "org/name", "main", ""},
           {"https://huggingface.co/org/name/tree/v2", "org/name", "v2", ""},
           {"https://huggingface.co/org/name/blob/main/a/b.gguf", "org/name", "main", "a/b.gguf"},
           {"https://huggingface.co/org/name/resolve/main/b.gguf?download=true", "org/name", "main",
            "b.gguf"},
       }) {
    SCOPED_TRACE(c.text);
    ASSERT_OK_AND_ASSIGN(const ModelName name, parse_name(c.text));
    EXPECT_EQ(name.repo, c.repo);
    EXPECT_EQ(name.revision, c.revision);
    EXPECT_EQ(name.pick, c.pick);
  }
}

TEST(HubName, WhatIsNoneIsRefused) {
  for (const char* text : {"", "/", "org/", "/name", "a/b/c", "org/..", "../name", "org/na me",
                           "org/name:", "org/name:../../x", "org/name:/etc/passwd", "org/name@../x",
                           "org--x/name", "org/name@", "-org/name", "org\\name", "hf.co/", "org/name:a\\b"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(parse_name(text).has_value());
  }
  EXPECT_ERROR(parse_name("https://example.org/model.gguf"), "does not lead to a model of the Hub",
               "download the file");
  EXPECT_ERROR(parse_name("a/b/c"), "is no model's name", "org/name:Q4_K_M");
}

TEST(HubName, PathsAreNotTakenForNames) {
  EXPECT_TRUE(looks_like_name("org/name"));
  EXPECT_TRUE(looks_like_name("org/name:Q4_K_M"));
  EXPECT_TRUE(looks_like_name("https://huggingface.co/org/name"));
  for (const char* path : {"model.gguf", "./org/name", "../name", "/org/name", "~/name", "a/b/c", "demo"})
    EXPECT_FALSE(looks_like_name(path)) << path;
}

TEST(HubName, InnerPathsStayInside) {
  for (const char* path : {"a", "a/b.gguf", "a.b/c-d_e", "..a", "a..", "a b"})
    EXPECT_TRUE(is_inner_path(path)) << path;
  for (const std::string path : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/..", "a\\b", "c:a", "a\nb"})
    EXPECT_FALSE(is_inner_path(path)) << path;
  EXPECT_FALSE(is_inner_path(std::string(600, 'a')));
  EXPECT_FALSE(is_inner_path(std::string("a\0b", 3)));
}

TEST(HubUrl, OriginsCompareByWhatTheyConnectTo) {
  EXPECT_EQ(origin_of("https://HuggingFace.co/x"), "https://huggingface.co:443");
  EXPECT_EQ(origin_of("https://huggingface.co:443"), origin_of("https://huggingface.co"));
  EXPECT_NE(origin_of("http://huggingface.co"), origin_of("https://huggingface.co"));
  EXPECT_EQ(origin_of("http://[::1]:80/"), "http://[::1]:80");
  for (const char* url : {"ftp://a/b", "https://", "https://user@host/", "https://a:b/", "https://a:999999/",
                          "https:/a", "a", "https://a/\r\nX: y"})
    EXPECT_FALSE(origin_of(url).has_value()) << url;
}

TEST(HubUrl, RedirectsAreFollowedAsBrowsersDo) {
  EXPECT_EQ(follow("https://a/b/c?x=1", "https://d/e"), "https://d/e");
  EXPECT_EQ(follow("https://a/b/c?x=1", "//d/e"), "https://d/e");
  EXPECT_EQ(follow("https://a/b/c?x=1", "/e?u=http://f"), "https://a/e?u=http://f");
  EXPECT_EQ(follow("https://a/b/c?x=1", "e"), "https://a/b/e");
  EXPECT_EQ(follow("https://a", "e"), "https://a/e");
  EXPECT_FALSE(follow("https://a/b", "file:///etc/passwd").has_value());
  EXPECT_FALSE(follow("https://a/b", "").has_value());
  EXPECT_EQ(escape_path("a b/ü"), "a%20b/%C3%BC");
  EXPECT_EQ(escape_segment("refs/pr/1"), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace doppler::hub
