#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/text.h"

namespace doppler {
namespace {

// The largest page of any machine; a larger alignment cannot serve anything.
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;
// Lists of lists: no published file has any, the specification allows them.
constexpr std::size_t kMaxListDepth = 4;
// The least that a key-value pair and a tensor description take in the file: the bound of their counts.
constexpr std::uint64_t kLeastPairBytes = 8 + 1 + 4 + 1, kLeastInfoBytes = 8 + 1 + 4 + 4 + 8;

// Where a tensor is said to lie, before it is believed.
struct TensorInfo {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t offset = 0, bytes = 0;
};

// Takes the file's parts off its front, each checked against what is left.
class Reader {
 public:
  Reader(const FileBytes& file, std::string_view what, NeedsMore& more)
      : bytes_(file.start), size_(file.size), what_(what), more_(more) {}

  std::uint64_t position() const { return at_; }
  std::uint64_t left() const { return size_ - at_; }

  template <typename T>
  Result<T> number(std::string_view of) {
    DOPPLER_ASSIGN(const auto raw, take(sizeof(T), of));
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view of) {
    if (count > left()) {
      return fail(ErrorCode::kCorrupt,
                  "{} needs {} bytes for {} at byte {} but holds {} more. Download it again.", what_, count,
                  of, at_, left());
    }
    if (count > bytes_.size() - at_) {
      more_.bytes = at_ + count;
      return fail(ErrorCode::kInternal, "The start of {} is too short. Report this.", what_);
    }
    const auto part = bytes_.subspan(at_, count);
    at_ += count;
    return part;
  }

  Result<std::string_view> string(std::string_view of) {
    DOPPLER_ASSIGN(const auto length, number<std::uint64_t>(of));
    DOPPLER_ASSIGN(const auto text, take(length, of));
    return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
  }

  Result<GgufType> type(std::string_view of) {
    DOPPLER_ASSIGN(const auto id, number<std::uint32_t>(of));
    if (id < kGgufTypes) return static_cast<GgufType>(id);
    return fail(ErrorCode::kCorrupt,
                "{} gives {} the type number {}, but there are {} types. Download it again.", what_, of, id,
                kGgufTypes);
  }

  // A value of that type, without interpreting it. Lists of lists are walked with a stack of fixed depth.
  Result<std::span<const std::byte>> value(GgufType value_type, std::string_view of) {
    if (value_type == GgufType::kString) {
      DOPPLER_ASSIGN(const std::string_view text, string(of));
      return std::as_bytes(std::span(text.data(), text.size()));
    }
    if (value_type != GgufType::kArray) return take(gguf_type_bytes(value_type), of);
    const std::uint64_t begin = at_;
    DOPPLER_TRY(skip_list(of));
    return bytes_.subspan(begin, at_ - begin);
  }

 private:
  Status skip_list(std::string_view of) {
    std::uint64_t lists_left[kMaxListDepth];  // in each list of lists, how many are still to be walked
    std::size_t depth = 0;
    for (;;) {
      DOPPLER_ASSIGN(const GgufType element, type(of));
      DOPPLER_ASSIGN(const auto count, number<std::uint64_t>(of));
      if (element == GgufType::kArray && count > 0) {
        if (depth == kMaxListDepth) {
          return fail(ErrorCode::kCorrupt, "{} nests lists more than {} deep in {}. Download it again.",
                      what_, kMaxListDepth, of);
        }
        lists_left[depth++] = count;
      } else {
        DOPPLER_TRY(skip_elements(element, count, of));
      }
      while (depth > 0 && lists_left[depth - 1] == 0) --depth;
      if (depth == 0) return {};
      --lists_left[depth - 1];
    }
  }

  Status skip_elements(GgufType element, std::uint64_t count, std::string_view of) {
    if (element == GgufType::kArray) return {};  // none
    if (element != GgufType::kString) {
      const auto bytes = (Checked(count) * gguf_type_bytes(element)).get();
      DOPPLER_TRY(take(bytes.value_or(UINT64_MAX), of));
      return {};
    }
    // Each string takes 8 bytes of the file at least, so the loop ends with the file at the latest.
    for (std::uint64_t i = 0; i < count; ++i) DOPPLER_TRY(string(of));
    return {};
  }

