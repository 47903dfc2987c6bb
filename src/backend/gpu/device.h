// Device: one GPU, opened for computing. Owns the queue, makes buffers, moves bytes, and turns everything
// that WebGPU reports (broken shaders, memory that is not there, a lost device) into Errors.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/adapter.h"
#include "backend/gpu/handle.h"
#include "backend/options.h"
#include "base/result.h"
#include "system/threads.h"

namespace doppler::gpu {

// Every adapter that the machine offers, best first: discrete, integrated, others, software.
std::vector<AdapterInfo> list_adapters();

// A number of bytes that counts in a total for as long as this object lives.
class CountedBytes {
 public:
  CountedBytes(std::shared_ptr<std::atomic<std::uint64_t>> sum, std::uint64_t bytes)
      : sum_(std::move(sum)), bytes_(bytes) {
    *sum_ += bytes_;
  }
  ~CountedBytes() { *sum_ -= bytes_; }
  CountedBytes(const CountedBytes&) = delete;
  CountedBytes& operator=(const CountedBytes&) = delete;

 private:
  std::shared_ptr<std::atomic<std::uint64_t>> sum_;
  std::uint64_t bytes_;
};

// A buffer on the device; copies share it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(BufferHandle handle, std::uint64_t bytes, std::shared_ptr<const CountedBytes> counted)
      : handle_(std::move(handle)), bytes_(bytes), counted_(std::move(counted)) {}
  std::uint64_t bytes() const { return bytes_; }
  WGPUBuffer raw() const { return handle_.get(); }
  explicit operator bool() const { return static_cast<bool>(handle_); }

 private:
  BufferHandle handle_;
  std::uint64_t bytes_ = 0;
  std::shared_ptr<const CountedBytes> counted_;
};

class Device {
 public:
  // Errors: kNotFound without a suitable adapter, listing what there is and what to do.
  static Result<std::shared_ptr<Device>> open(const GpuOptions& options, const GpuSetup& setup = {});
  ~Device();

  const AdapterInfo& adapter() const { return adapter_info_; }
  const Features& features() const { return features_; }
  const Limits& limits() const { return limits_; }
  const GpuOptions& options() const { return options_; }
  const GpuSetup& setup() const { return setup_; }

  // A buffer that kernels read and write, of at least 16 bytes, rounded up to a multiple of 16. Its content
  // is zero (poison mode: NaN). Errors: kLimit, with what to do, when the device has no room.
  Result<Buffer> make_buffer(std::string_view label, std::uint64_t bytes);
  // The same with its content written by `fill`, straight into memory that the device reads from.
  Result<Buffer> make_filled(std::string_view label, std::uint64_t bytes,
                             const std::function<void(std::span<std::byte>)>& fill);
  // A large one, in order, in one or more pieces: `grain` bytes many times, but for the last. `fill` writes
  // all of a piece, best from front to back and each byte once: it may lie on the far side of a bus.
  using FillPiece = std::function<Status(std::uint64_t offset, std::span<std::byte> piece)>;
  Result<Buffer> make_in_pieces(std::string_view label, std::uint64_t bytes, std::uint64_t grain,
                                const FillPiece& fill);
  // Gives back the memory that pieces went through.
  void release_staging() { staging_ = {}; }
  // Memory that copies go to and the host reads.
  Result<Buffer> make_read_back(std::string_view label, std::uint64_t bytes);
  // The same, of those that are done with where there is one; all of `spare` have this size.
  Result<Buffer> take_read_back(std::vector<Buffer>& spare, std::string_view label, std::uint64_t bytes);
  // Memory that queries' results go to, to be copied from there.
  Result<Buffer> make_query_results(std::string_view label, std::uint64_t bytes);

  // Queues a write; it happens before later submissions. Offset and size are multiples of 4.
  Status write(const Buffer& buffer, std::uint64_t offset, std::span<const std::byte> bytes);

  // Waits for a submission, then for a read-back buffer that it filled, and calls `read` with its bytes.
  Status read(const Buffer& read_back, std::uint64_t bytes, std::uint64_t submission,
              const std::function<void(std::span<const std::byte>)>& read);
  // Copies a work buffer to the host: slow, for tests and checks.
  Result<std::vector<std::byte>> download(const Buffer& buffer);
  Status wait(std::uint64_t submission);

  // The error that WebGPU has reported since the last call, or that the device is lost.
  Status check();

  WGPUDevice raw() const { return device_.get(); }
  WGPUQueue queue() const { return queue_.get(); }
  // Bytes of all buffers that this Device has made and that still live.
  std::uint64_t allocated_bytes() const { return *allocated_bytes_; }

  struct Counters {
    std::uint64_t submits = 0, dispatches = 0, read_backs = 0, read_back_bytes = 0, written_bytes = 0;
  };
  Counters counters;
  // Where the seconds of loading go, by what is waited for.
  struct LoadSeconds {
    double weights = 0, compiling = 0, checking = 0, tuning = 0;
  };
  LoadSeconds loading;

 private:
  Device() = default;
  Status open_adapter();
  Status probe();
  Status keep_host_memory();
  Result<Buffer> create(std::string_view label, std::uint64_t bytes, WGPUBufferUsage usage, bool mapped);
  Result<Buffer> write_in_pieces(std::string_view label, std::uint64_t bytes, std::uint64_t grain,
                                 const FillPiece& fill);
  Status send_filled(std::uint64_t bytes);
  // Memory that the host fills and the device copies from.
  struct Staging {
    Buffer buffer;
    std::uint64_t copied = 0;  // the submission that did so last
  };
  // Two of them are all the memory that uploading takes, taken once: a driver hands it out at some 2 GB/s.
  static constexpr std::uint64_t kStagingBytes = 16 << 20;
  Status stage(Staging& staging, const Buffer& buffer, std::uint64_t at, std::uint64_t size,
               const FillPiece& fill);
  // Waits for a submission, then until the host may reach the buffer.
  Status map(const Buffer& buffer, WGPUMapMode mode, std::uint64_t bytes, std::uint64_t submission);
  std::unexpected<Error> no_memory(std::string_view label, std::uint64_t bytes) const;
  void report(WGPUErrorType type, std::string_view message);

  static void on_error(const WGPUDevice*, WGPUErrorType, WGPUStringView, void* self, void*);
  static void on_lost(const WGPUDevice*, WGPUDeviceLostReason, WGPUStringView, void* self, void*);

  GpuOptions options_;
  GpuSetup setup_;
  AdapterInfo adapter_info_;
  Features features_;
  Limits limits_;
  AdapterHandle adapter_;
  DeviceHandle device_;
  QueueHandle queue_;
  std::vector<Buffer> kept_;  // small, for as long as the device lives
  std::array<Staging, 2> staging_;
  std::size_t next_staging_ = 0;
  std::uint64_t filled_bytes_ = 0;     // of new buffers, since they were last sent
  std::optional<std::uint64_t> sent_;  // the submission that did
  std::shared_ptr<std::atomic<std::uint64_t>> allocated_bytes_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  system::Mutex mutex_;  // the callbacks may come from the library's own threads
  std::optional<Error> error_;
  bool lost_ = false;
};

}  // namespace doppler::gpu
