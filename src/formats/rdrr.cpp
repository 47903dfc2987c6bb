#include "formats/rdrr.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "system/files.h"
#include "system/memory.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

// Bytes that are hashed between two calls for progress.
constexpr std::uint64_t kHashPiece = std::uint64_t{4} << 20;

std::unexpected<Error> missing(const fs::path& folder, std::string_view name, std::string_view kind) {
  return fail(ErrorCode::kNotFound, "The {} {}, which the manifest of {} names, is missing. Download it.",
              kind, printable(name), printable_path(folder));
}

Status check_size(const fs::path& folder, std::string_view name, std::string_view kind, std::uint64_t size,
                  std::uint64_t said) {
  if (size == said) return {};
  return fail(ErrorCode::kCorrupt,
              "The {} {} holds {} bytes, but the manifest of {} says {}. Download it again.", kind,
              printable(name), size, printable_path(folder), said);
}

Result<MappedFile> open_sized(const fs::path& folder, std::string_view name, std::uint64_t size,
                              std::string_view kind) {
  auto file = MappedFile::open(folder / name);
  if (!file && file.error().code == ErrorCode::kNotFound) return missing(folder, name, kind);
  DOPPLER_TRY(file);
  DOPPLER_TRY(check_size(folder, name, kind, file->bytes().size(), size));
  return file;
}

// One tensor's bytes in several shards, one after the other.
class JoinedSource final : public ByteSource {
 public:
  void add(std::shared_ptr<const ByteSource> source, std::uint64_t offset, std::uint64_t size) {
    parts_.push_back({std::move(source), offset, size});
    size_ += size;
  }
  std::uint64_t size() const override { return size_; }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    for (const Part& part : parts_) {
      if (offset < part.size && !into.empty()) {
        const auto piece =
            into.first(static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), part.size - offset)));
        DOPPLER_TRY(part.source->read(part.offset + offset, piece));
        into = into.subspan(piece.size());
        offset += piece.size();
      }
      offset -= std::min(offset, part.size);
    }
    if (into.empty()) return {};
    return fail(ErrorCode::kIo, "A tensor ends {} bytes too early. Report this.", into.size());
  }

 private:
  struct Part {
    std::shared_ptr<const ByteSource> source;
    std::uint64_t offset, size;
  };
  std::vector<Part> parts_;
  std::uint64_t size_ = 0;
};

Result<std::vector<MappedFile>> open_shards(const fs::path& folder, const RdrrManifest& manifest) {
  std::vector<MappedFile> shards;
  for (const RdrrShard& shard : manifest.shards) {
    DOPPLER_ASSIGN(MappedFile file, open_sized(folder, shard.filename, shard.size, "shard"));
    shards.push_back(std::move(file));
  }
  return shards;
}

std::span<const std::byte> bytes_of(const RdrrSpan& span, std::span<const MappedFile> shards) {
  return shards[span.shard].bytes().subspan(span.offset, span.size);
}

// The tensor's bytes, one after the other: in the shard where they all lie, or copied into `memory`.
std::span<const std::byte> gather(const RdrrTensor& tensor, std::span<const MappedFile> shards,
                                  std::vector<std::byte>& memory) {
  if (tensor.spans.size() == 1) return bytes_of(tensor.spans[0], shards);
  memory.clear();
  memory.reserve(tensor.size);
  for (const RdrrSpan& span : tensor.spans) {
    const auto bytes = bytes_of(span, shards);
    memory.insert(memory.end(), bytes.begin(), bytes.end());
    system::release_pages(bytes);
  }
  return memory;
}

bool lies_as_used(const RdrrTensor& tensor) {
  return tensor.layout != RdrrLayout::kColumns && byte_size(tensor.dtype, tensor.shape) == tensor.size;
}

class PackageOpener {
 public:
  PackageOpener(const fs::path& folder, RdrrPackage& out) : folder_(folder), out_(out) {}

  Status open() {
    DOPPLER_ASSIGN(const std::vector<MappedFile> shards, open_shards(folder_, out_.manifest));
    for (const RdrrTensor& tensor : out_.manifest.tensors) DOPPLER_TRY(add(tensor, shards));
    for (const MappedFile& shard : shards) out_.tensors.keep(shard);
    DOPPLER_TRY(out_.tensors.align());
    out_.tensors.mark_mapped();
    for (const auto& [note, tensors] : notes_)
      out_.notes.push_back(fmt::format("In {}, {}.", counted(tensors, "tensor"), note));
    return {};
  }

