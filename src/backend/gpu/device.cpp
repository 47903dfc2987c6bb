#include "backend/gpu/device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "backend/gpu/kernel.h"
#include "backend/gpu/provider.h"
#include "backend/gpu/recorder.h"
#include "base/text.h"

namespace doppler::gpu {
namespace {

// Buffers are whole vec4<u32>s, so that a kernel may read the last values in one load.
constexpr std::uint64_t kBufferGrain = 16;

std::string_view kind_name(WGPUAdapterType type) {
  switch (type) {
    case WGPUAdapterType_DiscreteGPU:
      return "discrete";
    case WGPUAdapterType_IntegratedGPU:
      return "integrated";
    case WGPUAdapterType_CPU:
      return "software";
    default:
      return "unknown";
  }
}

std::string_view api_name(WGPUBackendType type) {
  switch (type) {
    case WGPUBackendType_Vulkan:
      return "Vulkan";
    case WGPUBackendType_Metal:
      return "Metal";
    case WGPUBackendType_D3D12:
      return "Direct3D 12";
    case WGPUBackendType_WebGPU:
      return "WebGPU";
    default:
      return "another API";
  }
}

// "NVIDIA 580.159.04": drivers that give no name give a description that has it.
std::string driver_name(std::string_view name, std::string_view description) {
  const bool both = !name.empty() && !description.empty();
  return fmt::format("{}{}{}", name, both ? " " : "", description);
}

int rank(const AdapterInfo& info) {
  if (info.kind == "discrete") return 0;
  if (info.kind == "integrated") return 1;
  return info.software() ? 3 : 2;
}

struct Found {
  AdapterHandle handle;
  AdapterInfo info;
};

std::vector<Found> find_adapters() {
  std::vector<Found> found;
  for (const WGPUAdapter raw : provider::list_adapters()) {
    AdapterHandle handle(raw);
    WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
    if (wgpuAdapterGetInfo(raw, &info) != WGPUStatus_Success) continue;
    AdapterInfo named{.name = std::string(view_of(info.device)),
                      .driver = driver_name(view_of(info.architecture), view_of(info.description)),
                      .api = std::string(api_name(info.backendType)),
                      .kind = std::string(kind_name(info.adapterType)),
                      .vendor_id = info.vendorID,
                      .device_id = info.deviceID};
    wgpuAdapterInfoFreeMembers(info);
    found.push_back({std::move(handle), std::move(named)});
  }
  // Equals keep the system's order.
  for (std::size_t i = 1; i < found.size(); ++i) {
    for (std::size_t j = i; j > 0 && rank(found[j].info) < rank(found[j - 1].info); --j)
      std::swap(found[j], found[j - 1]);
  }
  return found;
}

Result<Found> choose(std::vector<Found> found, const GpuOptions& options, bool software) {
  std::vector<std::string> names;
  for (const Found& f : found) names.push_back(fmt::format("{} ({})", f.info.name, f.info.kind));
  std::size_t index = found.size();
  const char* const end = options.adapter.data() + options.adapter.size();
  const bool is_index =
      !options.adapter.empty() && std::from_chars(options.adapter.data(), end, index).ptr == end;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool wanted =
        options.adapter.empty()
            ? !found[i].info.software() || software
            : (is_index ? i == index : found[i].info.name.find(options.adapter) != std::string::npos);
    if (wanted) return std::move(found[i]);
  }
  if (found.empty()) {
    return fail(ErrorCode::kNotFound, "No GPU adapter is found. {}", provider::why_no_adapter());
  }
  if (!options.adapter.empty()) {
    return fail(ErrorCode::kNotFound, "No GPU adapter is called {}. There is {}.", printable(options.adapter),
                fmt::join(names, ", "));
  }
  return fail(ErrorCode::kNotFound,
              "There is no real GPU, only {}. Choose it with --gpu-adapter if that is what you want, or use "
              "--backend cpu.",
              fmt::join(names, ", "));
}

bool has_feature(WGPUAdapter adapter, WGPUFeatureName feature) {
  return wgpuAdapterHasFeature(adapter, feature) != 0;
}

// The value and whether it arrived, from a callback that the library calls before it returns.
template <typename T>
struct Answer {
  T value = nullptr;
  std::string message;
};

}  // namespace

