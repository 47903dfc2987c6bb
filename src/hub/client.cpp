#include "hub/client.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/text.h"
#include "hub/url.h"

namespace doppler::hub {
namespace {

using Clock = std::chrono::steady_clock;

// One answer kept in memory, of at most kMaxInfoBytes.
class Keeper : public HttpReceiver {
 public:
  bool on_bytes(const HttpAnswer&, std::span<const std::byte> bytes) override {
    too_long = body.size() + bytes.size() > kMaxInfoBytes;
    if (!too_long) body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return !too_long;
  }
  void on_end(const HttpAnswer& said, HttpEnd how, const std::string& why) override {
    answer = said;
    end = how;
    reason = why;
    done = true;
  }

  std::string body, reason;
  HttpAnswer answer;
  HttpEnd end = HttpEnd::kOther;
  bool done = false, too_long = false;
};

// The part of an address that a person would know: "huggingface.co".
std::string host_of(const Places& places) {
  const std::size_t at = places.endpoint.find("://");
  return at == std::string::npos ? places.endpoint : places.endpoint.substr(at + 3);
}

std::optional<std::uint64_t> number_of(std::string_view header) {
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(header.data(), header.data() + header.size(), value);
  if (header.empty() || parsed.ec != std::errc() || parsed.ptr != header.data() + header.size())
    return std::nullopt;
  return value;
}

Error explain_gated(const Places& places, const ModelName& name) {
  const std::string page = places.endpoint + "/" + name.repo;
  if (places.token) {
    return {ErrorCode::kNotFound, fmt::format("The model {} is gated, and the account of the token in {} has "
                                              "no access. Ask for it at {}, and let the "
                                              "token read gated repositories.",
                                              name.repo, places.token->source, page)};
  }
  return {ErrorCode::kNotFound, fmt::format("The model {} is gated: accept its conditions at {}, make a "
                                            "token at {}/settings/tokens, and put it into "
                                            "the variable HF_TOKEN.",
                                            name.repo, page, places.endpoint)};
}

Error explain_missing(const Places& places, const ModelName& name) {
  if (places.token) {
    return {
        ErrorCode::kNotFound,
        fmt::format(
            "There is no model {} on {}, or the token in {} may not read it. Check the spelling at {}/{}.",
            name.repo, host_of(places), places.token->source, places.endpoint, name.repo)};
  }
  return {ErrorCode::kNotFound, fmt::format("There is no model {} on {}, or it is private. Check the "
                                            "spelling at {}/{}; for a private model put a "
                                            "token into the variable HF_TOKEN.",
                                            name.repo, host_of(places), places.endpoint, name.repo)};
}

Error explain_end(const Places& places, std::string_view what, HttpEnd end, std::string_view reason) {
  const std::string host = host_of(places), why = printable(reason, 160);
  switch (end) {
    case HttpEnd::kUnreachable:
      return {
          ErrorCode::kIo,
          fmt::format("The Hub at {} cannot be reached: {}. Check the network, and HTTPS_PROXY if you need "
                      "one; doppler list shows the models that are here.",
                      host, why)};
    case HttpEnd::kUntrusted:
      return {
          ErrorCode::kIo,
          fmt::format("The connection to {} is not safe: {}. Check the system's certificates, its clock, and "
                      "whether a proxy is in between.",
                      host, why)};
    case HttpEnd::kStalled:
      return {
          ErrorCode::kIo,
          fmt::format("{} stopped coming. Check the network and run the same command again: it goes on where "
                      "it was.",
                      what)};
    default:
      return {
          ErrorCode::kIo,
          fmt::format("{} broke off: {}. Run the same command again: it goes on where it was.", what, why)};
  }
}

}  // namespace

std::uint32_t wait_before(const Patience& patience, std::uint32_t attempt) {
  const std::uint64_t wait = std::uint64_t{patience.first_wait_ms} << std::min(attempt, 20U);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(wait, patience.longest_wait_ms));
}

bool may_come_right(const HttpAnswer& answer, HttpEnd end) {
  if (answer.status >= 400) return answer.status == 408 || answer.status == 429 || answer.status >= 500;
  return end == HttpEnd::kUnreachable || end == HttpEnd::kCut || end == HttpEnd::kStalled;
}

std::uint64_t asked_wait_ms(const HttpAnswer& answer) {
  constexpr std::uint64_t kMostSeconds = 1'000'000;  // far more than anyone waits
  return std::min(number_of(answer.header("retry-after")).value_or(0), kMostSeconds) * 1000;
}

std::string hash_in_tag(std::string_view header) {
  if (header.starts_with("W/")) header.remove_prefix(2);
  if (header.size() >= 2 && header.starts_with('"') && header.ends_with('"'))
    header = header.substr(1, header.size() - 2);
  return is_hash(header) ? std::string(header) : std::string();
}

std::string token_for(const Places& places, std::string_view url) {
  if (!places.token) return {};
  const auto origin = origin_of(url);
  return origin && origin == origin_of(places.endpoint) ? places.token->text : std::string();
}

Error cancelled_error() {
  return {ErrorCode::kIo, "Stopped. What has come is kept: the same command goes on from there."};
}

