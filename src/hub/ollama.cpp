#include "hub/ollama.h"

#include <algorithm>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "system/shared_folder.h"

namespace doppler::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxManifest = 1 << 20;  // they have about 1 kB
constexpr std::string_view kKindPrefix = "application/vnd.ollama.image.";
constexpr std::string_view kRegistry = "registry.ollama.ai", kLibrary = "library";

// Of "sha256:…" or "sha256-…". Anything else could be a path that leads out of the store.
std::optional<std::string> hash_of(std::string_view digest) {
  if (digest.size() != 71 || !(digest.starts_with("sha256:") || digest.starts_with("sha256-")))
    return std::nullopt;
  std::string hash(digest.substr(7));
  return is_hash(hash) ? std::optional(hash) : std::nullopt;
}

fs::path blob_of(const fs::path& store, const std::string& hash) {
  const fs::path blob = store / "blobs" / ("sha256-" + hash);
  const fs::path older = store / "blobs" / ("sha256:" + hash);  // as Ollama wrote it until 2024
  return !system::exists(blob) && system::exists(older) ? older : blob;
}

// HOST/NAMESPACE/NAME/TAG as Ollama writes it: what is usual is left out.
std::string short_name(const std::vector<std::string>& parts) {
  std::string name = parts[2] + ":" + parts[3];
  if (parts[1] != kLibrary || parts[0] != kRegistry) name = parts[1] + "/" + name;
  if (parts[0] != kRegistry) name = parts[0] + "/" + name;
  return name;
}

// The four parts of a name, or nothing if it has more, or parts that are no names.
std::optional<std::vector<std::string>> parts_of(std::string_view name) {
  std::string tag = "latest";
  const std::size_t slash = name.rfind('/');
  const std::size_t colon = name.find(':', slash == std::string_view::npos ? 0 : slash);
  if (colon != std::string_view::npos) {
    tag = name.substr(colon + 1);
    name = name.substr(0, colon);
  }
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    parts.emplace_back(name.substr(at, end - at));
    at = end + 1;
  }
  if (parts.size() == 1) parts.insert(parts.begin(), std::string(kLibrary));
  if (parts.size() == 2) parts.insert(parts.begin(), std::string(kRegistry));
  parts.push_back(tag);
  const bool good = parts.size() == 4 && std::ranges::all_of(parts, [](const std::string& part) {
                      return is_inner_path(part) && part.find('/') == std::string::npos;
                    });
  return good ? std::optional(parts) : std::nullopt;
}

}  // namespace

Result<std::vector<OllamaLayer>> parse_ollama_manifest(std::string_view json, std::string_view what) {
  DOPPLER_ASSIGN(const Json manifest, parse_json(json, what));
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::kCorrupt, "{} {}, so it is no manifest of Ollama's. Pull the model again.", what,
                why);
  };
  const auto layers = manifest.is_object() ? manifest.find("layers") : manifest.end();
  if (!manifest.is_object() || layers == manifest.end() || !layers->is_array())
    return wrong("lists no layers");
  std::vector<Json> all(layers->begin(), layers->end());
  if (const auto config = manifest.find("config"); config != manifest.end()) all.push_back(*config);
  std::vector<OllamaLayer> read;
  for (const Json& layer : all) {
    if (!layer.is_object()) return wrong("lists a layer that is no object");
    const auto type = layer.find("mediaType"), digest = layer.find("digest"), size = layer.find("size");
    if (type == layer.end() || !type->is_string() || digest == layer.end() || !digest->is_string())
      return wrong("lists a layer without mediaType and digest");
    const std::optional<std::string> hash = hash_of(digest->get<std::string>());
    if (!hash) return wrong(fmt::format("names the digest {}", printable(digest->get<std::string>())));
    std::string kind = type->get<std::string>();
    if (kind.starts_with(kKindPrefix)) kind.erase(0, kKindPrefix.size());
    constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // sums of any number of them fit in 64 bits
    const bool sized =
        size != layer.end() && size->is_number_unsigned() && size->get<std::uint64_t>() <= kMost;
    read.push_back({std::move(kind), *hash, sized ? size->get<std::uint64_t>() : 0});
  }
  return read;
}

std::uint64_t OllamaModel::bytes() const {
  std::uint64_t sum = 0;
  for (const OllamaLayer& layer : layers) sum += layer.bytes;
  return sum;
}

const OllamaLayer* OllamaModel::layer(std::string_view kind) const {
  const auto found = std::ranges::find(layers, kind, &OllamaLayer::kind);
  return found == layers.end() ? nullptr : &*found;
}

