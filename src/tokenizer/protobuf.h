// The wire format of protobuf, as far as reading a message's fields goes.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace doppler::tokenizer {

struct ProtoField {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  // of a varint or fixed field
  std::string_view bytes;   // of a length-delimited field
  enum class Kind { kVarint, kFixed64, kBytes, kFixed32 } kind = Kind::kVarint;

  bool is_bytes() const { return kind == Kind::kBytes; }
  bool as_bool() const { return value != 0; }
  float as_float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value)); }
};

// Reads one field after the other; failed() tells the end from a malformed message.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : rest_(bytes) {}

  std::optional<ProtoField> next() {
    if (rest_.empty() || failed_) return std::nullopt;
    ProtoField field;
    const std::uint64_t tag = varint();
    field.number = static_cast<std::uint32_t>(tag >> 3);
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.kind = ProtoField::Kind::kFixed64, field.value = fixed(8);
        break;
      case 2:
        field.kind = ProtoField::Kind::kBytes, field.bytes = take(varint());
        break;
      case 5:
        field.kind = ProtoField::Kind::kFixed32, field.value = fixed(4);
        break;
      default:
        failed_ = true;  // groups, which protobuf has deprecated
    }
    if (failed_ || tag >> 3 == 0 || tag >> 32 != 0) {
      failed_ = true;
      return std::nullopt;
    }
    return field;
  }
  bool failed() const { return failed_; }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t fixed(std::size_t size) {
    const std::string_view bytes = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const std::string_view byte = take(1);
      if (byte.empty()) return 0;
      const auto bits = static_cast<unsigned char>(byte[0]);
      value |= static_cast<std::uint64_t>(bits & 0x7f) << shift;
      if (bits < 0x80) return value;
    }
    failed_ = true;
    return 0;
  }

  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace doppler::tokenizer
