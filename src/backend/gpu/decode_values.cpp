#include "backend/gpu/decode_values.h"

#include <algorithm>

namespace doppler::gpu {
namespace {

// Slices of a buffer begin where bindings may, on any device: at multiples of 256 bytes, a unit of floats.
constexpr std::uint64_t kAlign = kUnitValues * sizeof(float);

}  // namespace

DecodeValues::DecodeValues(const Context& context)
    : context_(context),
      views_(context.plan.values.size()),
      slice_(context.plan.values.size()),
      padded_(context.plan.values.size()) {
  for (const Op& op : context.plan.ops) {
    for (const ValueId id : op.outputs) {
      slice_[id] = slices_[context.plan.values[id].stage]++;
      padded_[id] = op.kind == OpKind::kGated;
    }
  }
}

Status DecodeValues::place(std::span<const ValueId> ids, std::span<const ValueId> read) {
  const Value& first = context_.plan.values[ids[0]];
  std::uint32_t width = 0;
  for (const ValueId id : ids) width += context_.plan.values[id].width;
  const std::uint64_t stride = (std::uint64_t{width} * 4 + kAlign - 1) / kAlign * kAlign;
  const bool named = first.stage != Stage::kNone;
  const auto is_read = [&](const Buffer& buffer) {
    return std::ranges::any_of(
        read, [&](ValueId id) { return has(id) && views_[id]->buffer.raw() == buffer.raw(); });
  };
  Key key{first.stage, named ? 0 : ids[0], stride, 0};
  while (buffers_.contains(key) && is_read(buffers_[key])) ++std::get<3>(key);
  Buffer& buffer = buffers_[key];
  if (!buffer) {
    const std::uint64_t bytes = stride * (named ? slices_[first.stage] : 1);
    const std::string_view label = named ? stage_name(first.stage) : "value";
    if (padded_[ids[0]]) {
      DOPPLER_ASSIGN(buffer, context_.device->make_filled(label, bytes, [](std::span<std::byte>) {}));
    } else {
      DOPPLER_ASSIGN(buffer, context_.device->make_buffer(label, bytes));
    }
  }
  std::uint32_t offset = 0;
  for (const ValueId id : ids) {
    const std::uint32_t own = context_.plan.values[id].width;
    views_[id] = {.buffer = buffer,
                  .stride = 0,  // there is one row
                  .offset = offset,
                  .width = own,
                  .begin = named ? stride * slice_[ids[0]] : 0,
                  .bytes = stride};
    offset += own;
  }
  return {};
}

}  // namespace doppler::gpu