std::vector<AdapterInfo> list_adapters() {
  std::vector<AdapterInfo> infos;
  for (Found& found : find_adapters()) infos.push_back(std::move(found.info));
  return infos;
}

Result<std::shared_ptr<Device>> Device::open(const GpuOptions& options, const GpuSetup& setup) {
  std::shared_ptr<Device> device(new Device());
  device->options_ = options;
  device->setup_ = setup;
  DOPPLER_TRY(device->open_adapter());
  DOPPLER_TRY(device->keep_host_memory());
  DOPPLER_TRY(device->probe());
  return device;
}

Device::~Device() {
  // A process that ends while a driver's threads still work takes their memory away under them.
  if (device_) provider::wait_all(device_.get());
  // Callbacks that come while the device goes must find nothing to do.
  const system::Lock lock(mutex_);
  lost_ = true;
}

void Device::on_error(const WGPUDevice*, WGPUErrorType type, WGPUStringView message, void* self, void*) {
  static_cast<Device*>(self)->report(type, view_of(message));
}

void Device::on_lost(const WGPUDevice*, WGPUDeviceLostReason reason, WGPUStringView message, void* self,
                     void*) {
  if (reason == WGPUDeviceLostReason_Destroyed) return;
  Device& device = *static_cast<Device*>(self);
  const system::Lock lock(device.mutex_);
  device.lost_ = true;
  device.error_ = Error{ErrorCode::kIo, fmt::format("The GPU {} is lost: {}. Load the model again, or use "
                                                    "--backend cpu.",
                                                    device.adapter_info_.name, view_of(message))};
}

void Device::report(WGPUErrorType type, std::string_view message) {
  const system::Lock lock(mutex_);
  if (error_) return;  // the first one tells; others follow from it
  if (type == WGPUErrorType_OutOfMemory) {
    error_ =
        Error{ErrorCode::kLimit, fmt::format("The GPU {} has no memory left. Lower the context, choose a "
                                             "smaller model, or use --backend cpu.",
                                             adapter_info_.name)};
    return;
  }
  if (type == WGPUErrorType_Internal) {  // the driver's or the browser's, not a mistake of ours
    error_ =
        Error{ErrorCode::kUnsupported, fmt::format("The GPU {} cannot do it: {} Update its driver, or use "
                                                   "--backend cpu.",
                                                   adapter_info_.name, message)};
    return;
  }
  error_ = Error{ErrorCode::kInternal, fmt::format("WebGPU reports: {}", message)};
}

