#include "hub/name.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace doppler::hub {
namespace {

constexpr std::string_view kHowToName =
    "Name a model of the Hub as org/name, org/name:Q4_K_M or org/name:file.gguf";

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.';
}

// The Hub's own rules. "--" would make two names one folder of the cache.
bool is_repo_part(std::string_view part) {
  constexpr std::size_t kLongest = 96;  // the Hub's
  return !part.empty() && part.size() <= kLongest && std::ranges::all_of(part, is_word_character) &&
         std::string_view("-.").find(part.front()) == std::string_view::npos &&
         std::string_view("-.").find(part.back()) == std::string_view::npos &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

bool is_repo(std::string_view repo) {
  const std::size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return is_repo_part(repo);
  return is_repo_part(repo.substr(0, slash)) && is_repo_part(repo.substr(slash + 1));
}

bool is_revision(std::string_view revision) {
  return is_inner_path(revision) && revision.size() <= 200 &&
         std::ranges::all_of(revision, [](char c) { return is_word_character(c) || c == '/'; });
}

bool starts_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::ranges::equal(text.substr(0, lower.size()), lower, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
  });
}

// What remains after one of the ways to say "on the Hub"; nothing if it begins with none.
std::optional<std::string_view> after_hub_prefix(std::string_view text) {
  constexpr std::array<std::string_view, 2> kSchemes = {"https://", "http://"};
  constexpr std::array<std::string_view, 3> kHosts = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
  for (const std::string_view prefix : {"hf://", "hf:"}) {
    if (starts_with_any_case(text, prefix)) return text.substr(prefix.size());
  }
  for (const std::string_view scheme : kSchemes) {
    if (starts_with_any_case(text, scheme)) text.remove_prefix(scheme.size());
  }
  for (const std::string_view host : kHosts) {
    if (starts_with_any_case(text, host)) return text.substr(host.size());
  }
  return std::nullopt;
}

// org/name/blob/REVISION/file…, as pages' addresses go on.
ModelName parse_page(std::string_view text) {
  text = text.substr(0, text.find_first_of("?#"));
  while (text.ends_with('/')) text.remove_suffix(1);
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('/', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  ModelName name;
  name.repo = parts.size() > 1 ? parts[0] + "/" + parts[1] : parts[0];
  if (parts.size() > 3) name.revision = parts[3];
  if (parts.size() > 4) name.pick = join(std::span(parts).subspan(4), "/");
  return name;
}

bool is_page(std::string_view text) {
  for (const std::string_view kind : {"/tree/", "/blob/", "/resolve/"}) {
    if (text.find(kind) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string ModelName::text() const {
  return repo + (revision == "main" ? "" : "@" + revision) + (pick.empty() ? "" : ":" + pick);
}

bool is_url(std::string_view text) {
  return text.find("://") != std::string_view::npos && text.find("://") < text.find('/') + 1;
}

bool is_inner_path(std::string_view path) {
  constexpr std::size_t kLongest = 512, kDeepest = 16;  // bytes and folders: the Hub's own have a tenth of it
  if (path.empty() || path.size() > kLongest) return false;
  if (!std::ranges::all_of(path, [](char c) {
        return static_cast<unsigned char>(c) >= ' ' && c != '\x7f' && c != '\\' && c != ':';
      }))
    return false;
  std::size_t parts = 0;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || ++parts > kDeepest) return false;
    at = end + 1;
  }
  return true;
}

Result<ModelName> parse_name(std::string_view text) {
  const std::optional<std::string_view> inner = after_hub_prefix(text);
  if (!inner && is_url(text)) {
    return fail(
        ErrorCode::kUsage,
        "The address {} does not lead to a model of the Hub. {}, or download the file and give its path.",
        printable(text), kHowToName);
  }
  std::string_view rest = inner.value_or(text);
  ModelName name;
  if (inner && is_page(rest)) {
    name = parse_page(rest);
  } else {
    const std::size_t colon = rest.find(':');
    if (colon != std::string_view::npos) name.pick = rest.substr(colon + 1);
    if (colon != std::string_view::npos && name.pick.empty())
      return fail(ErrorCode::kUsage, "The name {} ends with a colon. {}.", printable(text), kHowToName);
    rest = rest.substr(0, colon);
    const std::size_t at = rest.find('@');
    if (at != std::string_view::npos) name.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    while (inner && rest.ends_with('/')) rest.remove_suffix(1);
    name.repo = rest;
  }
  const bool good = is_repo(name.repo) && !after_hub_prefix(name.repo) && is_revision(name.revision) &&
                    (name.pick.empty() || is_inner_path(name.pick));
  if (good) return name;
  return fail(ErrorCode::kUsage, "The text {} is no model's name. {}.", printable(text), kHowToName);
}

bool looks_like_name(std::string_view text) {
  if (after_hub_prefix(text)) return true;
  const std::string_view repo = text.substr(0, text.find_first_of(":@"));
  return repo.find('/') != std::string_view::npos && parse_name(text).has_value();
}

}  // namespace doppler::hub