  std::span<const std::byte> bytes_;
  std::uint64_t size_;
  std::string_view what_;
  NeedsMore& more_;
  std::uint64_t at_ = 0;
};

Result<std::uint32_t> read_version(Reader& reader, std::string_view what) {
  DOPPLER_ASSIGN(const auto magic, reader.take(4, "the magic"));
  const std::string_view text(reinterpret_cast<const char*>(magic.data()), magic.size());
  // The formats before GGUF: ggml, ggmf, ggjt, as little-endian numbers.
  if (text == "lmgg" || text == "fmgg" || text == "tjgg") {
    return fail(ErrorCode::kUnsupported, "{} is of a format before GGUF ({}). Convert the model again.", what,
                printable(text));
  }
  if (text != "GGUF") {
    return fail(ErrorCode::kCorrupt, "{} begins with \"{}\" instead of GGUF. Check that it is a GGUF file.",
                what, printable(text));
  }
  DOPPLER_ASSIGN(const auto version, reader.number<std::uint32_t>("the version"));
  if (version == 2 || version == 3) return version;
  const std::uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return fail(ErrorCode::kUnsupported, "{} is big-endian (version {}). Convert the model for this machine.",
                what, swapped);
  }
  return fail(ErrorCode::kUnsupported,
              "{} has the GGUF version {}, but Doppler reads 2 and 3. Convert the model again.", what,
              version);
}

// A count from the header that the rest of the file has room for.
Result<std::uint64_t> read_count(Reader& reader, std::string_view of, std::uint64_t least_bytes,
                                 std::string_view what) {
  DOPPLER_ASSIGN(const auto count, reader.number<std::uint64_t>(of));
  if (count <= reader.left() / least_bytes) return count;
  return fail(ErrorCode::kCorrupt, "{} promises {} = {} but holds only {} more bytes. Download it again.",
              what, of, count, reader.left());
}

Result<GgufMetadata> read_pairs(Reader& reader, std::uint64_t count, std::string_view what) {
  std::vector<GgufMetadata::Entry> entries;
  entries.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    DOPPLER_ASSIGN(const std::string_view key, reader.string("a key"));
    if (key.empty() || key.size() > kGgufMaxKeyBytes) {
      return fail(ErrorCode::kCorrupt, "{} has a key of {} bytes, but keys have 1 to {}. Download it again.",
                  what, key.size(), kGgufMaxKeyBytes);
    }
    const std::string named = "the key " + printable(key);
    DOPPLER_ASSIGN(const GgufType type, reader.type(named));
    DOPPLER_ASSIGN(const auto value, reader.value(type, named));
    entries.push_back({key, type, value});
  }
  GgufMetadata metadata;
  DOPPLER_TRY(metadata.set_entries(std::move(entries), what));
  return metadata;
}

Result<std::uint64_t> read_alignment(const GgufMetadata& metadata, std::string_view what) {
  DOPPLER_ASSIGN(const auto given, metadata.get_uint(kGgufAlignmentKey));
  const std::uint64_t alignment = given.value_or(kGgufDefaultAlignment);
  if (std::has_single_bit(alignment) && alignment <= kMaxAlignment) return alignment;
  return fail(ErrorCode::kCorrupt,
              "{} says {} = {}, but it must be a power of two up to {}. Download it again.", what,
              kGgufAlignmentKey, alignment, kMaxAlignment);
}

