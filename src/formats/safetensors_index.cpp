// Sharded models: the index file, its shards, and the check that they agree.
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "formats/file_name.h"
#include "formats/safetensors.h"

namespace doppler {
namespace {

// The largest published indexes (a few hundred thousand tensors) stay below 50 MB.
constexpr std::uint64_t kMaxIndexBytes = 100'000'000;

// tensor name -> shard file name
using WeightMap = std::map<std::string, std::string, std::less<>>;

Result<WeightMap> read_weight_map(const std::filesystem::path& index_file) {
  const std::string what = fmt::format("The file {}", printable(index_file.string(), 200));
  DOPPLER_ASSIGN(const std::string text, read_text_file(index_file, kMaxIndexBytes));
  DOPPLER_ASSIGN(const Json index, parse_json(text, what));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return fail(ErrorCode::kCorrupt,
                "{} has no object weight_map, which names the shard of every tensor. Download it again.",
                what);
  }
  WeightMap weights;
  for (const auto& [name, shard] : map->items()) {
    const std::string* file = shard.get_ptr<const std::string*>();
    if (file == nullptr || !is_plain_file_name(*file)) {
      return fail(
          ErrorCode::kCorrupt,
          "{} puts the tensor {} into {}, which is not the name of a file beside it. Download it again.",
          what, printable(name), printable(dump_json(shard)));
    }
    weights.emplace(name, *file);
  }
  if (weights.empty()) {
    return fail(ErrorCode::kCorrupt, "{} has an empty weight_map. Download it again.", what);
  }
  return weights;
}

std::vector<std::string> shards_of(const WeightMap& weights) {
  std::set<std::string> files;
  for (const auto& [name, file] : weights) files.insert(file);
  return {files.begin(), files.end()};
}

// Every tensor of the shard must be expected there.
Status check_shard(const TensorStore& shard, const std::string& file, const WeightMap& weights,
                   const std::filesystem::path& index_file) {
  for (const auto& [name, tensor] : shard.tensors()) {
    const auto expected = weights.find(name);
    if (expected != weights.end() && expected->second == file) continue;
    return fail(ErrorCode::kCorrupt,
                "The shard {} holds the tensor {}, which the index {} {}. Download both again.",
                printable(file), printable(name), printable(index_file.filename().string()),
                expected == weights.end() ? std::string("does not name")
                                          : fmt::format("puts into {}", printable(expected->second)));
  }
  return {};
}

}  // namespace

Result<std::vector<std::string>> list_shards(const std::filesystem::path& index_file) {
  DOPPLER_ASSIGN(const WeightMap weights, read_weight_map(index_file));
  return shards_of(weights);
}

Result<TensorStore> open_safetensors_index(const std::filesystem::path& index_file, Opening opening) {
  DOPPLER_ASSIGN(const WeightMap weights, read_weight_map(index_file));
  TensorStore store;
  for (const std::string& file : shards_of(weights)) {
    auto shard = open_safetensors(index_file.parent_path() / file, opening);
    if (!shard && shard.error().code == ErrorCode::kNotFound) {
      return fail(ErrorCode::kNotFound, "The shard {}, which the index {} names, is missing. Download it.",
                  printable(file), printable(index_file.string(), 200));
    }
    DOPPLER_TRY(shard);
    DOPPLER_TRY(check_shard(*shard, file, weights, index_file));
    DOPPLER_TRY(store.merge(std::move(*shard)));
  }
  for (const auto& [name, file] : weights) {
    if (store.find(name) != nullptr) continue;
    return fail(ErrorCode::kCorrupt,
                "The index {} puts the tensor {} into {}, which does not hold it. Download both again.",
                printable(index_file.filename().string()), printable(name), printable(file));
  }
  return store;
}

}  // namespace doppler
