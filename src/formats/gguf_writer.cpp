#include "formats/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "base/checked.h"
#include "base/text.h"
#include "formats/gguf.h"

namespace doppler {
namespace {

constexpr std::uint32_t kVersion = 3;
template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void append_string(std::string& out, std::string_view text) {
  append<std::uint64_t>(out, text.size());
  out += text;
}

void append_bytes(std::string& out, std::span<const std::byte> bytes) {
  if (!bytes.empty()) out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path, std::uint64_t alignment) {
  // The widest type has 8 bytes; the reader's upper bound is a page of 1 GiB.
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > (std::uint64_t{1} << 30)) {
    return fail(ErrorCode::kUsage, "The alignment {} is no power of two from 8 to 2^30. Choose 32.",
                alignment);
  }
  DOPPLER_ASSIGN(OutputFile output, OutputFile::create(path));
  GgufWriter writer(std::move(output), alignment);
  if (alignment != kGgufDefaultAlignment) {
    const auto value = static_cast<std::uint32_t>(alignment);
    DOPPLER_TRY(writer.add<std::uint32_t>(kGgufAlignmentKey, value));
  }
  return writer;
}

Status GgufWriter::check_open(std::string_view name) const {
  if (!header_written_) return {};
  return fail(ErrorCode::kUsage, "The header is written, so {} comes too late. Add it before.",
              printable(name));
}

Status GgufWriter::add_value(std::string_view key, GgufType type, std::span<const std::byte> value) {
  DOPPLER_TRY(check_open(key));
  if (key.empty() || key.size() > kGgufMaxKeyBytes) {
    return fail(ErrorCode::kUsage, "The key {} has {} bytes, but GGUF allows 1 to {}. Choose another.",
                printable(key), key.size(), kGgufMaxKeyBytes);
  }
  // Copied from another file it would lie about this one.
  const auto alignment = static_cast<std::uint32_t>(alignment_);
  const auto expected = std::as_bytes(std::span(&alignment, 1));
  if (key == kGgufAlignmentKey && (type != GgufType::kU32 || !std::ranges::equal(value, expected))) {
    return fail(ErrorCode::kUsage, "The key {} contradicts the alignment {} given to create(). Leave it out.",
                key, alignment_);
  }
  if (!keys_.emplace(key).second) {
    return fail(ErrorCode::kUsage, "The key {} comes twice. Add it once.", printable(key));
  }
  append_string(pairs_, key);
  append(pairs_, type);
  if (type == GgufType::kString) append<std::uint64_t>(pairs_, value.size());
  append_bytes(pairs_, value);
  return {};
}

Status GgufWriter::add_string(std::string_view key, std::string_view value) {
  return add_value(key, GgufType::kString, std::as_bytes(std::span(value.data(), value.size())));
}

Status GgufWriter::add_number_array(std::string_view key, GgufType type, std::uint64_t count,
                                    std::span<const std::byte> values) {
  std::string list;
  append(list, type);
  append(list, count);
  append_bytes(list, values);
  return add_value(key, GgufType::kArray, std::as_bytes(std::span(list)));
}

Status GgufWriter::add_strings(std::string_view key, std::span<const std::string_view> values) {
  std::string list;
  append(list, GgufType::kString);
  append<std::uint64_t>(list, values.size());
  for (const std::string_view value : values) append_string(list, value);
  return add_value(key, GgufType::kArray, std::as_bytes(std::span(list)));
}

Status GgufWriter::add_strings(std::string_view key, std::span<const std::string> values) {
  const std::vector<std::string_view> views(values.begin(), values.end());
  return add_strings(key, std::span<const std::string_view>(views));
}

Status GgufWriter::add_bools(std::string_view key, const std::vector<bool>& values) {
  std::string bytes;
  for (const bool value : values) bytes.push_back(value ? 1 : 0);
  return add_number_array(key, GgufType::kBool, bytes.size(), std::as_bytes(std::span(bytes)));
}

Status GgufWriter::add_entry(const GgufMetadata::Entry& entry) {
  return add_value(entry.key, entry.type, entry.value);
}

Status GgufWriter::declare_tensor(std::string_view name, DType dtype, const Shape& shape) {
  DOPPLER_TRY(check_open(name));
  const auto id = gguf_id(dtype);
  const auto bytes = byte_size(dtype, shape);
  if (!id || !bytes || *bytes == 0 || name.empty() || shape.size() > kGgufMaxDims) {
    return fail(
        ErrorCode::kUsage,
        "The tensor {} ({}, {}) has no place in a GGUF file: it needs a name, a type that GGUF has, at most "
        "{} dimensions, and rows of whole blocks. Choose another type or shape.",
        printable(name), dtype_name(dtype), describe_shape(shape), kGgufMaxDims);
  }
  const Checked end = Checked(data_bytes_) + *bytes + (-*bytes % alignment_);
  if (!end.valid()) {
    return fail(ErrorCode::kUsage,
                "The tensor {} makes the file larger than 2^64 bytes. Write fewer tensors.", printable(name));
  }
  if (!names_.emplace(name).second) {
    return fail(ErrorCode::kUsage, "The tensor {} comes twice. Declare it once.", printable(name));
  }
  append_string(infos_, name);
  append(infos_, static_cast<std::uint32_t>(shape.size()));
  for (std::size_t i = shape.size(); i-- > 0;) append(infos_, shape[i]);
  append(infos_, *id);
  append(infos_, data_bytes_);
  sizes_.push_back(*bytes);
  data_bytes_ = *end.get();
  return {};
}

Result<GgufMetadata> GgufWriter::metadata() const {
  const auto bytes = std::make_shared<std::string>("GGUF");
  append(*bytes, kVersion);
  append<std::uint64_t>(*bytes, 0);
  append<std::uint64_t>(*bytes, keys_.size());
  *bytes += pairs_;
  DOPPLER_ASSIGN(GgufFile read, parse_gguf(std::as_bytes(std::span(*bytes)), "The metadata"));
  read.metadata.keep(bytes);
  return std::move(read.metadata);
}

Status GgufWriter::pad(std::uint64_t written) {
  static constexpr std::byte kZeros[4096] = {};
  for (std::uint64_t left = -written % alignment_; left > 0;) {
    const std::uint64_t count = std::min<std::uint64_t>(left, sizeof(kZeros));
    DOPPLER_TRY(file_.write(std::span(kZeros, count)));
    left -= count;
  }
  return {};
}

Status GgufWriter::write_header() {
  DOPPLER_TRY(check_open("a second header"));
  header_written_ = true;
  std::string header = "GGUF";
  append(header, kVersion);
  append<std::uint64_t>(header, sizes_.size());
  append<std::uint64_t>(header, keys_.size());
  DOPPLER_TRY(file_.write(header));
  DOPPLER_TRY(file_.write(pairs_));
  DOPPLER_TRY(file_.write(infos_));
  return pad(header.size() + pairs_.size() + infos_.size());
}

Status GgufWriter::write_tensor_data(std::span<const std::byte> bytes) {
  if (!header_written_) {
    return fail(ErrorCode::kUsage, "Tensor data comes before the header. Call write_header() first.");
  }
  while (!bytes.empty()) {
    if (current_ == sizes_.size()) {
      return fail(ErrorCode::kInternal,
                  "The declared tensors are complete but {} more bytes come. Report this.", bytes.size());
    }
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), sizes_[current_] - written_);
    DOPPLER_TRY(file_.write(bytes.first(count)));
    bytes = bytes.subspan(count);
    written_ += count;
    if (written_ < sizes_[current_]) continue;
    DOPPLER_TRY(pad(written_));
    written_ = 0;
    ++current_;
  }
  return {};
}

Status GgufWriter::finish() {
  if (!header_written_) DOPPLER_TRY(write_header());
  if (current_ < sizes_.size()) {
    return fail(ErrorCode::kInternal, "Tensor {} of {} lacks {} of its {} bytes. Report this.", current_ + 1,
                sizes_.size(), sizes_[current_] - written_, sizes_[current_]);
  }
  return file_.commit();
}

}  // namespace doppler