Result<TensorInfo> read_info(Reader& reader, std::uint64_t alignment, std::string_view what) {
  TensorInfo info;
  DOPPLER_ASSIGN(info.name, reader.string("a tensor's name"));
  if (info.name.empty()) {
    return fail(ErrorCode::kCorrupt, "{} has a tensor without a name. Download it again.", what);
  }
  const std::string named = "the tensor " + printable(info.name);
  DOPPLER_ASSIGN(const auto dims, reader.number<std::uint32_t>(named));
  if (dims > kGgufMaxDims) {
    return fail(ErrorCode::kCorrupt, "{} gives {} {} dimensions, but GGUF has at most {}. Download it again.",
                what, named, dims, kGgufMaxDims);
  }
  info.shape.resize(dims);
  for (std::uint32_t i = dims; i-- > 0;) {  // the file gives the innermost first
    DOPPLER_ASSIGN(info.shape[i], reader.number<std::uint64_t>(named));
  }
  const std::string subject =
      fmt::format("The tensor {} ({})", printable(info.name), describe_shape(info.shape));
  DOPPLER_ASSIGN(const auto type, reader.number<std::uint32_t>(named));
  DOPPLER_ASSIGN(info.dtype, dtype_from_gguf(type, subject));
  DOPPLER_ASSIGN(info.offset, reader.number<std::uint64_t>(named));
  const auto bytes = byte_size(info.dtype, info.shape);
  if (!bytes || *bytes == 0) {
    return fail(
        ErrorCode::kCorrupt,
        "{} of type {} has no size: it is empty, too large, or its rows end inside a block of {}. Download "
        "the file again.",
        subject, dtype_name(info.dtype), dtype_info(info.dtype).block_values);
  }
  info.bytes = *bytes;
  if (info.offset % alignment != 0) {
    return fail(ErrorCode::kCorrupt,
                "{} begins at byte {} of the data, which is no multiple of the alignment {}. "
                "Download the file again.",
                subject, info.offset, alignment);
  }
  return info;
}

// In order of their offsets, each tensor ends before the next begins, and the last within the file.
Status check_places(const std::vector<TensorInfo>& infos, std::uint64_t data_bytes) {
  std::vector<const TensorInfo*> order;
  order.reserve(infos.size());
  for (const TensorInfo& info : infos) order.push_back(&info);
  std::ranges::sort(order, {}, &TensorInfo::offset);
  std::uint64_t end = 0;
  const TensorInfo* before = nullptr;
  for (const TensorInfo* info : order) {
    if (info->offset < end) {
      return fail(ErrorCode::kCorrupt,
                  "The tensors {} and {} overlap at byte {} of the data. Download the file again.",
                  printable(before->name), printable(info->name), info->offset);
    }
    const Checked info_end = Checked(info->offset) + info->bytes;
    if (!info_end.at_most(data_bytes)) {
      return fail(
          ErrorCode::kCorrupt,
          "The tensor {} ({}, {}) needs {} bytes from byte {} of the data on, but the file holds {} there. "
          "Download it again.",
          printable(info->name), dtype_name(info->dtype), describe_shape(info->shape), info->bytes,
          info->offset, data_bytes - std::min(data_bytes, info->offset));
    }
    end = *info_end.get();
    before = info;
  }
  return {};
}

}  // namespace

Result<GgufFile> parse_gguf(std::span<const std::byte> bytes, std::string_view what) {
  NeedsMore more;
  return parse_gguf(FileBytes(bytes), what, more);
}

Result<GgufFile> parse_gguf(const FileBytes& bytes, std::string_view what, NeedsMore& more) {
  Reader reader(bytes, what, more);
  GgufFile file;
  DOPPLER_ASSIGN(file.version, read_version(reader, what));
  DOPPLER_ASSIGN(const auto tensor_count, read_count(reader, "the tensor count", kLeastInfoBytes, what));
  DOPPLER_ASSIGN(const auto pair_count, read_count(reader, "the key count", kLeastPairBytes, what));
  DOPPLER_ASSIGN(file.metadata, read_pairs(reader, pair_count, what));
  DOPPLER_ASSIGN(file.alignment, read_alignment(file.metadata, what));
  std::vector<TensorInfo> infos;
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    DOPPLER_ASSIGN(infos.emplace_back(), read_info(reader, file.alignment, what));
  }
  const std::uint64_t padding = -reader.position() % file.alignment;
  // A file without tensors may end before its padding.
  const std::uint64_t data = reader.position() + std::min(padding, reader.left());
  DOPPLER_TRY(check_places(infos, bytes.size - data));
  for (TensorInfo& info : infos) {
    DOPPLER_TRY(file.tensors.add(bytes.tensor(std::string(info.name), info.dtype, std::move(info.shape),
                                              data + info.offset, info.bytes)));
  }
  return file;
}

}  // namespace doppler
