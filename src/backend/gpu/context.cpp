#include "backend/gpu/context.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/stopwatch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cache_extent.h"
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
  DOPPLER_TRY(allocate_pages());
  const CacheExtent extent = cache_extent(options);
  for (const KvLayer& layer : plan.kv_layers) {
    const auto rows = extent.rows(layer);
    const auto bytes = (Checked(rows.value_or(UINT64_MAX)) * Checked(layer.kv_heads) *
                        Checked(kv_row_bytes(*options.kv_type, layer.head_dim)))
                           .get();
    if (!bytes || *bytes > device->limits().binding_bytes) {
      return fail(
          ErrorCode::kLimit,
          "The KV cache of a layer with {} positions in {} slots needs {}, but the GPU {} binds at most {}. "
          "Lower the context.",
          kv_capacity(layer, extent.context, extent.reach), options.slots,
          bytes ? human_bytes(*bytes) : "more than 2^64 bytes", device->adapter().name,
          human_bytes(device->limits().binding_bytes));
    }
    const bool paged = is_paged(layer, options.slots);
    const std::uint64_t capacity = kv_capacity(layer, extent.context, extent.reach);
    KvBuffers buffers{.capacity = paged ? kPagePositions : static_cast<std::uint32_t>(capacity),
                      .paged = paged,
                      .keys = {},
                      .values = {},
                      .conv_state = {},
                      .state = {}};
    if (layer.kv_heads > 0) {
      DOPPLER_ASSIGN(buffers.keys, device->make_buffer("keys", *bytes));
    }
    if (layer.kv_heads > 0 && layer.has_values) {
      DOPPLER_ASSIGN(buffers.values, device->make_buffer("values", *bytes));
    }
    DOPPLER_TRY(allocate_states(layer, buffers));
    kv.push_back(std::move(buffers));
  }
  for (const RopeTable& table : plan.rope_tables) {
    DOPPLER_ASSIGN(Buffer buffer, upload_floats(*device, "angles", angle_table(table, high_rows())));
    angles.push_back(std::move(buffer));
  }
  return {};
}

// The pool of pages, its size where nobody chose one, and the buffer `step`, which has their table.
Status Context::allocate_pages() {
  std::uint64_t most = UINT64_MAX;  // pages that every layer's buffer has room for
  for (const KvLayer& layer : plan.kv_layers) {
    if (!is_paged(layer, options.slots)) continue;
    const auto page_bytes = (Checked(kPagePositions) * Checked(layer.kv_heads) *
                             Checked(kv_row_bytes(*options.kv_type, layer.head_dim)))
                                .get();
    most = std::min(most, page_bytes ? device->limits().binding_bytes / *page_bytes : 0);
  }
  const auto all = (Checked(pages_for(options.context)) * Checked(options.slots)).value_or(UINT64_MAX);
  const bool paged = most != UINT64_MAX;
  if (paged && options.cache_positions == 0 && all > most && most >= pages_for(options.context)) {
    options.cache_positions = most * kPagePositions;
    has_fewer_positions = true;
  }
  std::uint32_t count = 0;
  if (paged) {
    DOPPLER_ASSIGN(count, cache_extent(options).pages());
    layout.table_rows = options.slots;
    layout.page_row = static_cast<std::uint32_t>(pages_for(options.context));
    if (layout.bytes() > device->limits().binding_bytes) {
      return fail(
          ErrorCode::kLimit,
          "The numbers of the pages of {} sequences need {}, but the GPU {} binds at most {}. Lower the "
          "context.",
          options.slots, human_bytes(layout.bytes()), device->adapter().name,
          human_bytes(device->limits().binding_bytes));
    }
    pages = PageTable(count, options.slots, options.context);
    options.cache_positions = std::uint64_t{count} * kPagePositions;
  } else {
    options.cache_positions = options.context * options.slots;
  }
  // Kernels are measured before any sequence has pages: with others, as they have them then.
  DOPPLER_ASSIGN(step, device->make_filled("step", layout.bytes(), [&](std::span<std::byte> words) {
    for (std::size_t i = 0; paged && i + layout.alone_row() < words.size() / 4; ++i) {
      const std::uint32_t page = static_cast<std::uint32_t>(i % count);
      std::memcpy(&words[(i + layout.alone_row()) * 4], &page, 4);
    }
  }));
  return {};
}

