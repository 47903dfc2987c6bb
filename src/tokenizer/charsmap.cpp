#include "tokenizer/charsmap.h"

#include <cstring>

namespace doppler::tokenizer {
namespace {

// A unit of the double array (darts-clone): bit 8 says that the node has a value; the low byte and the top
// bit are the label; bits 10 to 30 are the offset to the children, times 256 if bit 9 is set. A value unit
// has the top bit set.
bool has_value(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
  return unit & 0x7fffffffu;
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & 0x800000ffu;
}
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200u) >> 6);
}

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  Charsmap map;
  if (blob.empty()) return map;
  if (blob.size() < 4) {
    return fail(ErrorCode::kCorrupt,
                "The precompiled_charsmap is only {} bytes long. Download the tokenizer again.", blob.size());
  }
  const std::size_t trie_bytes = read_u32(blob, 0);
  if (trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
    return fail(
        ErrorCode::kCorrupt,
        "The precompiled_charsmap claims a trie of {} bytes but holds {} more. Download the tokenizer again.",
        trie_bytes, blob.size() - 4);
  }
  map.units_.resize(trie_bytes / 4);
  for (std::size_t i = 0; i < map.units_.size(); ++i) map.units_[i] = read_u32(blob, 4 + i * 4);
  map.replacements_ = blob.substr(4 + trie_bytes);
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool first) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Match> best;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    const std::size_t start = node < units_.size() ? value_of(units_[node]) : replacements_.size();
    if (start >= replacements_.size()) continue;  // a lying file: no such replacement
    const std::size_t end = replacements_.find('\0', start);
    best = Match{i + 1,
                 std::string_view(replacements_).substr(start, end == std::string::npos ? end : end - start)};
    if (first) break;
  }
  return best;
}

}  // namespace doppler::tokenizer