Status Device::open_adapter() {
  if (const std::string wrong = provider::wrong_version(); !wrong.empty())
    return fail(ErrorCode::kUnsupported, "{} Or use --backend cpu.", wrong);
  if (provider::instance() == nullptr)
    return fail(ErrorCode::kNotFound, "WebGPU cannot be started. Use --backend cpu.");
  DOPPLER_ASSIGN(Found found, choose(find_adapters(), options_, setup_.software));
  adapter_ = std::move(found.handle);
  adapter_info_ = std::move(found.info);

  WGPULimits limits = WGPU_LIMITS_INIT;
  wgpuAdapterGetLimits(adapter_.get(), &limits);
  limits.nextInChain = nullptr;
  features_.f16 = !setup_.no_f16 && has_feature(adapter_.get(), WGPUFeatureName_ShaderF16);
  features_.subgroups = !setup_.no_subgroups && has_feature(adapter_.get(), provider::subgroup_feature());
  const WGPUFeatureName tiles = provider::tiles_feature();
  if (setup_.plain_tiles && features_.f16) {
    features_.tiles = Tiles::kPlain;
  } else if (tiles != WGPUFeatureName{} && features_.f16 && features_.subgroups && !setup_.no_tiles &&
             has_feature(adapter_.get(), tiles)) {
    features_.tiles = Tiles::kDevice;
  }
  std::vector<WGPUFeatureName> wanted;
  features_.timestamps = has_feature(adapter_.get(), WGPUFeatureName_TimestampQuery);
  if (features_.f16) wanted.push_back(WGPUFeatureName_ShaderF16);
  if (features_.subgroups) wanted.push_back(provider::subgroup_feature());
  if (features_.tiles == Tiles::kDevice) wanted.push_back(tiles);
  if (features_.timestamps) wanted.push_back(WGPUFeatureName_TimestampQuery);

  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  descriptor.requiredFeatureCount = wanted.size();
  descriptor.requiredFeatures = wanted.data();
  descriptor.requiredLimits = &limits;
  descriptor.deviceLostCallbackInfo = {nullptr, WGPUCallbackMode_AllowSpontaneous, on_lost, this, nullptr};
  descriptor.uncapturedErrorCallbackInfo = {nullptr, on_error, this, nullptr};
  Answer<WGPUDevice> answer;
  WGPURequestDeviceCallbackInfo callback = {};
  callback.mode = WGPUCallbackMode_AllowSpontaneous;
  callback.callback = [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* out,
                         void*) {
    auto& a = *static_cast<Answer<WGPUDevice>*>(out);
    a.value = device;
    a.message = view_of(message);
  };
  callback.userdata1 = &answer;
  wgpuAdapterRequestDevice(adapter_.get(), &descriptor, callback);
  if (answer.value == nullptr) {
    return fail(ErrorCode::kUnsupported, "The GPU {} cannot be opened: {}. Use --backend cpu.",
                adapter_info_.name, answer.message);
  }
  device_ = DeviceHandle(answer.value);
  queue_ = QueueHandle(wgpuDeviceGetQueue(device_.get()));
  limits_ = {.buffer_bytes = limits.maxBufferSize,
             .binding_bytes = limits.maxStorageBufferBindingSize,
             .binding_alignment = limits.minStorageBufferOffsetAlignment,
             .workgroup_bytes = std::min(limits.maxComputeWorkgroupStorageSize, setup_.most_workgroup_bytes),
             .workgroup_invocations =
                 std::min(limits.maxComputeInvocationsPerWorkgroup, limits.maxComputeWorkgroupSizeX),
             .workgroups_per_dimension = limits.maxComputeWorkgroupsPerDimension,
             .storage_buffers = limits.maxStorageBuffersPerShaderStage};
  return {};
}

// The adapter does not tell the size of its subgroups, nothing promises the order of their lanes, and WGSL
// lets fma() round its product first, as a software device does: a kernel tells. Each of its threads
// multiplies as the kernels of weights.wgsl's BITS_IN_SCALE do, a scale of 11 bits and a sum of dots of 20.
Status Device::probe() {
  constexpr std::uint32_t kThreads = 128;
  constexpr float kMagic = 12582912;  // 1.5 * 2^23
  struct Given {
    float scale, sum;
  };
  struct Seen {
    float product;
    std::uint32_t lane, size;
  };
  std::array<Given, kThreads> given;
  for (std::uint32_t t = 0; t < kThreads; ++t)  // odd numbers with many bits, of either sign
    given[t] = {static_cast<float>(1025 + 8 * t) / 65536,
                static_cast<float>(4099 * (2 * t + 1)) * (t % 2 == 0 ? 1.0f : -1.0f)};

  const std::string text = fmt::format(
      "{}\nstruct Given {{ scale : f32, sum : f32 }}\nstruct Seen {{ product : f32, lane : u32, size : u32 "
      "}}\n"
      "@group(0) @binding(0) var<storage, read> given : array<Given>;\n"
      "@group(0) @binding(1) var<storage, read_write> seen : array<Seen>;\n"
      "@compute @workgroup_size({}) fn main(@builtin(local_invocation_index) t : u32{}) {{\n"
      "  let scale = given[t].scale;\n"
      "  seen[t] = Seen(fma(scale, given[t].sum + {}f, scale * -{}f), {});\n}}\n",
      features_.subgroups ? provider::subgroup_prelude() : "", kThreads,
      features_.subgroups
          ? ", @builtin(subgroup_invocation_id) lane : u32, @builtin(subgroup_size) size : u32"
          : "",
      kMagic, kMagic, features_.subgroups ? "lane, size" : "0u, 0u");
  DOPPLER_ASSIGN(const auto kernel, Kernel::compile(*this, "probe of the device", text));
  DOPPLER_ASSIGN(const Buffer in, make_filled("probe's numbers", sizeof(given), [&](std::span<std::byte> to) {
                   std::memcpy(to.data(), given.data(), sizeof(given));
                 }));
  DOPPLER_ASSIGN(const Buffer out, make_buffer("probe's results", kThreads * sizeof(Seen)));
  DOPPLER_ASSIGN(const BoundKernel bound, BoundKernel::create(*this, kernel, {{"given", in}, {"seen", out}}));
  Recorder recorder(*this);
  recorder.dispatch(bound, {});
  DOPPLER_TRY(recorder.submit());
  DOPPLER_ASSIGN(const std::vector<std::byte> bytes, download(out));
  std::array<Seen, kThreads> seen;
  std::memcpy(seen.data(), bytes.data(), sizeof(seen));

  const std::uint32_t size = seen[0].size;
  bool in_order = size >= 4 && size <= 128 && std::has_single_bit(size);
  features_.fma_rounds_once = true;
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    in_order = in_order && seen[t].lane == t % size && seen[t].size == size;
    // Both factors are exact, so that this product is rounded once.
    const float once = given[t].scale * given[t].sum;
    features_.fma_rounds_once = features_.fma_rounds_once && seen[t].product == once;
  }
  features_.subgroups = in_order;
  features_.subgroup_size = in_order ? size : 1;
  // The kernels with tiles take 32 neighbours for a subgroup.
  if (features_.tiles == Tiles::kDevice && features_.subgroup_size != 32) features_.tiles = Tiles::kNone;
  counters = {};
  return {};
}