Error explain(const Places& places, const ModelName& name, std::string_view what, const HttpAnswer& answer,
              HttpEnd end, std::string_view reason) {
  if (answer.status < 400) return explain_end(places, what, end, reason);
  const std::string_view code = answer.header("x-error-code");
  const bool denied = answer.status == 401 || answer.status == 403;
  if (code == "GatedRepo") return explain_gated(places, name);
  if (code == "RevisionNotFound") {
    return {ErrorCode::kNotFound,
            fmt::format("The model {} has no revision {}. Leave it out for the newest, or look at {}/{}.",
                        name.repo, printable(name.revision), places.endpoint, name.repo)};
  }
  if (code == "EntryNotFound") {
    return {
        ErrorCode::kNotFound,
        fmt::format("{} is not there any more. Run the same command again, which asks for the newest state.",
                    what)};
  }
  // The Hub says 401 of what is not there to those without a token, so that private names stay private.
  if (denied && places.token && code != "RepoNotFound") {
    return {ErrorCode::kNotFound,
            fmt::format("The Hub at {} does not accept the token in {} (status {}). Make a new one at "
                        "{}/settings/tokens.",
                        host_of(places), places.token->source, answer.status, places.endpoint)};
  }
  if (code == "RepoNotFound" || denied || answer.status == 404) return explain_missing(places, name);
  if (answer.status == 429) {
    return {ErrorCode::kIo,
            fmt::format(
                "The Hub at {} is asked too often and wants a pause{}. Try again later{}.", host_of(places),
                asked_wait_ms(answer) > 0 ? fmt::format(" of {} s", asked_wait_ms(answer) / 1000) : "",
                places.token ? "" : "; with a token in HF_TOKEN it allows more")};
  }
  return {ErrorCode::kIo,
          fmt::format("The Hub at {} answers with status {} when asked for {}. Try again later.",
                      host_of(places), answer.status, inside_sentence(what))};
}

Result<HubClient::Document> HubClient::fetch(const ModelName& name, std::string_view what, std::string url,
                                             bool head_only, Redirects redirects) {
  std::uint32_t attempt = 0;
  for (int hops = 0; hops <= kMostRedirects;) {
    Keeper keeper;
    const Http::Id id =
        http_.start({.url = url, .token = token_for(places_, url), .head_only = head_only}, keeper);
    while (!keeper.done && !cancelled_()) http_.step(100);  // as often as Ctrl-C is looked at
    if (!keeper.done) {
      http_.stop(id);
      return std::unexpected(cancelled_error());
    }
    const long status = keeper.answer.status;
    if (keeper.too_long) {
      return fail(ErrorCode::kLimit,
                  "{} is longer than {}. Check that HF_ENDPOINT leads to a Hugging Face Hub.", what,
                  human_bytes(kMaxInfoBytes));
    }
    if (is_redirect(status)) {
      const auto next = follow(url, keeper.answer.header("location"));
      if (!next) return fail(ErrorCode::kCorrupt, "{} is redirected to no address. Check HF_ENDPOINT.", what);
      const bool elsewhere = origin_of(*next) != origin_of(url);
      if (elsewhere && redirects == Redirects::kSameHost) return Document{keeper.answer, {}};
      if (url.starts_with("https:") && !next->starts_with("https:"))
        return fail(ErrorCode::kCorrupt,
                    "{} is redirected from https to http, which is not safe. Check HF_ENDPOINT.", what);
      url = *next;
      ++hops;
      continue;
    }
    if (status == 200 && keeper.end == HttpEnd::kWhole)
      return Document{keeper.answer, std::move(keeper.body)};
    const std::uint64_t wait =
        std::max<std::uint64_t>(wait_before(patience_, attempt), asked_wait_ms(keeper.answer));
    // Nobody waits half a minute to hear that there is no network.
    const std::uint32_t attempts =
        keeper.end == HttpEnd::kUnreachable ? std::min(2U, patience_.attempts) : patience_.attempts;
    if (!may_come_right(keeper.answer, keeper.end) || ++attempt >= attempts ||
        wait > patience_.longest_wait_ms)
      return std::unexpected(explain(places_, name, what, keeper.answer, keeper.end, keeper.reason));
    for (const auto until = Clock::now() + std::chrono::milliseconds(wait);
         Clock::now() < until && !cancelled_();)
      http_.step(static_cast<std::uint32_t>(std::min<std::uint64_t>(wait, 100)));
  }
  return fail(ErrorCode::kCorrupt, "{} is redirected more than {} times. Check HF_ENDPOINT.", what,
              kMostRedirects);
}

Result<RepoInfo> HubClient::repo_info(const ModelName& name) {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", places_.endpoint,
                                      escape_path(name.repo), escape_segment(name.revision));
  const std::string what = fmt::format("What the Hub says of {}", name.repo);
  DOPPLER_ASSIGN(const Document document, fetch(name, what, url, false, Redirects::kFollow));
  return parse_repo_info(document.body, what);
}

Status HubClient::complete(const ModelName& name, RepoFile& file, const std::string& commit) {
  if (file.size && !file.hash.empty()) return {};
  const std::string what = fmt::format("The file {} of {}", printable(file.path), name.repo);
  DOPPLER_ASSIGN(const Document document,
                 fetch(name, what, file_url(name.repo, commit, file.path), true, Redirects::kSameHost));
  const HttpAnswer& answer = document.answer;
  const bool linked = !answer.header("x-linked-etag").empty();
  file.hash = hash_in_tag(answer.header(linked ? "x-linked-etag" : "etag"));
  file.size = number_of(answer.header(linked ? "x-linked-size" : "content-length"));
  return {};
}

std::string HubClient::file_url(const std::string& repo, const std::string& commit,
                                const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", places_.endpoint, escape_path(repo), commit, escape_path(path));
}

}  // namespace doppler::hub
