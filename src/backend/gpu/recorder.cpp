#include "backend/gpu/recorder.h"

#include "backend/gpu/provider.h"

namespace doppler::gpu {

Recorder::Recorder(Device& device)
    : device_(device), encoder_(wgpuDeviceCreateCommandEncoder(device.raw(), nullptr)) {}

Recorder::Recorder(Device& device, std::vector<FixedDispatch>& list) : Recorder(device) {
  list_ = &list;
}

void Recorder::mistake(Error error) {
  if (!mistake_) mistake_ = std::move(error);
}

bool Recorder::can_record() {
  if (spent_) mistake({ErrorCode::kInternal, "A recorder goes on after it was submitted."});
  return !spent_ && !mistake_;
}

void Recorder::begin_pass() {
  WGPUPassTimestampWrites times = WGPU_PASS_TIMESTAMP_WRITES_INIT;
  times.querySet = timed_.get();
  times.beginningOfPassWriteIndex = first_query_;
  times.endOfPassWriteIndex = first_query_ + 1;
  WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
  if (timed_) descriptor.timestampWrites = &times;
  pass_ = PassHandle(wgpuCommandEncoderBeginComputePass(encoder_.get(), &descriptor));
  timed_ = {};
}

void Recorder::time_pass(const QuerySetHandle& set, std::uint32_t first) {
  if (!can_record()) return;
  end_pass();
  timed_ = set;
  first_query_ = first;
}

void Recorder::resolve_times(const QuerySetHandle& set, std::uint32_t count, const Buffer& to) {
  if (!can_record()) return;
  end_pass();
  wgpuCommandEncoderResolveQuerySet(encoder_.get(), set.get(), 0, count, to.raw(), 0);
}

void Recorder::end_pass() {
  if (!pass_) return;
  wgpuComputePassEncoderEnd(pass_.get());
  pass_ = {};
  last_ = nullptr;
}

void Recorder::dispatch(const BoundKernel& kernel, Workgroups groups) {
  if (!can_record()) return;
  if (kernel.group() == nullptr) {
    mistake({ErrorCode::kInternal, "A dispatch has no kernel."});
    return;
  }
  if (groups.x == 0 || groups.y == 0 || groups.z == 0) return;
  const std::uint32_t most = device_.limits().workgroups_per_dimension;
  if (groups.x > most || groups.y > most || groups.z > most) {
    mistake({ErrorCode::kInternal,
             fmt::format("The kernel {} is dispatched with {} x {} x {} workgroups, but {} is the most.",
                         kernel.kernel().label(), groups.x, groups.y, groups.z, most)});
    return;
  }
  if (!pass_) begin_pass();
  if (last_ != &kernel.kernel()) {
    wgpuComputePassEncoderSetPipeline(pass_.get(), kernel.kernel().pipeline());
    last_ = &kernel.kernel();
  }
  wgpuComputePassEncoderSetBindGroup(pass_.get(), 0, kernel.group(), 0, nullptr);
  wgpuComputePassEncoderDispatchWorkgroups(pass_.get(), groups.x, groups.y, groups.z);
  ++dispatches_;
  if (list_ != nullptr) list_->push_back({kernel, groups});
}

void Recorder::copy(const Buffer& from, std::uint64_t from_offset, const Buffer& to, std::uint64_t to_offset,
                    std::uint64_t bytes) {
  if (!can_record() || bytes == 0) return;
  const auto fits = [&](const Buffer& buffer, std::uint64_t offset) {
    return bytes <= buffer.bytes() && offset <= buffer.bytes() - bytes && offset % 4 == 0;
  };
  if (!fits(from, from_offset) || !fits(to, to_offset) || bytes % 4 != 0) {
    mistake({ErrorCode::kInternal, fmt::format("A copy of {} bytes from {} of {} to {} of {} does not fit.",
                                               bytes, from_offset, from.bytes(), to_offset, to.bytes())});
    return;
  }
  if (from.raw() == to.raw()) {
    mistake({ErrorCode::kInternal, fmt::format("A copy of {} bytes goes from a buffer onto itself.", bytes)});
    return;
  }
  end_pass();
  wgpuCommandEncoderCopyBufferToBuffer(encoder_.get(), from.raw(), from_offset, to.raw(), to_offset, bytes);
}

Status Recorder::finish() {
  if (commands_) return {};
  end_pass();
  if (mistake_) return std::unexpected(*mistake_);
  if (spent_) return fail(ErrorCode::kInternal, "A recorder is submitted twice.");
  spent_ = true;
  commands_ = CommandsHandle(wgpuCommandEncoderFinish(encoder_.get(), nullptr));
  // An invalid command buffer would end the process when submitted.
  return device_.check();
}

Result<std::uint64_t> Recorder::submit() {
  DOPPLER_TRY(finish());
  const std::uint64_t submission = provider::submit(device_.queue(), commands_.get());
  commands_ = {};
  ++device_.counters.submits;
  device_.counters.dispatches += dispatches_;
  return submission;
}

}  // namespace doppler::gpu