Status Device::check() {
  const system::Lock lock(mutex_);
  if (!error_) return {};
  Error error = *error_;
  if (!lost_) error_.reset();
  return std::unexpected(std::move(error));
}

// wgpu takes the memory for buffers from the driver in blocks of 64 MB, and gives a block back with its last
// buffer. Memory that the host and the device share takes the driver some 20 ms a block (H100), each time a
// result is read back or a value written where no block has room. So a small buffer of either kind stays; the
// one for results is what download() reads with, and large enough that logits (kMostLogitBytes) have a block
// of their own.
Status Device::keep_host_memory() {
  if (!provider::maps_new_buffers()) return {};
  constexpr std::uint64_t kDownloadBytes = 8 << 20;
  DOPPLER_ASSIGN(kept_.emplace_back(), make_read_back("download", kDownloadBytes));
  DOPPLER_ASSIGN(kept_.emplace_back(),
                 create("kept", kBufferGrain, WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc, false));
  return {};
}

Result<Buffer> Device::create(std::string_view label, std::uint64_t bytes, WGPUBufferUsage usage,
                              bool mapped) {
  if (bytes > limits_.buffer_bytes - kBufferGrain) {
    return fail(
        ErrorCode::kLimit,
        "The buffer {} of {} is larger than the GPU {} allows ({}). Lower the context, or use --backend "
        "cpu.",
        label, human_bytes(bytes), adapter_info_.name, human_bytes(limits_.buffer_bytes));
  }
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.label = view_of(label);
  descriptor.size = std::max((bytes + kBufferGrain - 1) / kBufferGrain, std::uint64_t{1}) * kBufferGrain;
  descriptor.usage = usage;
  descriptor.mappedAtCreation = mapped;
  BufferHandle handle(wgpuDeviceCreateBuffer(device_.get(), &descriptor));
  DOPPLER_TRY(check());
  if (!handle) {
    return fail(ErrorCode::kLimit, "The GPU {} has no memory for the buffer {} of {}.", adapter_info_.name,
                label, human_bytes(bytes));
  }
  return Buffer(std::move(handle), descriptor.size,
                std::make_shared<const CountedBytes>(allocated_bytes_, descriptor.size));
}

static constexpr WGPUBufferUsage kWork =
    WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst;

Result<Buffer> Device::make_buffer(std::string_view label, std::uint64_t bytes) {
  if (!options_.poison) return create(label, bytes, kWork, false);
  return make_filled(label, bytes, [](std::span<std::byte> out) {
    std::memset(out.data(), 0xff, out.size());  // as a float, or as two halves: NaN
  });
}

