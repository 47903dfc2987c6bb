// GgufMetadata: the typed key-value pairs of a GGUF file, checked once and read in place.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "formats/gguf_types.h"

namespace doppler {

// A list of metadata, still in the file's bytes. The accessors convert it as a whole, in order. Errors of
// all: kCorrupt when the elements are of another type or do not fit; kLimit for lists longer than any
// model's.
class GgufArray {
 public:
  GgufType element_type() const { return type_; }
  std::uint64_t size() const { return size_; }
  // The elements as they lie in the file: numbers side by side, strings each with an 8-byte length.
  std::span<const std::byte> bytes() const { return bytes_; }

  Result<std::vector<std::string_view>> strings() const;
  Result<std::vector<std::int64_t>> ints() const;  // integers of any width
  Result<std::vector<float>> floats() const;       // f32 or f64
  Result<std::vector<bool>> bools() const;

 private:
  friend class GgufMetadata;
  GgufArray(std::string where, GgufType type, std::uint64_t size, std::span<const std::byte> bytes)
      : where_(std::move(where)), type_(type), size_(size), bytes_(bytes) {}
  std::unexpected<Error> wrong_type(std::string_view wanted) const;
  Status check_size() const;
  std::string where_;
  GgufType type_;
  std::uint64_t size_;
  std::span<const std::byte> bytes_;
};

// Keys and values stay in the file's bytes; a copy of this keeps them alive.
//
// Getters: nothing when the key is absent; kCorrupt with key and value when the type is another. Integers of
// any width convert if they fit; get_number also takes integers, and refuses NaN and infinity. An f32 becomes
// the shortest decimal that rounds to it, because that is what its writer had: 1e-06, not 9.99999997e-07.
class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufType type = GgufType::kU8;
    // A number's or bool's bytes, a string's text, an array's element type (4 bytes), count (8) and elements.
    std::span<const std::byte> value;
  };

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // In the file's order.
  std::span<const Entry> entries() const { return entries_; }
  const Entry* find(std::string_view key) const;

  Result<std::optional<std::uint64_t>> get_uint(std::string_view key) const;
  Result<std::optional<std::int64_t>> get_int(std::string_view key) const;
  Result<std::optional<double>> get_number(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> get_string(std::string_view key) const;
  Result<std::optional<GgufArray>> get_array(std::string_view key) const;

  // For reports: "512", "\"llama\"", "list of 32000 strings"; long texts are cut.
  std::string describe(std::string_view key) const;
  // "gguf: llama.block_count"
  static std::string where(std::string_view key);

  // For the reader; `what` names the file. Errors: kCorrupt when a key comes twice.
  Status set_entries(std::vector<Entry> entries, std::string_view what);
  void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

 private:
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> sorted_;  // indices of entries_, by key
  std::shared_ptr<const void> owner_;
};

}  // namespace doppler
