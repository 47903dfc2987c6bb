// Recorder: a list of dispatches and copies that becomes one submission. It checks what the library would
// abort on (sizes, alignment, limits); the first mistake is kept and returned by submit().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"

namespace doppler::gpu {

struct Workgroups {
  std::uint32_t x = 1, y = 1, z = 1;
};

// A kernel with its buffers and a number of workgroups that does not change.
struct FixedDispatch {
  BoundKernel kernel;
  Workgroups groups;
  // If not 0: in x only one workgroup for each so many of a sequence's positions, the last of them begun, has
  // work.
  std::uint32_t positions_each = 0;
};

class Recorder {
 public:
  explicit Recorder(Device& device);
  // Also lists every dispatch in `list`: to see what a program runs, without submitting it.
  Recorder(Device& device, std::vector<FixedDispatch>& list);

  // The next dispatch begins a pass, which writes when it begins and ends to queries `first` and `first` + 1
  // of `set`.
  void time_pass(const QuerySetHandle& set, std::uint32_t first);
  // Writes the first `count` of them to `to`, as numbers of 64 bits.
  void resolve_times(const QuerySetHandle& set, std::uint32_t count, const Buffer& to);

  // Nothing is recorded if one of the counts is 0.
  void dispatch(const BoundKernel& kernel, Workgroups groups);
  void dispatch(const FixedDispatch& fixed) { dispatch(fixed.kernel, fixed.groups); }
  // Offsets and sizes are multiples of 4.
  void copy(const Buffer& from, std::uint64_t from_offset, const Buffer& to, std::uint64_t to_offset,
            std::uint64_t bytes);

  // Checks and completes what was recorded, which takes longer than handing it over; submit() does it if it
  // has not been done.
  Status finish();
  // Hands the work to the device; the number is for Device::wait and read. The recorder is spent.
  Result<std::uint64_t> submit();

  std::uint32_t dispatches() const { return dispatches_; }

 private:
  bool can_record();
  void begin_pass();
  void end_pass();
  void mistake(Error error);
  Device& device_;
  EncoderHandle encoder_;
  CommandsHandle commands_;
  PassHandle pass_;
  QuerySetHandle timed_;  // of the next pass
  std::uint32_t first_query_ = 0;
  const Kernel* last_ = nullptr;
  std::uint32_t dispatches_ = 0;
  std::optional<Error> mistake_;
  bool spent_ = false;
  std::vector<FixedDispatch>* list_ = nullptr;
};

}  // namespace doppler::gpu
