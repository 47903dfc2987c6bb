#include "convert/metadata.h"

namespace doppler::convert {
namespace {

struct Adder {
  GgufWriter& writer;
  const std::string& key;

  Status operator()(const std::string& text) const { return writer.add<std::string_view>(key, text); }
  Status operator()(std::uint32_t value) const { return writer.add<std::uint32_t>(key, value); }
  Status operator()(float value) const { return writer.add<float>(key, value); }
  Status operator()(bool value) const { return writer.add<bool>(key, value); }
  Status operator()(const std::vector<std::string>& texts) const { return writer.add_strings(key, texts); }
  Status operator()(const std::vector<bool>& values) const { return writer.add_bools(key, values); }
  template <typename T>
  Status operator()(const std::vector<T>& values) const {
    return writer.add_array<T>(key, values);
  }
};

}  // namespace

Status add_entry(GgufWriter& writer, const MetadataEntry& entry) {
  return std::visit(Adder{writer, entry.key}, entry.value);
}

}  // namespace doppler::convert