Status Context::reserve(std::uint32_t slot, std::uint64_t held, std::uint64_t length) {
  DOPPLER_ASSIGN(const std::optional<PageCopy> copy, pages.reserve(slot, held, length));
  if (copy) DOPPLER_TRY(copy_page(*copy));
  if (!pages.take_changed(slot)) return {};
  DOPPLER_TRY(write_pages(slot, layout.page_table() + std::uint64_t{slot} * layout.page_row));
  return slot == alone ? write_pages(slot, layout.alone_row()) : Status{};
}

Status Context::set_alone(std::uint32_t slot) {
  if (pages.empty() || slot == alone) return {};
  alone = slot;
  return write_pages(slot, layout.alone_row());
}

Status Context::write_pages(std::uint32_t slot, std::uint64_t word) const {
  return device->write(step, word * 4, std::as_bytes(pages.row(slot).first(pages.count(slot))));
}

Result<std::uint32_t> Context::reserve_some(std::uint32_t slot, std::uint64_t held, std::uint32_t most) {
  for (std::uint64_t count = most; count > 0;) {
    const Status reserved = reserve(slot, held, held + count);
    if (reserved) return static_cast<std::uint32_t>(count);
    if (reserved.error().code != ErrorCode::kLimit) return std::unexpected(reserved.error());
    // Up to the end of a page, and page by page fewer.
    const std::uint64_t end = held + count, less = (end - 1) / kPagePositions * kPagePositions;
    count = less > held ? less - held : 0;
  }
  return 0;
}

// A buffer cannot be copied to itself, so the page goes through one of its own.
Status Context::copy_page(const PageCopy& copy) {
  std::uint64_t largest = 0;
  const auto page_bytes = [&](std::size_t layer) {
    const KvLayer& l = plan.kv_layers[layer];
    return kPagePositions * l.kv_heads * kv_row_bytes(*options.kv_type, l.head_dim);
  };
  for (std::size_t i = 0; i < kv.size(); ++i)
    largest = std::max<std::uint64_t>(largest, kv[i].paged ? page_bytes(i) : 0);
  DOPPLER_ASSIGN(const Buffer between, device->make_buffer("a page's copy", largest));
  Recorder recorder(*device);
  for (std::size_t i = 0; i < kv.size(); ++i) {
    const std::uint64_t bytes = page_bytes(i);
    for (const Buffer* buffer : {&kv[i].keys, &kv[i].values}) {
      if (!kv[i].paged || !*buffer) continue;
      recorder.copy(*buffer, copy.from * bytes, between, 0, bytes);
      recorder.copy(between, 0, *buffer, copy.to * bytes, bytes);
    }
  }
  DOPPLER_TRY(recorder.submit());
  return {};
}

Status Context::allocate_states(const KvLayer& layer, KvBuffers& buffers) const {
  const std::pair<std::uint64_t, Buffer*> states[] = {{layer.conv_values(), &buffers.conv_state},
                                                      {layer.state, &buffers.state}};
  for (const auto& [values, buffer] : states) {
    if (values == 0) continue;
    const auto bytes = (Checked(values) * Checked(sizeof(float)) * Checked(options.slots)).get();
    if (!bytes || *bytes > device->limits().binding_bytes) {
      return fail(
          ErrorCode::kLimit,
          "The state of a recurrent layer in {} slots needs {}, but the GPU {} binds at most {}. Use fewer "
          "slots.",
          options.slots, bytes ? human_bytes(*bytes) : "more than 2^64 bytes", device->adapter().name,
          human_bytes(device->limits().binding_bytes));
    }
    DOPPLER_ASSIGN(*buffer, device->make_buffer("state", *bytes));
  }
  return {};
}

