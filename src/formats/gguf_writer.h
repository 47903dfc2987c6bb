// GgufWriter: a GGUF file (version 3), streamed; it appears under its name only when complete.
//
//   DOPPLER_ASSIGN(GgufWriter writer, GgufWriter::create("model.gguf"));
//   DOPPLER_TRY(writer.add<std::string_view>("general.architecture", "llama"));
//   DOPPLER_TRY(writer.add<std::uint32_t>("llama.block_count", 16));
//   DOPPLER_TRY(writer.declare_tensor("output_norm.weight", DType::kF32, {2048}));
//   DOPPLER_TRY(writer.write_header());
//   DOPPLER_TRY(writer.write_tensor_data(bytes));   // every tensor's, in declared order, in any pieces
//   DOPPLER_TRY(writer.finish());
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "formats/gguf_metadata.h"
#include "quant/tensor.h"

namespace doppler {

// The GGUF type of a C++ type; numbers and bool. Strings are std::string_view.
template <typename T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return GgufType::kU8;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return GgufType::kI8;
  else if constexpr (std::is_same_v<T, std::uint16_t>)
    return GgufType::kU16;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return GgufType::kI16;
  else if constexpr (std::is_same_v<T, std::uint32_t>)
    return GgufType::kU32;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return GgufType::kI32;
  else if constexpr (std::is_same_v<T, float>)
    return GgufType::kF32;
  else if constexpr (std::is_same_v<T, bool>)
    return GgufType::kBool;
  else if constexpr (std::is_same_v<T, std::uint64_t>)
    return GgufType::kU64;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return GgufType::kI64;
  else {
    static_assert(std::is_same_v<T, double>, "GGUF has no such type");
    return GgufType::kF64;
  }
}

class GgufWriter {
 public:
  // Errors: those of OutputFile; kUsage for an alignment that is no power of two from 8 on.
  static Result<GgufWriter> create(const std::filesystem::path& path,
                                   std::uint64_t alignment = kGgufDefaultAlignment);

  // Metadata, in the order given. Errors: kUsage for a key that comes twice or is no GGUF key (1 to 65535
  // bytes), or after write_header().
  template <typename T>
  Status add(std::string_view key, std::type_identity_t<T> value) {
    if constexpr (std::is_same_v<T, std::string_view>)
      return add_string(key, value);
    else
      return add_value(key, gguf_type_of<T>(), std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  Status add_array(std::string_view key, std::span<const std::type_identity_t<T>> values) {
    return add_number_array(key, gguf_type_of<T>(), values.size(), std::as_bytes(values));
  }
  Status add_strings(std::string_view key, std::span<const std::string_view> values);
  Status add_strings(std::string_view key, std::span<const std::string> values);
  Status add_bools(std::string_view key, const std::vector<bool>& values);
  // Copies an entry of another file unchanged.
  Status add_entry(const GgufMetadata::Entry& entry);

  // Errors: kUsage for a name that comes twice or is empty, a type that GGUF lacks, more than four or empty
  // dimensions, a size that overflows or rows that end inside a block, or after write_header().
  Status declare_tensor(std::string_view name, DType dtype, const Shape& shape);
  // What a reader will find of the keys so far.
  Result<GgufMetadata> metadata() const;
  Status write_header();
  // kInternal when more bytes come than were declared.
  Status write_tensor_data(std::span<const std::byte> bytes);
  // Puts the file in place. kInternal if bytes are missing.
  Status finish();

 private:
  GgufWriter(OutputFile file, std::uint64_t alignment) : file_(std::move(file)), alignment_(alignment) {}
  Status add_value(std::string_view key, GgufType type, std::span<const std::byte> value);
  Status add_string(std::string_view key, std::string_view value);
  Status add_number_array(std::string_view key, GgufType type, std::uint64_t count,
                          std::span<const std::byte> values);
  Status check_open(std::string_view name) const;
  Status pad(std::uint64_t written);

  OutputFile file_;
  std::uint64_t alignment_;
  std::string pairs_, infos_;  // the header's two parts, as they will be written
  std::set<std::string, std::less<>> keys_, names_;
  std::vector<std::uint64_t> sizes_;  // of the tensors, without padding
  std::uint64_t data_bytes_ = 0;      // of all tensors so far, with padding
  std::size_t current_ = 0;           // the tensor being written
  std::uint64_t written_ = 0;         // bytes of it
  bool header_written_ = false;
};

}  // namespace doppler
