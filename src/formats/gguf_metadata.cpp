#include "formats/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "system/numbers.h"

namespace doppler {
namespace {

// The longest lists of published files are vocabularies of some 260,000 tokens and twice as many merges; the
// bound keeps a list of bytes from becoming eight times as much memory without end.
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 26;

template <typename T>
T read_at(std::span<const std::byte> bytes, std::uint64_t offset = 0) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// An integer of any type, without loss: a negative one is given by its two's complement and `negative`.
struct Integer {
  std::uint64_t bits = 0;
  bool negative = false;
};

template <typename T>
Integer integer_of(std::span<const std::byte> bytes, std::uint64_t index) {
  const T value = read_at<T>(bytes, index * sizeof(T));
  return {static_cast<std::uint64_t>(value), value < 0};
}

std::optional<Integer> read_integer(GgufType type, std::span<const std::byte> bytes, std::uint64_t i = 0) {
  switch (type) {
    case GgufType::kU8:
      return integer_of<std::uint8_t>(bytes, i);
    case GgufType::kI8:
      return integer_of<std::int8_t>(bytes, i);
    case GgufType::kU16:
      return integer_of<std::uint16_t>(bytes, i);
    case GgufType::kI16:
      return integer_of<std::int16_t>(bytes, i);
    case GgufType::kU32:
      return integer_of<std::uint32_t>(bytes, i);
    case GgufType::kI32:
      return integer_of<std::int32_t>(bytes, i);
    case GgufType::kU64:
      return integer_of<std::uint64_t>(bytes, i);
    case GgufType::kI64:
      return integer_of<std::int64_t>(bytes, i);
    default:
      return std::nullopt;
  }
}

std::optional<double> read_float(GgufType type, std::span<const std::byte> bytes, std::uint64_t i = 0) {
  if (type == GgufType::kF32) return read_at<float>(bytes, i * sizeof(float));
  if (type == GgufType::kF64) return read_at<double>(bytes, i * sizeof(double));
  return std::nullopt;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string describe_value(const GgufMetadata::Entry& entry) {
  if (const auto integer = read_integer(entry.type, entry.value)) {
    return integer->negative ? fmt::format("{}", static_cast<std::int64_t>(integer->bits))
                             : fmt::format("{}", integer->bits);
  }
  if (const auto number = read_float(entry.type, entry.value)) {
    return entry.type == GgufType::kF32 ? fmt::format("{}", static_cast<float>(*number))
                                        : fmt::format("{}", *number);
  }
  if (entry.type == GgufType::kBool) return read_at<std::uint8_t>(entry.value) != 0 ? "true" : "false";
  if (entry.type == GgufType::kString) return fmt::format("\"{}\"", printable(text_of(entry.value)));
  return fmt::format("list of {} values of type {}", read_at<std::uint64_t>(entry.value, 4),
                     gguf_type_name(static_cast<GgufType>(read_at<std::uint32_t>(entry.value))));
}

std::unexpected<Error> wrong_type(const GgufMetadata::Entry& entry, std::string_view wanted) {
  return fail(ErrorCode::kCorrupt,
              "The value {} = {} has the type {}, but {} is needed. Download the file again.",
              GgufMetadata::where(entry.key), describe_value(entry), gguf_type_name(entry.type), wanted);
}

}  // namespace

std::unexpected<Error> GgufArray::wrong_type(std::string_view wanted) const {
  return fail(ErrorCode::kCorrupt,
              "The list {} holds values of the type {}, but {} are needed. Download the file again.", where_,
              gguf_type_name(type_), wanted);
}

Status GgufArray::check_size() const {
  if (size_ <= kMaxElements) return {};
  return fail(ErrorCode::kLimit,
              "The list {} holds {} values, more than the {} that any model needs. Download the file again.",
              where_, size_, kMaxElements);
}

Result<std::vector<std::string_view>> GgufArray::strings() const {
  if (type_ != GgufType::kString) return wrong_type("strings");
  DOPPLER_TRY(check_size());
  std::vector<std::string_view> out;
  out.reserve(size_);
  // The reader has walked these lengths when it opened the file.
  for (std::uint64_t at = 0; out.size() < size_;) {
    const auto length = read_at<std::uint64_t>(bytes_, at);
    out.push_back(text_of(bytes_.subspan(at + 8, length)));
    at += 8 + length;
  }
  return out;
}

Result<std::vector<std::int64_t>> GgufArray::ints() const {
  std::vector<std::int64_t> out;
  if (size_ == 0 && type_ != GgufType::kString && type_ != GgufType::kArray) return out;
  if (!read_integer(type_, std::array<std::byte, 8>{})) return wrong_type("whole numbers");
  DOPPLER_TRY(check_size());
  out.reserve(size_);
  for (std::uint64_t i = 0; i < size_; ++i) {
    const Integer integer = *read_integer(type_, bytes_, i);
    const auto value = static_cast<std::int64_t>(integer.bits);
    if (!integer.negative && value < 0) {
      return fail(ErrorCode::kCorrupt,
                  "The list {} holds the value {}, which does not fit into 63 bits. Download the file again.",
                  where_, integer.bits);
    }
    out.push_back(value);
  }
  return out;
}

Result<std::vector<float>> GgufArray::floats() const {
  if (type_ != GgufType::kF32 && type_ != GgufType::kF64) return wrong_type("floating-point numbers");
  DOPPLER_TRY(check_size());
  std::vector<float> out;
  out.reserve(size_);
  for (std::uint64_t i = 0; i < size_; ++i) out.push_back(static_cast<float>(*read_float(type_, bytes_, i)));
  return out;
}

Result<std::vector<bool>> GgufArray::bools() const {
  if (type_ != GgufType::kBool) return wrong_type("true or false");
  DOPPLER_TRY(check_size());
  std::vector<bool> out;
  out.reserve(size_);
  for (const std::byte value : bytes_) out.push_back(value != std::byte{0});
  return out;
}

std::string GgufMetadata::where(std::string_view key) {
  return fmt::format("gguf: {}", printable(key));
}

Status GgufMetadata::set_entries(std::vector<Entry> entries, std::string_view what) {
  entries_ = std::move(entries);
  sorted_.resize(entries_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::ranges::sort(sorted_, {}, [this](std::uint32_t i) { return entries_[i].key; });
  const auto twice = std::ranges::adjacent_find(
      sorted_, [this](std::uint32_t a, std::uint32_t b) { return entries_[a].key == entries_[b].key; });
  if (twice == sorted_.end()) return {};
  return fail(ErrorCode::kCorrupt, "{} has the key {} twice. Download it again.", what,
              printable(entries_[*twice].key));
}

const GgufMetadata::Entry* GgufMetadata::find(std::string_view key) const {
  const auto found =
      std::ranges::lower_bound(sorted_, key, {}, [this](std::uint32_t i) { return entries_[i].key; });
  if (found == sorted_.end() || entries_[*found].key != key) return nullptr;
  return &entries_[*found];
}

Result<std::optional<std::uint64_t>> GgufMetadata::get_uint(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  const auto integer = read_integer(entry->type, entry->value);
  if (!integer || integer->negative) return wrong_type(*entry, "a whole number that is not negative");
  return integer->bits;
}

Result<std::optional<std::int64_t>> GgufMetadata::get_int(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  const auto integer = read_integer(entry->type, entry->value);
  const auto value = integer ? static_cast<std::int64_t>(integer->bits) : 0;
  if (!integer || (value < 0) != integer->negative) return wrong_type(*entry, "a whole number below 2^63");
  return value;
}

Result<std::optional<double>> GgufMetadata::get_number(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (const auto integer = read_integer(entry->type, entry->value)) {
    return integer->negative ? static_cast<double>(static_cast<std::int64_t>(integer->bits))
                             : static_cast<double>(integer->bits);
  }
  const auto number = read_float(entry->type, entry->value);
  if (!number || !std::isfinite(*number)) return wrong_type(*entry, "a finite number");
  if (entry->type == GgufType::kF64) return *number;
  const std::string shortest = fmt::format("{}", static_cast<float>(*number));
  double meant = *number;
  system::read_double(shortest.data(), shortest.data() + shortest.size(), meant);
  return meant;
}

Result<std::optional<bool>> GgufMetadata::get_bool(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kBool) return wrong_type(*entry, "true or false");
  return entry->value[0] != std::byte{0};
}

Result<std::optional<std::string_view>> GgufMetadata::get_string(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kString) return wrong_type(*entry, "a text");
  return text_of(entry->value);
}

Result<std::optional<GgufArray>> GgufMetadata::get_array(std::string_view key) const {
  const Entry* entry = find(key);
  if (entry == nullptr) return std::nullopt;
  if (entry->type != GgufType::kArray) return wrong_type(*entry, "a list");
  return GgufArray(where(key), static_cast<GgufType>(read_at<std::uint32_t>(entry->value)),
                   read_at<std::uint64_t>(entry->value, 4), entry->value.subspan(12));
}

std::string GgufMetadata::describe(std::string_view key) const {
  const Entry* entry = find(key);
  return entry == nullptr ? "absent" : describe_value(*entry);
}

}  // namespace doppler