Result<std::optional<OllamaModel>> read_ollama_manifest(const fs::path& manifest) {
  // …/manifests/HOST/NAMESPACE/NAME/TAG
  std::vector<std::string> parts;
  fs::path folder = manifest;
  for (int i = 0; i < 4; ++i) {
    parts.insert(parts.begin(), folder.filename().string());
    folder = folder.parent_path();
  }
  if (folder.filename() != "manifests" || !system::is_file(manifest)) return std::nullopt;
  DOPPLER_ASSIGN(const std::string text, read_text_file(manifest, kMaxManifest));
  OllamaModel model{short_name(parts), folder.parent_path(), manifest, {}};
  DOPPLER_ASSIGN(model.layers,
                 parse_ollama_manifest(text, fmt::format("The file {}", printable_path(manifest))));
  return model;
}

OllamaList list_ollama(const fs::path& store) {
  OllamaList list;
  for (const fs::path& host : sorted_entries(store / "manifests")) {
    for (const fs::path& space : sorted_entries(host)) {
      for (const fs::path& name : sorted_entries(space)) {
        for (const fs::path& tag : sorted_entries(name)) {
          auto model = read_ollama_manifest(tag);
          if (model && *model)
            list.models.push_back(std::move(**model));
          else
            list.unreadable.push_back(tag);
        }
      }
    }
  }
  return list;
}

Result<OllamaModel> find_ollama(const std::vector<fs::path>& stores, std::string_view name) {
  if (stores.empty()) {
    return fail(ErrorCode::kNotFound,
                "There is no store of Ollama's here. Set OLLAMA_MODELS to its folder, the one with "
                "manifests and blobs.");
  }
  const std::optional<std::vector<std::string>> parts = parts_of(name);
  if (!parts)
    return fail(ErrorCode::kUsage,
                "The text {} is no name of an Ollama model. Write it as ollama:NAME or ollama:NAME:TAG.",
                printable(name));
  for (const fs::path& store : stores) {
    const fs::path manifest = store / "manifests" / (*parts)[0] / (*parts)[1] / (*parts)[2] / (*parts)[3];
    if (!system::is_file(manifest)) continue;
    DOPPLER_ASSIGN(std::optional<OllamaModel> model, read_ollama_manifest(manifest));
    if (model) return std::move(*model);
  }
  std::vector<std::string> names;
  for (const fs::path& store : stores) {
    for (const OllamaModel& model : list_ollama(store).models) names.push_back(model.name);
  }
  return fail(ErrorCode::kNotFound, "Ollama has no model {} here. {}", printable(name),
              names.empty() ? "It has none at all: ollama pull gets one."
                            : fmt::format("It has {}.", printable(join(names, ", "), 400)));
}

Result<fs::path> ollama_weights(const OllamaModel& model) {
  const OllamaLayer* const weights = model.layer("model");
  if (model.layer("adapter") != nullptr) {
    return fail(ErrorCode::kUnsupported,
                "The Ollama model {} is a LoRA adapter on top of another model, which Doppler does not "
                "run. Merge the adapter into its base model.",
                model.name);
  }
  if (weights == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "The Ollama model {} has no weights on this machine: it may run on a server. Pull one "
                "that has.",
                model.name);
  }
  const fs::path blob = blob_of(model.store, weights->hash);
  const auto size = system::file_size(blob);
  if (!size) {
    return fail(
        ErrorCode::kNotFound,
        "The file {}, which holds the weights of the Ollama model {}, is missing. Run ollama pull {}.",
        printable_path(blob), model.name, model.name);
  }
  if (weights->bytes != 0 && *size != weights->bytes) {
    return fail(ErrorCode::kCorrupt,
                "The file {} holds {} bytes, but the manifest of the Ollama model {} says {}. Run ollama "
                "pull {}.",
                printable_path(blob), *size, model.name, weights->bytes, model.name);
  }
  return blob;
}

Result<Removal> plan_ollama_removal(const OllamaModel& model) {
  Removal removal;
  removal.what = model.typed_name();
  removal.files.push_back(model.manifest);
  const OllamaList list = list_ollama(model.store);
  if (!list.unreadable.empty()) {
    return fail(ErrorCode::kCorrupt,
                "The manifest {} cannot be read, so nobody knows which blobs it needs. Remove the model "
                "with ollama rm.",
                printable_path(list.unreadable.front()));
  }
  std::set<std::string> used;
  for (const OllamaModel& other : list.models) {
    if (other.manifest == model.manifest) continue;
    for (const OllamaLayer& layer : other.layers) used.insert(layer.hash);
  }
  std::set<std::string> gone;
  for (const OllamaLayer& layer : model.layers) {
    if (used.contains(layer.hash)) {
      removal.stays = "blobs that other models use stay";
    } else if (gone.insert(layer.hash).second) {
      const fs::path blob = blob_of(model.store, layer.hash);
      removal.files.push_back(blob);
      removal.bytes += system::file_size(blob).value_or(0);
    }
  }
  return removal;
}

}  // namespace doppler::hub