 private:
  Status add(const RdrrTensor& tensor, std::span<const MappedFile> shards) {
    if (lies_as_used(tensor) && tensor.spans.size() == 1)
      return out_.tensors.add({tensor.name, tensor.dtype, tensor.shape, bytes_of(tensor.spans[0], shards)});
    if (lies_as_used(tensor)) return join(tensor, shards);
    std::vector<std::byte> memory;
    DOPPLER_ASSIGN(std::string note, add_rdrr_tensor(tensor, gather(tensor, shards, memory), out_.tensors));
    if (!note.empty()) ++notes_[note];
    return {};
  }

  Status join(const RdrrTensor& tensor, std::span<const MappedFile> shards) {
    DOPPLER_ASSIGN(std::span<std::byte> whole, out_.tensors.create(tensor.name, tensor.dtype, tensor.shape));
    for (const RdrrSpan& span : tensor.spans) {
      const auto bytes = bytes_of(span, shards);
      std::ranges::copy(bytes, whole.begin());
      whole = whole.subspan(bytes.size());
      system::release_pages(bytes);
    }
    return {};
  }

  const fs::path& folder_;
  RdrrPackage& out_;
  std::map<std::string, std::size_t> notes_;  // and in how many tensors
};

// The same with shards that are read in pieces.
class PieceOpener {
 public:
  PieceOpener(const fs::path& folder, RdrrPackage& out) : folder_(folder), out_(out) {}

  Status open() {
    for (const RdrrShard& shard : out_.manifest.shards) {
      auto source = open_byte_source(folder_ / shard.filename);
      if (!source && source.error().code == ErrorCode::kNotFound)
        return missing(folder_, shard.filename, "shard");
      DOPPLER_TRY(source);
      DOPPLER_TRY(check_size(folder_, shard.filename, "shard", (*source)->size(), shard.size));
      shards_.push_back(std::move(*source));
    }
    for (const RdrrTensor& tensor : out_.manifest.tensors) DOPPLER_TRY(add(tensor));
    for (auto& shard : shards_) out_.tensors.keep(std::move(shard));
    for (const auto& [note, tensors] : notes_)
      out_.notes.push_back(fmt::format("In {}, {}.", counted(tensors, "tensor"), note));
    return {};
  }

 private:
  Status add(const RdrrTensor& tensor) {
    TensorView view{tensor.name, tensor.dtype, tensor.shape, {}};
    view.source = shards_[tensor.spans[0].shard].get();
    view.offset = tensor.spans[0].offset;
    if (tensor.spans.size() > 1) {
      const auto joined = std::make_shared<JoinedSource>();
      for (const RdrrSpan& span : tensor.spans) joined->add(shards_[span.shard], span.offset, span.size);
      view.source = joined.get();
      view.offset = 0;
      out_.tensors.keep(joined);
    }
    if (lies_as_used(tensor)) return out_.tensors.add(std::move(view));
    view.dtype = DType::kU8;  // bytes of another layout
    view.shape = {tensor.size};
    DOPPLER_ASSIGN(const HeldTensor held, hold(view));
    DOPPLER_ASSIGN(std::string note, add_rdrr_tensor(tensor, held.view.data, out_.tensors));
    if (!note.empty()) ++notes_[note];
    return {};
  }

  const fs::path& folder_;
  RdrrPackage& out_;
  std::vector<std::shared_ptr<const ByteSource>> shards_;
  std::map<std::string, std::size_t> notes_;
};

class Checker {
 public:
  Checker(const fs::path& folder, const RdrrManifest& manifest,
          const std::function<bool(double, std::string_view)>& go_on)
      : folder_(folder), manifest_(manifest), go_on_(go_on) {
    whole_ = manifest.total_size;
    for (const RdrrFile& file : manifest.files) whole_ += file.size;
    for (const RdrrGroup& group : manifest.groups)
      if (!group.hash.empty())
        for (const std::size_t tensor : group.tensors) whole_ += manifest.tensors[tensor].size;
  }

  Result<RdrrCheck> check() {
    for (const RdrrShard& shard : manifest_.shards) {
      DOPPLER_TRY(check_file(shard.filename, shard.size, shard.algorithm, shard.hash, "shard"));
      ++out_.shards;
    }
    for (const RdrrFile& file : manifest_.files) {
      DOPPLER_TRY(check_file(file.filename, file.size, manifest_.algorithm, file.hash, "file"));
      ++out_.files;
    }
    // With shards missing or damaged, groups would only say it again.
    if (out_.problems.empty()) DOPPLER_TRY(check_groups());
    return std::move(out_);
  }

