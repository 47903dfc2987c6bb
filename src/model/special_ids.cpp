#include "model/special_ids.h"

#include <fmt/ranges.h>

#include "base/json.h"

namespace doppler {
namespace {

// A special token's ids, given as a number or a list; empty if the key is absent or says -1, which some files
// write for "none".
Result<std::vector<std::int32_t>> read_ids(const ConfigReader& reader, const std::string& key,
                                           std::uint32_t vocab) {
  std::vector<std::uint64_t> read;
  if (!reader.has(key) || reader.json()[key] == -1) return std::vector<std::int32_t>();
  if (reader.json()[key].is_array()) {
    DOPPLER_ASSIGN(const auto list, reader.get_uints(key));
    read = list.value_or(read);
  } else {
    DOPPLER_ASSIGN(const auto id, reader.get_uint(key));
    if (id) read.push_back(*id);
  }
  std::vector<std::int32_t> ids;
  for (const std::uint64_t id : read) {
    if (id >= vocab) {
      return fail(ErrorCode::kCorrupt,
                  "The value {} = {} is outside the vocabulary of {} tokens. Correct it.", reader.where(key),
                  id, vocab);
    }
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

Status read_special_ids(std::span<const ConfigReader> readers, ModelSpec& spec) {
  std::vector<std::int32_t> bos, pad;
  const std::pair<const char*, std::vector<std::int32_t>*> wanted[] = {
      {"bos_token_id", &bos}, {"eos_token_id", &spec.eos_ids}, {"pad_token_id", &pad}};
  for (const auto& [key, ids] : wanted) {
    for (const ConfigReader& reader : readers) {
      DOPPLER_ASSIGN(*ids, read_ids(reader, key, spec.vocab_size));
      if (ids->empty()) continue;
      spec.sources.push_back({key, fmt::format("{}", fmt::join(*ids, ", ")), reader.where(key)});
      break;
    }
  }
  if (!bos.empty()) spec.bos_id = bos[0];
  if (!pad.empty()) spec.pad_id = pad[0];
  return {};
}

}  // namespace doppler
