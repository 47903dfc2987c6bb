// HubClient: asks the Hub for what it says of repositories and files, and makes sentences of its refusals.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "hub/api.h"
#include "hub/http.h"
#include "hub/name.h"
#include "hub/places.h"

namespace doppler::hub {

// How patient the network code is.
struct Patience {
  HttpLimits http;
  // How often in a row the same thing may fail that can come right by itself.
  std::uint32_t attempts = 6;
  // The wait before the second attempt, doubled each time, and the longest, also where a server says how long
  // (together half a minute).
  std::uint32_t first_wait_ms = 1000, longest_wait_ms = 30'000;
};
std::uint32_t wait_before(const Patience& patience, std::uint32_t attempt);

// Asked again and again; true ends what is being done as soon as it can.
using Cancelled = std::function<bool()>;

// A failure that may come right if it is tried again, and how long the server asks to wait.
bool may_come_right(const HttpAnswer& answer, HttpEnd end);
std::uint64_t asked_wait_ms(const HttpAnswer& answer);
inline bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
// As many as the Hub and what delivers for it need, with some to spare.
inline constexpr int kMostRedirects = 8;

// The hash that a header such as ETag names, in quotes and perhaps as a weak tag; empty if it is none.
std::string hash_in_tag(std::string_view header);

// The token if it may go there: to the endpoint's own scheme, host and port, and nowhere else.
std::string token_for(const Places& places, std::string_view url);

// Why a transfer failed, as a sentence about `what` ("The file x of org/name") that says what to do.
Error explain(const Places& places, const ModelName& name, std::string_view what, const HttpAnswer& answer,
              HttpEnd end, std::string_view reason);

// What everything fails with that was cancelled.
Error cancelled_error();

class HubClient {
 public:
  // All must outlive the client.
  HubClient(Http& http, const Places& places, const Patience& patience, const Cancelled& cancelled)
      : http_(http), places_(places), patience_(patience), cancelled_(cancelled) {}

  // What a repository holds at a revision. Errors: kNotFound (no such model, revision or permission),
  // kUnsupported (an answer that is no Hub's), kIo (the network), kLimit (an answer too long), kCorrupt.
  Result<RepoInfo> repo_info(const ModelName& name);
  // Asks for sizes and hashes of files that the list left out; a file that has none even then keeps an empty
  // hash.
  Status complete(const ModelName& name, RepoFile& file, const std::string& commit);

  // Where a file is fetched.
  std::string file_url(const std::string& repo, const std::string& commit, const std::string& path) const;

 private:
  struct Document {
    HttpAnswer answer;
    std::string body;
  };
  enum class Redirects : std::uint8_t { kFollow, kSameHost };  // kSameHost: one to elsewhere is the answer
  Result<Document> fetch(const ModelName& name, std::string_view what, std::string url, bool head_only,
                         Redirects redirects);

  Http& http_;
  const Places& places_;
  const Patience& patience_;
  const Cancelled& cancelled_;
};

}  // namespace doppler::hub