Result<Buffer> Device::make_filled(std::string_view label, std::uint64_t bytes,
                                   const std::function<void(std::span<std::byte>)>& fill) {
  if (!provider::maps_new_buffers()) {
    return write_in_pieces(label, bytes, UINT64_MAX, [&](std::uint64_t, std::span<std::byte> piece) {
      fill(piece);
      return Status();
    });
  }
  DOPPLER_ASSIGN(Buffer buffer, create(label, bytes, kWork, true));
  void* const mapped = wgpuBufferGetMappedRange(buffer.raw(), 0, buffer.bytes());
  if (mapped == nullptr) return no_memory(label, bytes);
  fill(std::span(static_cast<std::byte*>(mapped), static_cast<std::size_t>(buffer.bytes())));
  wgpuBufferUnmap(buffer.raw());
  DOPPLER_TRY(check());
  counters.written_bytes += bytes;
  DOPPLER_TRY(send_filled(bytes));
  return buffer;
}

std::unexpected<Error> Device::no_memory(std::string_view label, std::uint64_t bytes) const {
  return fail(ErrorCode::kLimit, "The GPU {} has no memory to fill the buffer {} of {}.", adapter_info_.name,
              label, human_bytes(bytes));
}

Result<Buffer> Device::make_in_pieces(std::string_view label, std::uint64_t bytes, std::uint64_t grain,
                                      const FillPiece& fill) {
  if (!provider::maps_new_buffers()) return write_in_pieces(label, bytes, grain, fill);
  DOPPLER_ASSIGN(Buffer buffer, create(label, bytes, kWork, false));
  const std::uint64_t total = buffer.bytes(),
                      most = std::max(kStagingBytes / grain, std::uint64_t{1}) * grain;
  for (std::uint64_t at = 0; at < total; at += most) {
    const std::uint64_t size = std::min(most, total - at);
    Staging& staging = staging_[next_staging_++ % staging_.size()];
    Status sent = stage(staging, buffer, at, size, fill);
    if (sent) continue;
    staging = {};
    return std::unexpected(std::move(sent).error());
  }
  counters.written_bytes += bytes;
  return buffer;
}

// While the device copies one piece, the next is filled.
Status Device::stage(Staging& staging, const Buffer& buffer, std::uint64_t at, std::uint64_t size,
                     const FillPiece& fill) {
  if (!staging.buffer || staging.buffer.bytes() < size) {
    staging = {};
    DOPPLER_ASSIGN(staging.buffer, create("staging", std::max(size, kStagingBytes),
                                          WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc, true));
  } else {
    DOPPLER_TRY(map(staging.buffer, WGPUMapMode_Write, size, staging.copied));
  }
  void* const mapped = wgpuBufferGetMappedRange(staging.buffer.raw(), 0, size);
  if (mapped == nullptr) return no_memory("staging", size);
  const Status filled = fill(at, std::span(static_cast<std::byte*>(mapped), static_cast<std::size_t>(size)));
  wgpuBufferUnmap(staging.buffer.raw());
  DOPPLER_TRY(filled);
  Recorder recorder(*this);
  recorder.copy(staging.buffer, 0, buffer, at, size);
  DOPPLER_ASSIGN(staging.copied, recorder.submit());
  return {};
}

// What a new buffer is filled with lies in a copy of the library's until the next submission has run. So that
// these copies never add up to a model, those of many buffers are sent on their way, while the next are
// filled.
Status Device::send_filled(std::uint64_t bytes) {
  constexpr std::uint64_t kPortion = 64 << 20;
  filled_bytes_ += bytes;
  if (filled_bytes_ < kPortion) return {};
  filled_bytes_ = 0;
  Recorder nothing(*this);
  DOPPLER_ASSIGN(const std::uint64_t sent, nothing.submit());
  if (sent_) provider::wait(device_.get(), *sent_);
  sent_ = sent;
  return check();
}

Result<Buffer> Device::write_in_pieces(std::string_view label, std::uint64_t bytes, std::uint64_t grain,
                                       const FillPiece& fill) {
  constexpr std::uint64_t kMostBytes = 16 << 20;  // that lie in memory at once, unless a grain has more
  DOPPLER_ASSIGN(Buffer buffer, create(label, bytes, kWork, false));
  const std::uint64_t total = buffer.bytes();
  const std::uint64_t most = grain >= total ? total : std::max(kMostBytes / grain, std::uint64_t{1}) * grain;
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(most, total)));
  for (std::uint64_t at = 0; at < total; at += piece.size()) {
    piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), total - at)));
    std::ranges::fill(piece, std::byte{0});
    DOPPLER_TRY(fill(at, piece));
    DOPPLER_TRY(write(buffer, at, piece));
  }
  return buffer;
}

