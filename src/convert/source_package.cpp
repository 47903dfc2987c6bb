// Any model as the source of an RDRR package: tensors under their own names, as they lie in the model's
// files.
#include <algorithm>
#include <map>

#include "base/json.h"
#include "convert/source.h"
#include "model/weights.h"

namespace doppler::convert {
namespace {

constexpr std::string_view kNotUsed = "nothing is computed with it as it lies in the file";

// GGUF's names of the weights that are read from the file where they lie, by the place of their first byte.
using Places = std::map<const std::byte*, std::string>;

void add_place(const Weights& weights, WeightRole role, int layer, Places& places) {
  const WeightId first = weights.find(role, layer);
  if (first == kNoWeight) return;
  const std::string name = weight_name({.style = NameStyle::kGguf}, role, layer);
  for (WeightId id = first; id < first + weights.count(first); ++id)
    if (!name.empty()) places.emplace(weights[id].data.data(), name);
}

Places find_places(const Model& model) {
  Places places;
  for (int role = 0; role < static_cast<int>(WeightRole::kCount); ++role) {
    const auto weight = static_cast<WeightRole>(role);
    if (!weight_info(weight).per_layer()) add_place(model.weights, weight, -1, places);
    for (int layer = 0; weight_info(weight).per_layer() && layer < static_cast<int>(model.spec.layers.size());
         ++layer)
      add_place(model.weights, weight, layer, places);
  }
  return places;
}

SourceTensor source_tensor(const TensorView& tensor, const Places& places) {
  SourceTensor out{.name = tensor.name, .shape = tensor.shape, .parts = {tensor}};
  const std::byte* const begin = tensor.data.data();
  const auto place = places.lower_bound(begin);
  if (place != places.end() && place->first < begin + tensor.data.size())
    out.chosen_as = place->second;
  else
    out.keep_type = kNotUsed;
  return out;
}

}  // namespace

Result<ConversionSource> open_package_source(const std::filesystem::path& model) {
  DOPPLER_ASSIGN(ModelFiles files, open_model_files(model));
  if (files.gguf) return open_gguf_source(std::move(files), {});
  // Binding may change a copy of the store: what it changed lies elsewhere then.
  DOPPLER_ASSIGN(Model bound, bind_model(files));
  const Places places = find_places(bound);
  ConversionSource out;
  for (const auto& [name, tensor] : files.tensors.tensors())
    out.tensors.push_back(source_tensor(tensor, places));
  out.architecture = bound.spec.family;
  out.spec = std::move(bound.spec);
  out.files = std::move(files);
  return out;
}

}  // namespace doppler::convert
