// The server of doppler web, as programs of this machine meet it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/web/site.h"
#include "testing.h"

namespace doppler::cli {
namespace {

using testing::TempDir;

constexpr const char* kSecret = "0123456789abcdef0123456789abcdef";

// A whole exchange: what is sent, and all that comes back.
std::string exchange(std::uint16_t port, const std::string& sent) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::send(socket, sent.data(), sent.size(), MSG_NOSIGNAL), static_cast<ssize_t>(sent.size()));
  std::string came;
  char piece[4096];
  for (ssize_t got = 0; (got = ::recv(socket, piece, sizeof(piece), 0)) > 0;)
    came.append(piece, static_cast<std::size_t>(got));
  ::close(socket);
  return came;
}

struct WebSite : ::testing::Test {
  void SetUp() override {
    testing::write_file(folder / "index.js", "export {}");
    testing::write_file(folder / "hidden", "");
    auto opened = Site::open(0, kSecret);
    ASSERT_TRUE(opened.has_value());
    site = std::move(*opened);
    ASSERT_TRUE(site->add_folder("web/", folder.path()).has_value());
    site->add_text("task.json", "{}");
    ASSERT_TRUE(site->serve().has_value());
  }
  std::string ask(const std::string& line, std::string headers = "", const std::string& body = "") const {
    if (headers.find("Host:") == std::string::npos)
      headers += fmt::format("Host: 127.0.0.1:{}\r\n", site->port());
    return exchange(site->port(), line + " HTTP/1.1\r\n" + headers + "\r\n" + body);
  }
  std::string path(const std::string& name) const { return fmt::format("/{}/{}", kSecret, name); }
  static std::string status(const std::string& answer) { return answer.substr(9, 3); }

  TempDir folder;
  std::unique_ptr<Site> site;
};

TEST_F(WebSite, FilesComeWholeAndInPartsIsolatedFromOtherSites) {
  const std::string whole = ask("GET " + path("web/index.js"));
  EXPECT_EQ(status(whole), "200");
  EXPECT_TRUE(whole.ends_with("\r\n\r\nexport {}"));
  for (const char* const header :
       {"Cross-Origin-Opener-Policy: same-origin\r\n", "Cross-Origin-Embedder-Policy: require-corp\r\n",
        "Content-Type: text/javascript; charset=utf-8\r\n", "Content-Length: 9\r\n"})
    EXPECT_NE(whole.find(header), std::string::npos) << header;
  const std::string part = ask("GET " + path("web/index.js"), "Range: bytes=0-5\r\n");
  EXPECT_EQ(status(part), "206");
  EXPECT_TRUE(part.ends_with("\r\n\r\nexport"));
  EXPECT_NE(part.find("Content-Range: bytes 0-5/9\r\n"), std::string::npos);
  EXPECT_EQ(status(ask("GET " + path("web/index.js"), "Range: bytes=9-\r\n")), "416");
  EXPECT_TRUE(ask("HEAD " + path("web/index.js")).ends_with("\r\n\r\n"));
  EXPECT_TRUE(ask("GET " + path("task.json")).ends_with("\r\n\r\n{}"));
}

TEST_F(WebSite, NothingElseIsThere) {
  for (const std::string& other :
       {std::string("/"), std::string("/web/index.js"), path(""), path("web/"), path("web/../web/index.js"),
        path("web/%2e%2e/task.json"), path("web//index.js"), path("web/other.js"), std::string("/etc/passwd"),
        path("web/../../../../../../etc/passwd")})
    EXPECT_EQ(status(ask("GET " + other)), "404") << other;
  EXPECT_EQ(status(ask("DELETE " + path("task.json"))), "405");
  EXPECT_EQ(status(ask("nonsense")), "400");
}

TEST_F(WebSite, OtherSitesInTheBrowserAreRefused) {
  EXPECT_EQ(status(ask("GET " + path("task.json"), "Host: evil.example\r\n")), "403");
  EXPECT_EQ(status(ask("GET " + path("task.json"), "Origin: http://evil.example\r\n")), "403");
  EXPECT_EQ(status(ask("POST " + path("report"), "Origin: null\r\nContent-Length: 2\r\n", "{}")), "403");
}

TEST_F(WebSite, WhatIsPostedWaitsToBeTaken) {
  EXPECT_EQ(site->take(system::Patience(0)), std::nullopt);
  EXPECT_EQ(status(ask("POST " + path("report"), "Content-Length: 3\r\n", "one and more")), "204");
  EXPECT_EQ(status(ask("POST " + path("report"), "Content-Length: 3\r\n", "two")), "204");
  EXPECT_EQ(site->take(system::Patience(0)), "one");
  EXPECT_EQ(site->take(system::Patience(0)), "two");
  EXPECT_EQ(status(ask("POST " + path("report"), "Content-Length: 99999999999\r\n")), "413");
  EXPECT_EQ(status(ask("POST " + path("task.json"), "Content-Length: 0\r\n")), "404");
  EXPECT_EQ(site->take(system::Patience(0)), std::nullopt);
}

TEST_F(WebSite, AHeadThatDoesNotEndIsNoRequest) {
  EXPECT_EQ(exchange(site->port(), "GET / HTTP/1.1\r\nX: " + std::string(kMaxHead, 'x')), "");
}

TEST_F(WebSite, APortIsOneSites) {
  const auto second = Site::open(site->port(), kSecret);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace doppler::cli