Result<Buffer> Device::make_read_back(std::string_view label, std::uint64_t bytes) {
  return create(label, bytes, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, false);
}

Result<Buffer> Device::take_read_back(std::vector<Buffer>& spare, std::string_view label,
                                      std::uint64_t bytes) {
  if (spare.empty()) return make_read_back(label, bytes);
  Buffer buffer = std::move(spare.back());
  spare.pop_back();
  return buffer;
}

Result<Buffer> Device::make_query_results(std::string_view label, std::uint64_t bytes) {
  return create(label, bytes, WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, false);
}

Status Device::write(const Buffer& buffer, std::uint64_t offset, std::span<const std::byte> bytes) {
  if (offset % 4 != 0 || bytes.size() % 4 != 0 || bytes.size() > buffer.bytes() ||
      offset > buffer.bytes() - bytes.size()) {
    return fail(ErrorCode::kInternal, "A write of {} bytes at {} does not fit a buffer of {}.", bytes.size(),
                offset, buffer.bytes());
  }
  wgpuQueueWriteBuffer(queue_.get(), buffer.raw(), offset, bytes.data(), bytes.size());
  counters.written_bytes += bytes.size();
  return check();
}

Status Device::wait(std::uint64_t submission) {
  provider::wait(device_.get(), submission);
  return check();
}

Status Device::map(const Buffer& buffer, WGPUMapMode mode, std::uint64_t bytes, std::uint64_t submission) {
  struct Mapped {
    bool called = false, worked = false;
  } mapped;
  WGPUBufferMapCallbackInfo callback = {};
  callback.mode = WGPUCallbackMode_AllowSpontaneous;
  callback.callback = [](WGPUMapAsyncStatus status, WGPUStringView, void* out, void*) {
    *static_cast<Mapped*>(out) = {true, status == WGPUMapAsyncStatus_Success};
  };
  callback.userdata1 = &mapped;
  wgpuBufferMapAsync(buffer.raw(), mode, 0, bytes, callback);
  provider::wait(device_.get(), submission);
  if (!mapped.called) provider::poll(device_.get());
  DOPPLER_TRY(check());
  if (!mapped.worked)
    return fail(ErrorCode::kInternal, "The GPU {} does not give its results back.", adapter_info_.name);
  return {};
}

Status Device::read(const Buffer& read_back, std::uint64_t bytes, std::uint64_t submission,
                    const std::function<void(std::span<const std::byte>)>& read) {
  DOPPLER_TRY(check());
  if (bytes > read_back.bytes())
    return fail(ErrorCode::kInternal, "A buffer of {} holds no {} bytes.", read_back.bytes(), bytes);
  DOPPLER_TRY(map(read_back, WGPUMapMode_Read, bytes, submission));
  read(std::span(static_cast<const std::byte*>(wgpuBufferGetConstMappedRange(read_back.raw(), 0, bytes)),
                 static_cast<std::size_t>(bytes)));
  wgpuBufferUnmap(read_back.raw());
  ++counters.read_backs;
  counters.read_back_bytes += bytes;
  return check();
}

Result<std::vector<std::byte>> Device::download(const Buffer& buffer) {
  Buffer read_back;
  if (!kept_.empty() && buffer.bytes() <= kept_[0].bytes()) {
    read_back = kept_[0];
  } else {
    DOPPLER_ASSIGN(read_back, make_read_back("download", buffer.bytes()));
  }
  Recorder recorder(*this);
  recorder.copy(buffer, 0, read_back, 0, buffer.bytes());
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes()));
  DOPPLER_TRY(read(read_back, buffer.bytes(), submission, [&](std::span<const std::byte> mapped) {
    std::memcpy(bytes.data(), mapped.data(), bytes.size());
  }));
  return bytes;
}

}  // namespace doppler::gpu
