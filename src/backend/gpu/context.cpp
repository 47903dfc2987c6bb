#include "backend/gpu/context.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/text.h"

namespace doppler::gpu {
namespace {

// Cosines and sines of multiples of 256 positions, times the table's magnitude, then of 0 to 255.
std::vector<float> angle_table(const RopeTable& table, std::uint32_t high_rows) {
  std::vector<float> values;
  values.reserve((high_rows + 256) * table.inverse_frequency.size() * 2);
  for (std::uint32_t row = 0; row < high_rows + 256; ++row) {
    const bool high = row < high_rows;
    const double position = high ? 256.0 * row : row - high_rows;
    const double magnitude = high ? table.magnitude : 1;
    for (const double frequency : table.inverse_frequency) {
      values.push_back(static_cast<float>(magnitude * std::cos(position * frequency)));
      values.push_back(static_cast<float>(magnitude * std::sin(position * frequency)));
    }
  }
  return values;
}

Result<Buffer> upload_floats(Device& device, std::string_view label, std::span<const float> values) {
  return device.make_filled(label, values.size_bytes(), [&](std::span<std::byte> out) {
    std::memcpy(out.data(), values.data(), values.size_bytes());
  });
}

// As KvCache does: a step's tokens are all appended before any of them attends.
std::uint64_t capacity_of(const KvLayer& layer, const BackendOptions& options) {
  if (layer.window == 0) return options.context;
  return std::min<std::uint64_t>(options.context, std::uint64_t{layer.window} + options.max_step_tokens - 1);
}

}  // namespace

std::int64_t float_bits(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}

Status Context::allocate() {
  for (const Op& op : plan.ops) {
    // embed.wgsl stores whole vec4s.
    if (op.kind != OpKind::kEmbed || plan.values[op.outputs[0]].width % 4 == 0) continue;
    return fail(ErrorCode::kUnsupported,
                "The gpu backend needs a hidden size that is a multiple of 4, but this model has {}. Use "
                "--backend cpu.",
                plan.values[op.outputs[0]].width);
  }
  DOPPLER_ASSIGN(step, device->make_filled("step", layout.bytes(), [](std::span<std::byte>) {}));
  for (const KvLayer& layer : plan.kv_layers) {
    const std::uint64_t capacity = capacity_of(layer, options);
    const auto bytes = (Checked(capacity) * Checked(layer.kv_heads) * Checked(options.slots) *
                        Checked(kv_row_bytes(*options.kv_type, layer.head_dim)))
                           .get();
    if (!bytes || *bytes > device->limits().binding_bytes) {
      return fail(
          ErrorCode::kLimit,
          "The KV cache of a layer with {} positions in {} slots needs {}, but the GPU {} binds at most {}. "
          "Lower the context.",
          capacity, options.slots, bytes ? human_bytes(*bytes) : "more than 2^64 bytes",
          device->adapter().name, human_bytes(device->limits().binding_bytes));
    }
    KvBuffers buffers{.capacity = static_cast<std::uint32_t>(capacity), .keys = {}, .values = {}};
    DOPPLER_ASSIGN(buffers.keys, device->make_buffer("keys", *bytes));
    DOPPLER_ASSIGN(buffers.values, device->make_buffer("values", *bytes));
    kv.push_back(std::move(buffers));
  }
  for (const RopeTable& table : plan.rope_tables) {
    DOPPLER_ASSIGN(Buffer buffer, upload_floats(*device, "angles", angle_table(table, high_rows())));
    angles.push_back(std::move(buffer));
  }
  return {};
}

Result<const GpuMatrix*> Context::matrix(std::span<const WeightId> ids) {
  std::vector<WeightId> key(ids.begin(), ids.end());
  const auto found = matrices.find(key);
  if (found != matrices.end()) return &found->second;
  std::vector<const TensorView*> tensors;
  for (const WeightId id : ids) tensors.push_back(&weights[id]);
  DOPPLER_ASSIGN(GpuMatrix made, upload_matrix(*device, pool, tensors, most_binding_bytes));
  return &matrices.emplace(std::move(key), std::move(made)).first->second;
}

Result<std::vector<PlacedMatrix>> Context::place(const Op& op) {
  std::vector<PlacedMatrix> placed;
  std::uint32_t row = 0;
  for (std::size_t begin = 0; begin < op.weights.size();) {
    std::size_t end = begin + 1;
    const WeightFormat format = format_of(weights[op.weights[begin]].dtype);
    while (end < op.weights.size() && format_of(weights[op.weights[end]].dtype) == format) ++end;
    PlacedMatrix part;
    part.first_row = row;
    DOPPLER_ASSIGN(part.matrix, matrix(std::span(op.weights).subspan(begin, end - begin)));
    std::vector<float> bias(part.matrix->rows, 0.0f);
    bool any = false;
    std::size_t at = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t rows = weights[op.weights[i]].rows();
      if (!op.biases.empty() && op.biases[i] != kNoWeight) {
        any = true;
        DOPPLER_TRY(decode_f32(weights[op.biases[i]], 0, std::span(bias).subspan(at, rows)));
      }
      at += rows;
    }
    if (any) {
      DOPPLER_ASSIGN(part.bias, upload_floats(*device, "bias", bias));
    }
    row += part.matrix->rows;
    placed.push_back(std::move(part));
    begin = end;
  }
  return placed;
}

Result<Buffer> Context::norm_pair(WeightId first, WeightId second, double offset) {
  std::vector<float> values(weights[first].cols());
  DOPPLER_TRY(decode_f32(weights[first], 0, values));
  if (second != kNoWeight) {
    const std::size_t begin = values.size();
    values.resize(begin + weights[second].cols());
    DOPPLER_TRY(decode_f32(weights[second], 0, std::span(values).subspan(begin)));
  }
  for (float& value : values) value = static_cast<float>(value + offset);
  return upload_floats(*device, "norms", values);
}

Result<Buffer> Context::norm_weight(WeightId id, double offset) {
  const auto found = vectors.find({id, offset});
  if (found != vectors.end()) return found->second;
  std::vector<float> values(weights[id].cols());
  DOPPLER_TRY(decode_f32(weights[id], 0, values));
  for (float& value : values) value = static_cast<float>(value + offset);
  DOPPLER_ASSIGN(Buffer buffer, upload_floats(*device, "norm", values));
  vectors.emplace(std::pair(id, offset), buffer);
  return buffer;
}

}  // namespace doppler::gpu
