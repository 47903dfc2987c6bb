// Opening GGUF files from disk: whole ones, and sets that llama.cpp's gguf-split cut. Each file of a set
// holds split.no (from 0), split.count and split.tensors.count; only the first holds the model's metadata.
#include <limits>

#include "base/files.h"
#include "base/text.h"
#include "formats/gguf.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

struct SplitPlace {
  std::uint64_t no = 0, count = 1;
};

Result<GgufFile> open_pieces(const fs::path& path, std::string_view what) {
  DOPPLER_ASSIGN(auto source, open_byte_source(path));
  GgufFile file;
  const auto parse = [&](const FileBytes& bytes, NeedsMore& more) -> Status {
    DOPPLER_ASSIGN(file, parse_gguf(bytes, what, more));
    return {};
  };
  DOPPLER_ASSIGN(auto start, parse_start(*source, parse));
  file.metadata.keep(std::move(start));
  file.tensors.keep(std::move(source));
  return file;
}

Result<GgufFile> open_one(const fs::path& path, Opening opening) {
  const std::string what = fmt::format("The file {}", printable_path(path));
  if (opening == Opening::kPieces) return open_pieces(path, what);
  DOPPLER_ASSIGN(MappedFile mapped, MappedFile::open(path));
  DOPPLER_ASSIGN(GgufFile file, parse_gguf(mapped.bytes(), what));
  file.metadata.keep(std::make_shared<MappedFile>(mapped));
  file.tensors.keep(std::move(mapped));
  DOPPLER_TRY(file.tensors.align());
  file.tensors.mark_mapped();
  return file;
}

Result<SplitPlace> place_of(const GgufMetadata& metadata, const fs::path& path) {
  DOPPLER_ASSIGN(const auto no, metadata.get_uint("split.no"));
  DOPPLER_ASSIGN(const auto count, metadata.get_uint("split.count"));
  const SplitPlace place{no.value_or(0), std::max<std::uint64_t>(count.value_or(1), 1)};
  // split.count has 16 bits in every writer, and file names five digits.
  if (place.no < place.count && place.count <= std::numeric_limits<std::uint16_t>::max()) return place;
  return fail(ErrorCode::kCorrupt, "The file {} says split.no = {} and split.count = {}. Download it again.",
              printable_path(path), place.no, place.count);
}

// "-00001-of-00003.gguf", counted from 1 as in names.
std::string split_ending(std::uint64_t no, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", no + 1, count);
}

Status add_sibling(GgufFile& set, const fs::path& path, SplitPlace expected, Opening opening) {
  auto sibling = open_one(path, opening);
  if (!sibling && sibling.error().code == ErrorCode::kNotFound) {
    return fail(
        ErrorCode::kNotFound,
        "The file {} is missing, which is number {} of the {} that hold the model. Download it next to the "
        "others.",
        printable_path(path), expected.no + 1, expected.count);
  }
  if (!sibling) return std::unexpected(std::move(sibling).error());
  DOPPLER_ASSIGN(const SplitPlace place, place_of(sibling->metadata, path));
  if (place.no != expected.no || place.count != expected.count) {
    return fail(ErrorCode::kMismatch,
                "The file {} says that it is number {} of {}, but its name says {} of {}. Download it again.",
                printable_path(path), place.no + 1, place.count, expected.no + 1, expected.count);
  }
  return set.tensors.merge(std::move(sibling->tensors));
}

}  // namespace

Result<GgufFile> open_gguf(const fs::path& path, Opening opening) {
  DOPPLER_ASSIGN(GgufFile file, open_one(path, opening));
  DOPPLER_ASSIGN(const SplitPlace place, place_of(file.metadata, path));
  if (place.count == 1) return file;
  const std::string name = path.filename().string();
  const std::string ending = split_ending(place.no, place.count);
  if (!name.ends_with(ending)) {
    return fail(
        ErrorCode::kMismatch,
        "The file {} is number {} of the {} that hold the model, so its name must end with {}. Rename it as "
        "it was.",
        printable_path(path), place.no + 1, place.count, ending);
  }
  const std::string stem = name.substr(0, name.size() - ending.size());
  if (place.no != 0) {
    return fail(ErrorCode::kUsage,
                "The file {} is number {} of the {} that hold the model. Give the first, {}.",
                printable_path(path), place.no + 1, place.count,
                printable_path(path.parent_path() / (stem + split_ending(0, place.count))));
  }
  for (std::uint64_t no = 1; no < place.count; ++no) {
    DOPPLER_TRY(add_sibling(file, path.parent_path() / (stem + split_ending(no, place.count)),
                            {no, place.count}, opening));
  }
  DOPPLER_ASSIGN(const auto promised, file.metadata.get_uint("split.tensors.count"));
  if (!promised || *promised == file.tensors.tensors().size()) return file;
  return fail(ErrorCode::kMismatch,
              "The {} files that begin with {} hold {} tensors, but split.tensors.count says {}. Download "
              "them again.",
              place.count, printable_path(path), file.tensors.tensors().size(), *promised);
}

}  // namespace doppler