std::uint64_t Context::cache_bytes() const {
  std::uint64_t bytes = 0;
  for (const KvBuffers& layer : kv) {
    bytes += layer.keys.bytes() + layer.values.bytes() + layer.conv_state.bytes() + layer.state.bytes();
  }
  return bytes;
}

std::uint64_t Context::weight_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [ids, matrix] : matrices) bytes += matrix.bytes;
  for (const auto& [key, buffer] : norms) bytes += buffer.bytes();
  for (const auto& [key, buffer] : biases) bytes += buffer.bytes();
  for (const auto& [key, buffer] : by_head) bytes += buffer.bytes();
  return bytes;
}

std::vector<WeightId> weights_of_logits(const Plan& plan) {
  ValueId made = plan.logits;
  for (auto op = plan.ops.rbegin(); op != plan.ops.rend(); ++op) {
    if (std::ranges::count(op->outputs, made) == 0) continue;
    if (op->kind == OpKind::kMatmul) return op->weights;
    made = op->inputs[0];
  }
  return {};
}

WeightFormat Context::format_of(WeightId id) const {
  const DType type = weights[id].dtype;
  return std::ranges::count(heads, id) != 0 ? head_format_of(type) : gpu::format_of(type);
}

Result<const GpuMatrix*> Context::matrix(std::span<const WeightId> ids) {
  std::vector<WeightId> key(ids.begin(), ids.end());
  const auto found = matrices.find(key);
  if (found != matrices.end()) return &found->second;
  std::vector<const TensorView*> tensors;
  for (const WeightId id : ids) tensors.push_back(&weights[id]);
  const Stopwatch uploading(device->loading.weights);
  DOPPLER_ASSIGN(GpuMatrix made,
                 upload_matrix(*device, pool, tensors, most_binding_bytes, format_of(ids.front())));
  return &matrices.emplace(std::move(key), std::move(made)).first->second;
}

Result<std::vector<PlacedMatrix>> Context::place(const Op& op) {
  std::vector<PlacedMatrix> placed;
  std::uint32_t row = 0;
  for (std::size_t begin = 0; begin < op.weights.size();) {
    std::size_t end = begin + 1;
    const WeightFormat format = format_of(op.weights[begin]);
    while (end < op.weights.size() && format_of(op.weights[end]) == format) ++end;
    PlacedMatrix part;
    part.first_row = row;
    DOPPLER_ASSIGN(part.matrix, matrix(std::span(op.weights).subspan(begin, end - begin)));
    DOPPLER_ASSIGN(part.bias, bias(op, begin, end));
    row += part.matrix->rows;
    placed.push_back(std::move(part));
    begin = end;
  }
  return placed;
}

Result<Buffer> Context::bias(const Op& op, std::size_t begin, std::size_t end) {
  if (op.biases.empty()) return Buffer();
  const std::vector<WeightId> key(op.biases.begin() + static_cast<std::ptrdiff_t>(begin),
                                  op.biases.begin() + static_cast<std::ptrdiff_t>(end));
  if (std::ranges::count(key, kNoWeight) == std::ssize(key)) return Buffer();
  if (const auto found = biases.find(key); found != biases.end()) return found->second;
  std::vector<float> values;  // zero where a weight has none
  for (std::size_t i = begin; i < end; ++i) {
    const std::size_t first = values.size();
    const TensorView& weight = weights[op.weights[i]];
    values.resize(first + (weight.shape.size() == 1 ? weight.cols() : weight.rows()));
    if (op.biases[i] != kNoWeight)
      DOPPLER_TRY(decode_f32(weights[op.biases[i]], 0, std::span(values).subspan(first)));
  }
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "bias", values));
  return biases.emplace(key, std::move(made)).first->second;
}

Result<Buffer> Context::vectors(WeightId first, std::size_t count) {
  std::vector<WeightId> key;
  for (std::size_t i = 0; i < count; ++i) key.push_back(first + static_cast<WeightId>(i));
  if (const auto found = biases.find(key); found != biases.end()) return found->second;
  std::vector<float> values;
  for (const WeightId id : key) {
    const std::size_t begin = values.size();
    values.resize(begin + weights[id].cols());
    DOPPLER_TRY(decode_f32(weights[id], 0, std::span(values).subspan(begin)));
  }
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "vectors", values));
  return biases.emplace(std::move(key), std::move(made)).first->second;
}

