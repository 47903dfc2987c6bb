#include "diagnosis/compare/compare_states.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "diagnosis/compare/stage_comparer.h"
#include "diagnosis/compare/stage_rows.h"

namespace doppler::diagnosis {
namespace {

StageComparison compare_values(const TensorView& tensor, std::span<const float> expected,
                               std::span<const float> found) {
  StageComparison c{.key = tensor.name, .layer = layer_of(tensor.name)};
  for (const float x : expected) c.largest = std::max(c.largest, std::abs(static_cast<double>(x)));
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = distance(found[i], expected[i]);
    worst = std::max(worst, difference);
    keep_worst(c.worst, {0, i, expected[i], found[i]}, difference);
  }
  c.error = worst == 0 ? 0 : worst / c.largest;
  return c;
}

// Where every op of the layer is right by itself, its state may be as far off as they are: twice, since the
// state is made of what the recording's tokens gave, and no stage shows it.
double tolerance_of(const std::vector<StageComparison>& stages, int layer, double tolerance) {
  double worst = 0;
  for (const StageComparison& c : stages) {
    if (c.layer != layer || is_recorded_state(c.key)) continue;
    if (!c.explained) return tolerance;
    worst = std::max(worst, c.error);
  }
  return std::max(tolerance, 2 * worst);
}

// Execution order of layers; the state of one stands behind all its stages.
void insert(std::vector<StageComparison>& stages, StageComparison c) {
  const auto after = std::find_if(stages.rbegin(), stages.rend(), [&](const StageComparison& other) {
    return other.layer >= 0 && other.layer <= c.layer;
  });
  stages.insert(after.base(), std::move(c));
}

}  // namespace

bool is_recorded_state(std::string_view name) {
  return layer_of(name) >= 0 && (name.ends_with(".state") || name.ends_with(".conv_state"));
}

Result<std::vector<float>> read_state(Backend& backend, std::uint32_t slot, std::size_t layer,
                                      CachePart part) {
  std::vector<float> values;
  CacheAccess* const cache = backend.cache();
  if (cache != nullptr && layer < backend.plan().kv_layers.size()) {
    DOPPLER_ASSIGN(const std::vector<std::byte> bytes, cache->read(slot));
    const BackendOptions& options = backend.options();
    DOPPLER_TRY(for_each_run(backend.plan().kv_layers, options.kv_type.value_or(KvType::kF32),
                             backend.length(slot), cache_extent(options), [&](const CacheRun& run) -> Status {
                               if (run.layer != layer || run.part != part) return {};
                               values.resize(run.count / sizeof(float));
                               std::memcpy(values.data(), &bytes[run.in_bytes], run.count);
                               return {};
                             }));
  }
  if (!values.empty()) return values;
  return fail(ErrorCode::kNotFound, "Layer {} keeps no state.", layer);
}

Status compare_states(Backend& backend, const Recording& recording, double tolerance,
                      std::vector<StageComparison>& stages) {
  for (const auto& [name, tensor] : recording.tensors.tensors()) {
    if (!is_recorded_state(name)) continue;
    const bool conv = name.ends_with(".conv_state");
    const auto layer = static_cast<std::size_t>(layer_of(name));
    std::vector<float> expected(element_count(tensor.shape).value_or(0));
    DOPPLER_TRY(decode_f32(tensor, 0, expected));
    const auto found = read_state(backend, 0, layer, conv ? CachePart::kConvState : CachePart::kState);
    if (!found && found.error().code != ErrorCode::kNotFound) return std::unexpected(found.error());
    if (found && found->size() != expected.size()) {
      return fail(
          ErrorCode::kMismatch,
          "The recording's {} holds {} values, but the model keeps {} there. Check that the recording "
          "belongs to this model.",
          printable(name), expected.size(), found->size());
    }
    StageComparison c = compare_values(tensor, expected, found ? std::span(*found) : std::span(expected));
    c.tolerance = tolerance_of(stages, c.layer, tolerance);
    if (found) {
      c.stage = conv ? Stage::kConvState : Stage::kState;
      c.tokens = recording.prompt_ids.size();
      c.worst_token = c.tokens - 1;
      if (!(c.error <= c.tolerance)) c.first_bad_token = c.worst_token;
    } else {
      c.error = std::numeric_limits<double>::infinity();
    }
    insert(stages, std::move(c));
  }
  return {};
}

}  // namespace doppler::diagnosis
