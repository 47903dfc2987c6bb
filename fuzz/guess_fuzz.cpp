// Any config.json beside tensors of any names and shapes is guessed to be a model that fits together, or an
// error. The input is {"config": {...}, "tensors": {"name": [rows, columns], ...}}; all values are zero.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/guess/guess.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// Of any tensor; a real one may be larger, but says no more to the guess.
constexpr std::uint64_t kMostValues = 1 << 16;

bool add(doppler::TensorStore& store, const std::string& name, const doppler::Json& dims) {
  static const std::vector<std::byte> kZeros(kMostValues * sizeof(float));
  if (!dims.is_array() || dims.size() > 3) return false;
  doppler::TensorView tensor;
  tensor.name = name;
  for (const doppler::Json& dim : dims) {
    if (!dim.is_number_unsigned()) return false;
    tensor.shape.push_back(dim.get<std::uint64_t>());
  }
  const auto count = doppler::element_count(tensor.shape);
  if (!count || *count > kMostValues) return false;
  tensor.data = std::span(kZeros).first(*count * sizeof(float));
  return store.add(std::move(tensor)).has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = doppler::parse_json({reinterpret_cast<const char*>(data), size}, "The input");
  if (!input || !input->is_object() || !input->contains("config") || !input->contains("tensors")) return 0;
  doppler::TensorStore store;
  for (const auto& [name, dims] : input->at("tensors").items())
    if (!add(store, name, dims)) return 0;
  const auto model = doppler::guess_model(input->at("config"), nullptr, store);
  if (!model) {
    require(!model.error().message.empty());
    return 0;
  }
  const doppler::ModelSpec& spec = model->spec;
  require(!spec.layers.empty() && spec.hidden > 0 && spec.vocab_size > 0 && spec.family == "guess");
  for (const doppler::LayerSpec& layer : spec.layers)
    require(layer.attention.heads % layer.attention.kv_heads == 0 && layer.ffn.width > 0);
  return 0;
}
