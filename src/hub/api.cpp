#include "hub/api.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "hub/name.h"

namespace doppler::hub {
namespace {

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const Json* object_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

// Sizes above 256 TB are taken for not said, so that sums over any list of files fit in 64 bits.
std::optional<std::uint64_t> size_of(const Json& object) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 48;
  const auto found = object.find("size");
  if (found == object.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > kMost)
    return std::nullopt;
  return found->get<std::uint64_t>();
}

// A file as it stands in "siblings"; nothing if it has no name.
std::optional<RepoFile> file_of(const Json& entry) {
  if (!entry.is_object()) return std::nullopt;
  RepoFile file{text_of(entry, "rfilename"), size_of(entry), text_of(entry, "blobId")};
  if (file.path.empty()) return std::nullopt;
  if (const Json* const lfs = object_of(entry, "lfs")) {
    file.hash = text_of(*lfs, "sha256");
    if (const auto size = size_of(*lfs)) file.size = size;
  }
  if (!is_hash(file.hash)) file.hash.clear();
  return file;
}

}  // namespace

bool is_hash(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) && is_hex(text);
}

Result<RepoInfo> parse_repo_info(std::string_view json, std::string_view what) {
  DOPPLER_ASSIGN(const Json answer, parse_json(json, what));
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::kCorrupt, "{} {}. Check that HF_ENDPOINT leads to a Hugging Face Hub.", what, why);
  };
  if (!answer.is_object()) return wrong("is not an object");
  RepoInfo info;
  info.repo = text_of(answer, "id");
  if (info.repo.empty()) info.repo = text_of(answer, "modelId");
  const Result<ModelName> name = parse_name(info.repo);
  if (!name || name->repo != info.repo) return wrong("names no repository");
  info.commit = text_of(answer, "sha");
  if (info.commit.size() != 40 || !is_hex(info.commit)) return wrong("names no commit");
  const auto gated = answer.find("gated");
  info.gated = gated != answer.end() && (gated->is_string() || (gated->is_boolean() && gated->get<bool>()));
  if (const Json* const config = object_of(answer, "config"))
    info.model_type = text_of(*config, "model_type");
  if (const Json* const gguf = object_of(answer, "gguf"); gguf != nullptr && info.model_type.empty())
    info.model_type = text_of(*gguf, "architecture");
  const auto files = answer.find("siblings");
  if (files == answer.end() || !files->is_array()) return wrong("lists no files");
  for (const Json& entry : *files) {
    std::optional<RepoFile> file = file_of(entry);
    if (!file) return wrong("lists a file without a name");
    if (is_inner_path(file->path))
      info.files.push_back(std::move(*file));
    else
      ++info.unsafe_names;
  }
  std::ranges::sort(info.files, {}, &RepoFile::path);
  const auto twice = std::ranges::adjacent_find(info.files, {}, &RepoFile::path);
  if (twice != info.files.end()) return wrong(fmt::format("lists the file {} twice", printable(twice->path)));
  return info;
}

}  // namespace doppler::hub
