// Any bytes as a GGUF file: an error, or metadata whose every value and list can be walked, tensors that lie
// apart inside the bytes and can be decoded, and a spec or a reason why not.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "formats/gguf.h"
#include "model/family.h"
#include "model/gguf_rows.h"
#include "model/rope.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

template <typename T>
void check(const doppler::Result<T>& result) {
  if (!result) require(!result.error().message.empty() && result.error().message.size() < 4000);
}

void walk_list(const doppler::GgufArray& list, std::size_t size) {
  const auto strings = list.strings();
  check(strings);
  std::uint64_t total = 0;
  if (strings) {
    for (const std::string_view text : *strings)
      for (const char c : text) total += static_cast<unsigned char>(c) < 128;
  }
  require(total <= size);
  const auto ints = list.ints();
  const auto floats = list.floats();
  const auto bools = list.bools();
  check(ints), check(floats), check(bools);
  // A list has one type; an empty one, whatever its type, may also stand where integers are wanted.
  require(list.size() == 0 ||
          strings.has_value() + ints.has_value() + floats.has_value() + bools.has_value() <= 1);
  if (ints) require(ints->size() == list.size());
  if (floats) require(floats->size() == list.size());
  if (bools) require(bools->size() == list.size());
}

void walk_metadata(const doppler::GgufMetadata& metadata, std::size_t size) {
  for (const auto& entry : metadata.entries()) {
    require(metadata.find(entry.key) == &entry);
    check(metadata.get_uint(entry.key));
    check(metadata.get_int(entry.key));
    check(metadata.get_number(entry.key));
    check(metadata.get_bool(entry.key));
    check(metadata.get_string(entry.key));
    const auto list = metadata.get_array(entry.key);
    check(list);
    if (list && *list) walk_list(**list, size);
    require(!metadata.describe(entry.key).empty());
  }
}

void walk_tensors(const doppler::TensorStore& store, std::size_t size) {
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : store.tensors()) {
    require(doppler::byte_size(tensor.dtype, tensor.shape) == tensor.data.size());
    total += tensor.data.size();
    std::vector<float> values(std::min<std::uint64_t>(*doppler::element_count(tensor.shape), 512));
    check(doppler::decode_f32(tensor, 0, values));
  }
  require(total <= size);
}

void check_spec(const doppler::ModelSpec& spec) {
  require(!spec.layers.empty() && spec.hidden > 0 && spec.vocab_size > 0 && spec.context_length > 0);
  require(spec.norm.weight_offset == 0);
  for (const std::int32_t id : spec.eos_ids)
    require(id >= 0 && static_cast<std::uint32_t>(id) < spec.vocab_size);
  for (const doppler::LayerSpec& layer : spec.layers) {
    const doppler::AttentionSpec& a = layer.attention;
    require(a.kv_heads > 0 && a.heads % a.kv_heads == 0 && a.head_dim > 0 && a.head_dim % 2 == 0);
    require(a.scale > 0 && std::isfinite(a.scale) && a.softcap >= 0 && layer.ffn.width > 0);
    require((a.kind == doppler::AttentionKind::kSliding) == (a.window > 0));
  }
  for (const double f : doppler::make_rope_table(spec.layers[0].attention.rope, 64).inverse_frequency)
    require(std::isfinite(f));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto file = doppler::parse_gguf(std::as_bytes(std::span(data, size)), "The file");
  check(file);
  if (!file) return 0;
  walk_metadata(file->metadata, size);
  walk_tensors(file->tensors, size);
  require(file->tensors.align().has_value());
  const auto spec = doppler::read_gguf_spec(file->metadata, file->tensors);
  check(spec);
  if (!spec) return 0;
  check_spec(*spec);
  const doppler::GgufRule& rule = doppler::family_named(spec->family)->gguf;
  if (rule.paired_rows)
    require(doppler::restore_row_order(*spec, rule.weight_names, file->tensors).has_value());
  check(doppler::bind_weights(*spec, rule.weight_names, file->tensors));
  return 0;
}
