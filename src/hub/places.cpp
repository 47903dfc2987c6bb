#include "hub/places.h"

#include <algorithm>
#include <array>

#include "base/files.h"
#include "base/text.h"
#include "hub/url.h"
#include "system/files.h"
#include "system/process.h"

namespace doppler::hub {
namespace {

namespace fs = std::filesystem;

// A variable that is set and not empty.
std::optional<std::string> variable(const char* name) {
  std::optional<std::string> value = system::environment_variable(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

// A path from a variable, with ~ as Hugging Face's programs read it.
std::optional<fs::path> folder_variable(const char* name) {
  const std::optional<std::string> value = variable(name);
  if (!value) return std::nullopt;
  return typed_path(*value);
}

fs::path hugging_face_home() {
  if (const auto home = folder_variable("HF_HOME")) return *home;
  const fs::path cache = system::cache_folder();
  return cache.empty() ? fs::path() : cache / "huggingface";
}

bool is_true(const std::string& value) {
  constexpr std::array<std::string_view, 4> kYes = {"1", "ON", "YES", "TRUE"};
  return std::ranges::find(kYes, ascii_upper(value)) != kYes.end();
}

// The token goes into a header: one of other characters could add headers of its own.
Result<std::optional<Token>> checked_token(const std::string& text, std::string source) {
  Token token{std::string(trimmed(text)), std::move(source)};
  if (token.text.empty()) return std::nullopt;
  if (!std::ranges::all_of(token.text, [](char c) { return c > ' ' && c < '\x7f'; })) {
    return fail(ErrorCode::kUsage, "The token in {} holds characters that no token has. Copy it again.",
                token.source);
  }
  return token;
}

Result<std::optional<Token>> find_token(const fs::path& home) {
  for (const char* const name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (const auto value = variable(name); value && !trimmed(*value).empty())
      return checked_token(*value, fmt::format("the variable {}", name));
  }
  const fs::path file = folder_variable("HF_TOKEN_PATH").value_or(home.empty() ? fs::path() : home / "token");
  if (file.empty() || !system::is_file(file)) return std::nullopt;
  constexpr std::uint64_t kMaxToken = 4096;  // they have 37 bytes
  DOPPLER_ASSIGN(const std::string text, read_text_file(file, kMaxToken));
  return checked_token(text, fmt::format("the file {}", printable_path(file)));
}

// Where Ollama keeps models: for a user who runs it, and for the service that its installer sets up on Linux.
std::vector<fs::path> ollama_folders() {
  std::vector<fs::path> folders;
  if (const auto named = folder_variable("OLLAMA_MODELS")) {
    folders.push_back(*named);
  } else {
    const fs::path home = system::home_folder();
    if (!home.empty()) folders.push_back(home / ".ollama" / "models");
    folders.emplace_back("/usr/share/ollama/.ollama/models");
  }
  std::erase_if(folders, [](const fs::path& folder) { return !system::is_folder(folder / "manifests"); });
  return folders;
}

}  // namespace

Result<Places> find_places() {
  Places places;
  if (const auto endpoint = variable("HF_ENDPOINT")) {
    places.endpoint = *endpoint;
    while (places.endpoint.ends_with('/')) places.endpoint.pop_back();
    if (!origin_of(places.endpoint)) {
      return fail(ErrorCode::kUsage,
                  "The variable HF_ENDPOINT says {}, which is no address. Write it as "
                  "https://huggingface.co.",
                  printable(*endpoint));
    }
  }
  const fs::path home = hugging_face_home();
  if (const auto named = folder_variable("HF_HUB_CACHE"))
    places.cache = *named;
  else if (const auto older = folder_variable("HUGGINGFACE_HUB_CACHE"))
    places.cache = *older;
  else if (!home.empty())
    places.cache = home / "hub";
  DOPPLER_ASSIGN(places.token, find_token(home));
  places.offline = is_true(variable("HF_HUB_OFFLINE").value_or(""));
  places.ollama = ollama_folders();
  return places;
}

}  // namespace doppler::hub