 private:
  Status add(std::span<const std::byte> bytes, std::string_view name, RdrrHasher& hasher) {
    for (std::uint64_t at = 0; at < bytes.size(); at += kHashPiece) {
      const auto piece = bytes.subspan(at, std::min<std::uint64_t>(kHashPiece, bytes.size() - at));
      hasher.add(piece);
      system::release_pages(piece);
      done_ += piece.size();
      if (!go_on_(static_cast<double>(done_) / static_cast<double>(whole_), name))
        return fail(ErrorCode::kIo, "The check was interrupted.");
    }
    return {};
  }

  Status check_file(const std::string& name, std::uint64_t size, RdrrHash algorithm, const std::string& hash,
                    std::string_view kind) {
    const auto file = open_sized(folder_, name, size, kind);
    if (!file) {
      out_.problems.push_back({name, file.error().message});
      return {};
    }
    DOPPLER_ASSIGN(RdrrHasher hasher, RdrrHasher::create(algorithm));
    DOPPLER_TRY(add(file->bytes(), name, hasher));
    out_.bytes += size;
    if (const std::string found = hasher.finish(); found != hash) {
      out_.problems.push_back(
          {name, fmt::format("The {} {} has the {} {}, but the manifest says {}. Download it again.", kind,
                             printable(name), name_of(algorithm), found, hash)});
    }
    return {};
  }

  Status check_groups() {
    DOPPLER_ASSIGN(const std::vector<MappedFile> shards, open_shards(folder_, manifest_));
    for (const RdrrGroup& group : manifest_.groups) {
      if (group.hash.empty()) continue;
      DOPPLER_ASSIGN(RdrrHasher hasher, RdrrHasher::create(manifest_.algorithm));
      for (const std::size_t tensor : group.tensors)
        for (const RdrrSpan& span : manifest_.tensors[tensor].spans)
          DOPPLER_TRY(add(bytes_of(span, shards), group.id, hasher));
      ++out_.groups;
      if (const std::string found = hasher.finish(); found != group.hash) {
        out_.problems.push_back(
            {group.id,
             fmt::format("The tensors of the group {} have the {} {}, but the manifest says {}. All "
                         "shards are whole, so download manifest.json again.",
                         printable(group.id), name_of(manifest_.algorithm), found, group.hash)});
      }
    }
    return {};
  }

  const fs::path& folder_;
  const RdrrManifest& manifest_;
  const std::function<bool(double, std::string_view)>& go_on_;
  std::uint64_t done_ = 0, whole_ = 0;
  RdrrCheck out_;
};

}  // namespace

bool has_rdrr_manifest(const fs::path& folder) {
  const auto text = read_text_file(folder / kRdrrManifestName, kMaxRdrrManifestBytes);
  if (!text) return false;
  // Of a file that is no JSON its name and its shard count as what was meant, so that its error is shown.
  const auto document = parse_json(*text, kRdrrManifestName);
  if (!document) return system::is_file(folder / "shard_00000.bin");
  return document->is_object() && document->contains("shards") && document->contains("modelId");
}

Result<RdrrManifest> read_rdrr_manifest(const fs::path& folder) {
  DOPPLER_ASSIGN(const std::string text, read_text_file(folder / kRdrrManifestName, kMaxRdrrManifestBytes));
  const auto named = [&](Error error) {
    return fail(error.code, "The RDRR package {} cannot be used. {}", printable_path(folder), error.message);
  };
  const Result<std::string> file = rdrr_tensors_file(text);
  if (!file) return named(file.error());
  std::string tensors;
  if (!file->empty()) {
    DOPPLER_ASSIGN(tensors, read_text_file(folder / *file, kMaxRdrrManifestBytes));
  }
  auto manifest = parse_rdrr_manifest(text, tensors);
  if (!manifest) return named(manifest.error());
  return manifest;
}

Result<RdrrPackage> open_rdrr(const fs::path& folder, Opening opening) {
  RdrrPackage package;
  DOPPLER_ASSIGN(package.manifest, read_rdrr_manifest(folder));
  if (opening == Opening::kPieces) {
    DOPPLER_TRY(PieceOpener(folder, package).open());
    return package;
  }
  DOPPLER_TRY(PackageOpener(folder, package).open());
  return package;
}

Result<RdrrCheck> check_rdrr(const fs::path& folder,
                             const std::function<bool(double share, std::string_view file)>& go_on) {
  DOPPLER_ASSIGN(const RdrrManifest manifest, read_rdrr_manifest(folder));
  return Checker(folder, manifest, go_on).check();
}

}  // namespace doppler
