// Any bytes as what a Hub or Ollama's store says, or as a name. The first byte chooses: a list of a
// repository's files, from which a plan is made whose files stay in the folder; a manifest, whose digests are
// hashes; a name, which reads back as it is written; an address to be followed.
#include <cstdint>
#include <cstdlib>

#include "base/json.h"
#include "hub/name.h"
#include "hub/ollama.h"
#include "hub/plan.h"
#include "hub/url.h"

namespace {

using namespace doppler;

void expect(bool holds) {
  if (!holds) std::abort();
}

void check_sentence(const Error& error) {
  expect(!error.message.empty() && error.message.size() < 4000);
}

void drive_list(std::string_view text) {
  auto info = hub::parse_repo_info(text, "The answer");
  if (!info) return check_sentence(info.error());
  for (const hub::RepoFile& file : info->files) {
    expect(hub::is_inner_path(file.path));
    expect(file.hash.empty() || hub::is_hash(file.hash));
  }
  for (const char* pick : {"", "Q4_K_M", "model.gguf"}) {
    const hub::Machine machine{.memory = 1 << 30, .disk = 1 << 30};
    const auto plan =
        hub::make_plan(*info, "main", pick, machine, [](const hub::RepoFile&) { return std::uint64_t{5}; });
    if (!plan) {
      check_sentence(plan.error());
      continue;
    }
    expect(plan->bytes_here <= plan->chosen.bytes);
    expect(!hub::describe(*plan).empty());
    (void)hub::plan_json(*plan);
    for (const std::size_t i : plan->chosen.files) expect(i < plan->info.files.size());
  }
}

void drive_manifest(std::string_view text) {
  const auto layers = hub::parse_ollama_manifest(text, "The manifest");
  if (!layers) return check_sentence(layers.error());
  for (const hub::OllamaLayer& layer : *layers) expect(layer.hash.size() == 64 && hub::is_hash(layer.hash));
}

void drive_name(std::string_view text) {
  (void)hub::looks_like_name(text);
  const auto name = hub::parse_name(text);
  if (!name) return check_sentence(name.error());
  expect(hub::is_inner_path(name->repo) && hub::is_inner_path(name->revision));
  expect(name->pick.empty() || hub::is_inner_path(name->pick));
  const auto again = hub::parse_name(name->text());
  expect(again.has_value() && again->text() == name->text());
}

void drive_address(std::string_view text) {
  const std::size_t cut = text.find('\n');
  if (cut == std::string_view::npos) return;
  const auto url = hub::follow(text.substr(0, cut), text.substr(cut + 1));
  if (url) expect(hub::origin_of(*url).has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'l':
      drive_list(text);
      break;
    case 'm':
      drive_manifest(text);
      break;
    case 'n':
      drive_name(text);
      break;
    default:
      drive_address(text);
  }
  return 0;
}
