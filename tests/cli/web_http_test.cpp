// What the server of doppler web makes of requests: the browser's, and those of whoever else finds the port.
#include "cli/web/http.h"

#include "testing.h"

namespace doppler::cli {
namespace {

using Range = std::pair<std::uint64_t, std::uint64_t>;

Result<HttpRequest> request(const std::string& first, const std::string& headers = "") {
  return parse_request(first + "\r\n" + headers);
}

TEST(WebRequest, WhatABrowserAsksIsUnderstood) {
  ASSERT_OK_AND_ASSIGN(const HttpRequest get, request("GET /s/model/a%20b.gguf?x=1 HTTP/1.1",
                                                      "Host: 127.0.0.1:80\r\nRANGE:  bytes=5-9 \r\n"));
  EXPECT_EQ(get.method, "GET");
  EXPECT_EQ(get.path, "/s/model/a b.gguf");
  EXPECT_EQ(get.host, "127.0.0.1:80");
  ASSERT_TRUE(get.range.has_value());
  EXPECT_EQ(get.range->first, 5u);
  EXPECT_EQ(get.range->last, 9u);
  ASSERT_OK_AND_ASSIGN(
      const HttpRequest post,
      request("POST /s/report HTTP/1.1", "Origin: http://127.0.0.1:80\r\nContent-Length: 12\r\n"));
  EXPECT_EQ(post.body, 12u);
  EXPECT_EQ(post.origin, "http://127.0.0.1:80");
}

TEST(WebRequest, WhatIsNoRequestIsRefused) {
  for (const char* const line : {"", "GET", "GET / HTTP/1.0", "GET  HTTP/1.1", " HTTP/1.1", "GET x HTTP/1.1",
                                 "GET http://a/ HTTP/1.1", "GET /%0 HTTP/1.1", "GET /%zz HTTP/1.1",
                                 "GET /%00 HTTP/1.1", "GET /a%0d%0ab HTTP/1.1", "GET /\x01 HTTP/1.1"})
    EXPECT_FALSE(request(line).has_value()) << line;
  for (const char* const header :
       {"no colon\r\n", ": nameless\r\n", "Content-Length: -1\r\n", "Content-Length: 1x\r\n",
        "Content-Length: 99999999999999999999\r\n", "Content-Length:\r\n", "Transfer-Encoding: chunked\r\n"})
    EXPECT_FALSE(request("POST /s/report HTTP/1.1", header).has_value()) << header;
}

TEST(WebRequest, ARangeIsAPartOfTheContentOrNone) {
  constexpr std::uint64_t kSize = 100;
  EXPECT_EQ(resolve_range({5, 9}, kSize), Range(5, 10));
  EXPECT_EQ(resolve_range({5, {}}, kSize), Range(5, 100));
  EXPECT_EQ(resolve_range({{}, 5}, kSize), Range(95, 100));
  EXPECT_EQ(resolve_range({{}, 500}, kSize), Range(0, 100));
  EXPECT_EQ(resolve_range({99, UINT64_MAX}, kSize), Range(99, 100));
  EXPECT_EQ(resolve_range({0, 0}, kSize), Range(0, 1));
  for (const HttpRange& outside :
       {HttpRange{100, {}}, HttpRange{UINT64_MAX, UINT64_MAX}, HttpRange{9, 5}, HttpRange{{}, 0}})
    EXPECT_EQ(resolve_range(outside, kSize), std::nullopt);
  EXPECT_EQ(resolve_range({{}, 5}, 0), std::nullopt);
  // What is no range is as if it had not been asked for.
  for (const char* const text : {"bytes=", "bytes=-", "bytes=a-b", "bytes=1-2,5-6", "lines=1-2", "bytes=5"}) {
    ASSERT_OK_AND_ASSIGN(const HttpRequest asked,
                         request("GET /x HTTP/1.1", std::string("Range: ") + text + "\r\n"));
    EXPECT_FALSE(asked.range.has_value()) << text;
  }
}

}  // namespace
}  // namespace doppler::cli
