#include "backend/gpu/tap_ring.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

#include "backend/gpu/shader_values.h"

namespace doppler::gpu {
namespace {

// Of the ring: all stages of a 1B model are about 6 MB a token.
constexpr std::uint64_t kMostRingBytes = 64 << 20;

// Buffers that one kernel gathers from; with its own three they are what every device can bind.
constexpr std::size_t kSources = 5;

// Threads of a workgroup, a float for each: a loop over more would wait for memory again and again.
constexpr std::uint32_t kChunk = 256;

// As tap_gather.wgsl reads it.
struct Chunk {
  std::uint32_t source = 0, from = 0, to = 0, count = 0;
};

}  // namespace

Result<TapRing> TapRing::create(Context& context, std::vector<Stored> stored, std::uint32_t tokens) {
  TapRing ring;
  // A stage under two names is gathered once.
  std::map<std::tuple<WGPUBuffer, std::uint32_t, std::uint32_t>, std::uint32_t> known;
  for (Stored& s : stored) {
    const auto from = static_cast<std::uint32_t>(std::min<std::size_t>(s.columns.first, s.view.width));
    const auto count =
        static_cast<std::uint32_t>(std::min<std::size_t>(s.columns.count, s.view.width - from));
    const auto [at, is_new] =
        known.try_emplace({s.view.buffer.raw(), s.view.offset + from, count}, ring.stride_);
    if (is_new) ring.stride_ += count;
    ring.places_.push_back({std::move(s), from, count, at->second});
  }
  const std::uint64_t most = std::min(kMostRingBytes, context.device->limits().binding_bytes);
  const std::uint64_t fit = most / std::max<std::uint64_t>(ring.token_bytes(), 4) / 2;
  if (fit == 0) {
    return fail(ErrorCode::kLimit,
                "What the tap looks at takes {} bytes a token, but {} is the most. Look at less at a time.",
                ring.token_bytes(), most / 2);
  }
  ring.capacity_ = 2 * static_cast<std::uint32_t>(std::min<std::uint64_t>(fit, std::max(tokens, 1u)));
  if (ring.stride_ == 0) return ring;
  DOPPLER_ASSIGN(ring.ring_, context.device->make_buffer("taps", ring.capacity_ * ring.token_bytes()));
  DOPPLER_TRY(ring.make_kernels(context));
  return ring;
}

Status TapRing::make_kernels(Context& context) {
  std::vector<Buffer> sources;
  std::vector<std::vector<Chunk>> chunks;  // by group of kSources sources
  std::uint32_t gathered = 0;
  for (const Place& place : places_) {
    if (place.first < gathered) continue;
    gathered = place.first + place.count;
    const ValueView& view = place.stored.view;
    const auto same = [&](const Buffer& source) { return source.raw() == view.buffer.raw(); };
    const auto source = static_cast<std::size_t>(std::ranges::find_if(sources, same) - sources.begin());
    if (source == sources.size()) sources.push_back(view.buffer);
    chunks.resize((sources.size() + kSources - 1) / kSources);
    for (std::uint32_t done = 0; done < place.count; done += kChunk) {
      chunks[source / kSources].push_back({static_cast<std::uint32_t>(source % kSources),
                                           view.offset + place.from + done, place.first + done,
                                           std::min(kChunk, place.count - done)});
    }
  }
  const std::uint32_t most_groups = context.device->limits().workgroups_per_dimension;
  for (std::size_t group = 0; group < chunks.size(); ++group) {
    const auto count = static_cast<std::uint32_t>(chunks[group].size());
    const std::uint32_t across = std::min(count, most_groups);
    const std::size_t first = group * kSources, bound = std::min(kSources, sources.size() - first);
    const std::span<const Chunk> list = chunks[group];
    DOPPLER_ASSIGN(const Buffer table, context.device->make_filled(
                                           "tap chunks", list.size_bytes(), [&](std::span<std::byte> out) {
                                             std::memcpy(out.data(), list.data(), list.size_bytes());
                                           }));
    const ShaderValues values = {{"THREADS", kChunk},
                                 {"SOURCES", static_cast<std::int64_t>(bound)},
                                 {"CHUNKS", count},
                                 {"ACROSS", across},
                                 {"STRIDE", stride_},
                                 {"CAPACITY", capacity_},
                                 {"COUNTED", StepLayout::kCounted}};
    constexpr std::string_view kNames[kSources] = {"source0", "source1", "source2", "source3", "source4"};
    std::vector<Bound> buffers = {{"step", context.step}, {"chunks", table}, {"ring", ring_}};
    for (std::size_t i = 0; i < bound; ++i) buffers.push_back({kNames[i], sources[first + i]});
    DOPPLER_ASSIGN(auto kernel, context.kernels.get("tap_gather.wgsl", values));
    DOPPLER_ASSIGN(BoundKernel made, BoundKernel::create(*context.device, std::move(kernel), buffers));
    gathers_.push_back({std::move(made), {across, ceil_div(count, across), 1}});
  }
  return {};
}

void TapRing::record(Recorder& recorder) const {
  for (const FixedDispatch& gather : gathers_) recorder.dispatch(gather);
}

void TapRing::record_copy(Recorder& recorder, std::uint64_t first, std::uint32_t tokens,
                          const Buffer& back) const {
  if (stride_ == 0) return;
  const std::uint64_t begin = first % capacity_;
  const std::uint64_t straight = std::min<std::uint64_t>(tokens, capacity_ - begin);
  recorder.copy(ring_, begin * token_bytes(), back, 0, straight * token_bytes());
  recorder.copy(ring_, 0, back, straight * token_bytes(), (tokens - straight) * token_bytes());
}

void TapRing::show(std::span<const std::byte> bytes, const StepInput& input, Tap& tap) const {
  const auto* floats = reinterpret_cast<const float*>(bytes.data());
  for (const Place& place : places_) {
    const Stored& s = place.stored;
    tap.on_stage({.stage = s.stage,
                  .layer = s.layer,
                  .data = std::span(floats + place.first, place.count),
                  .rows = 1,
                  .width = s.view.width,
                  .heads = s.heads,
                  .input = &input,
                  .first_column = place.from});
  }
}

}  // namespace doppler::gpu
