#include "formats/rdrr_writer.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "formats/rdrr_manifest.h"

namespace doppler {
namespace {

constexpr std::string_view kTensorsFile = "tensors.json";

// "layer" of "layer.7".
std::string type_of_group(std::string_view id) {
  return std::string(id.substr(0, id.find('.')));
}

Status write_json(const std::filesystem::path& path, const Json& value) {
  DOPPLER_ASSIGN(OutputFile file, OutputFile::create(path));
  DOPPLER_TRY(file.write(dump_json(value, 1) + "\n"));
  return file.commit();
}

}  // namespace

RdrrWriter::RdrrWriter(std::filesystem::path folder, RdrrHash algorithm, std::uint64_t shard_bytes)
    : folder_(std::move(folder)),
      algorithm_(algorithm),
      shard_bytes_(shard_bytes),
      tensors_(Json::object()),
      shards_(Json::array()),
      groups_(Json::object()),
      files_(Json::array()) {}

Status RdrrWriter::begin_tensor(std::string_view name, DType dtype, const Shape& shape, std::string_view role,
                                std::string_view group) {
  DOPPLER_TRY(end_tensor());
  const auto size = byte_size(dtype, shape);
  if (!size || *size == 0 || tensors_->contains(std::string(name))) {
    return fail(ErrorCode::kUsage, "The tensor {} ({}, {}) has no size in whole blocks, or comes twice.",
                printable(name), dtype_name(dtype), describe_shape(shape));
  }
  if (group != group_) {
    DOPPLER_TRY(end_group());
    if (groups_->contains(std::string(group))) {
      return fail(ErrorCode::kUsage, "The group {} was left before the tensor {}. Give its tensors together.",
                  printable(group), printable(name));
    }
    group_ = group;
    DOPPLER_ASSIGN(group_hash_, RdrrHasher::create(algorithm_));
    (*groups_)[group_] = {{"type", type_of_group(group)},
                          {"version", "1.0.0"},
                          {"shards", Json::array()},
                          {"tensors", Json::array()}};
    const std::string_view number = group.substr(group.find('.') + 1);
    if (group.starts_with("layer."))
      (*groups_)[group_]["layerIndex"] = std::strtoull(std::string(number).c_str(), nullptr, 10);
  }
  tensor_ = name;
  wanted_ = *size;
  (*tensors_)[tensor_] = {{"size", *size}, {"shape", shape}, {"dtype", rdrr_dtype_name(dtype)},
                          {"role", role},  {"group", group}, {"spans", Json::array()}};
  if (is_quantised(dtype)) (*tensors_)[tensor_]["layout"] = "row";
  (*groups_)[group_]["tensors"].push_back(tensor_);
  return {};
}

Status RdrrWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > wanted_) {
    return fail(ErrorCode::kInternal, "The tensor {} gets {} bytes too many. Report this.",
                printable(tensor_), bytes.size() - wanted_);
  }
  wanted_ -= bytes.size();
  group_hash_->add(bytes);
  Json& spans = (*tensors_)[tensor_]["spans"];
  while (!bytes.empty()) {
    if (!file_) {
      DOPPLER_ASSIGN(OutputFile file, OutputFile::create(folder_ / fmt::format("shard_{:05}.bin", shard_)));
      file_.emplace(std::move(file));
      DOPPLER_ASSIGN(shard_hash_, RdrrHasher::create(algorithm_));
    }
    const auto piece = bytes.first(std::min<std::uint64_t>(bytes.size(), shard_bytes_ - in_shard_));
    DOPPLER_TRY(file_->write(piece));
    shard_hash_->add(piece);
    if (!spans.empty() && spans.back()["shardIndex"] == shard_)
      spans.back()["size"] = spans.back()["size"].get<std::uint64_t>() + piece.size();
    else
      spans.push_back({{"shardIndex", shard_}, {"offset", in_shard_}, {"size", piece.size()}});
    in_shard_ += piece.size();
    bytes = bytes.subspan(piece.size());
    if (in_shard_ == shard_bytes_) DOPPLER_TRY(end_shard());
  }
  return {};
}

// A tensor in one shard says so without a list.
Status RdrrWriter::end_tensor() {
  if (tensor_.empty()) return {};
  if (wanted_ != 0) {
    return fail(ErrorCode::kInternal, "The tensor {} lacks {} bytes. Report this.", printable(tensor_),
                wanted_);
  }
  Json& tensor = (*tensors_)[tensor_];
  Json& shards = (*groups_)[group_]["shards"];
  for (const Json& span : tensor["spans"]) {
    if (shards.empty() || shards.back() != span["shardIndex"]) shards.push_back(span["shardIndex"]);
  }
  if (tensor["spans"].size() == 1) {
    tensor["shard"] = tensor["spans"][0]["shardIndex"];
    tensor["offset"] = tensor["spans"][0]["offset"];
    tensor.erase("spans");
  }
  tensor_.clear();
  return {};
}

Status RdrrWriter::end_group() {
  if (group_hash_) (*groups_)[group_]["hash"] = group_hash_->finish();
  group_hash_.reset();
  return {};
}

Status RdrrWriter::end_shard() {
  if (!file_) return {};
  DOPPLER_TRY(file_->commit());
  file_.reset();
  shards_->push_back({{"index", shard_},
                      {"filename", fmt::format("shard_{:05}.bin", shard_)},
                      {"size", in_shard_},
                      {"hash", shard_hash_->finish()},
                      {"offset", total_}});
  total_ += in_shard_;
  in_shard_ = 0;
  ++shard_;
  return {};
}

Status RdrrWriter::add_file(const std::string& filename) {
  DOPPLER_ASSIGN(const MappedFile file, MappedFile::open(folder_ / filename));
  DOPPLER_ASSIGN(RdrrHasher hasher, RdrrHasher::create(algorithm_));
  hasher.add(file.bytes());
  files_->push_back({{"filename", filename}, {"size", file.bytes().size()}, {"hash", hasher.finish()}});
  return {};
}

Status RdrrWriter::finish(Json manifest) {
  DOPPLER_TRY(end_tensor());
  DOPPLER_TRY(end_group());
  DOPPLER_TRY(end_shard());
  manifest["version"] = 1;
  manifest["hashAlgorithm"] = name_of(algorithm_);
  manifest["shards"] = *shards_;
  manifest["totalSize"] = total_;
  manifest["tensorCount"] = tensors_->size();
  manifest["tensorsFile"] = kTensorsFile;
  manifest["groups"] = *groups_;
  manifest["files"] = *files_;
  DOPPLER_TRY(write_json(folder_ / kTensorsFile, *tensors_));
  return write_json(folder_ / kRdrrManifestName, manifest);
}

}  // namespace doppler