// Of a norm without weights, which no fused kernel takes.
Result<Buffer> Context::plain_norm_weights(const Op& op) {
  const Value& v = plan.values[op.outputs[0]];
  const double factor = std::get<NormParams>(op.params).factor;
  const std::vector<float> values(v.width / v.heads, static_cast<float>(factor));
  const std::vector<std::pair<WeightId, double>> key = {{kNoWeight, factor}, {v.width / v.heads, 0}};
  if (const auto found = norms.find(key); found != norms.end()) return found->second;
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "norms", values));
  return norms.emplace(key, std::move(made)).first->second;
}

Result<Buffer> Context::vector(WeightId id, VectorForm form) {
  if (const auto found = forms.find({id, form}); found != forms.end()) return found->second;
  const TensorView& weight = weights[id];
  std::vector<float> values(element_count(weight.shape).value_or(0));
  DOPPLER_TRY(decode_f32(weight, 0, values));
  if (form == VectorForm::kRates) {
    for (float& value : values) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
  if (form == VectorForm::kByTap) {
    const std::vector<float> by_channel = values;
    const std::size_t taps = weight.cols(), channels = values.size() / taps;
    for (std::size_t i = 0; i < values.size(); ++i) values[i % taps * channels + i / taps] = by_channel[i];
  }
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "vector", values));
  return forms.emplace(std::pair(id, form), std::move(made)).first->second;
}

Result<Buffer> Context::norm_weights(const Op& first, const Op* second) {
  std::vector<std::pair<WeightId, double>> key;
  for (const Op* op : {&first, second}) {
    if (op == nullptr) continue;
    if (op->weights.empty()) return plain_norm_weights(*op);
    key.emplace_back(op->weights[0], std::get<NormParams>(op->params).weight_offset);
  }
  if (const auto found = norms.find(key); found != norms.end()) return found->second;
  std::vector<float> values;
  for (const auto& [weight, offset] : key) {
    const std::size_t begin = values.size();
    if (weight == kNoWeight) {
      values.resize(begin + static_cast<std::size_t>(offset), 1.0f);
      continue;
    }
    values.resize(begin + weights[weight].cols());
    DOPPLER_TRY(decode_f32(weights[weight], 0, std::span(values).subspan(begin)));
    for (float& value : std::span(values).subspan(begin)) value = static_cast<float>(value + offset);
  }
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "norms", values));
  return norms.emplace(std::move(key), std::move(made)).first->second;
}

Result<Buffer> Context::head_matrices(const Op& op) {
  const auto& p = std::get<HeadMatmulParams>(op.params);
  const std::tuple key(op.weights[0], p.begin, p.transposed);
  if (const auto found = by_head.find(key); found != by_head.end()) return found->second;
  const TensorView& weight = weights[op.weights[0]];
  const std::size_t cols = weight.cols(), each = p.rows * cols;
  std::vector<float> values(p.heads * each), matrix(each);
  for (std::size_t h = 0; h < p.heads; ++h) {
    DOPPLER_TRY(decode_f32(weight, (h * p.stride + p.begin) * cols, matrix));
    for (std::size_t r = 0; r < p.rows; ++r) {
      for (std::size_t c = 0; c < cols; ++c)
        values[h * each + (p.transposed ? r * cols + c : c * p.rows + r)] = matrix[r * cols + c];
    }
  }
  if (values.size() * sizeof(float) > device->limits().binding_bytes) {
    return fail(ErrorCode::kLimit, "The tensor {} needs {} as floats, but the GPU {} binds at most {}.",
                weight.name, human_bytes(values.size() * sizeof(float)), device->adapter().name,
                human_bytes(device->limits().binding_bytes));
  }
  DOPPLER_ASSIGN(Buffer made, upload_floats(*device, "head matrices", values));
  return by_head.emplace(key, std::move(made)).first->second;
}

}  // namespace doppler::gpu
