// Kernel: a compute pipeline made from an expanded WGSL text, with the bindings that the text declares.
// BoundKernel: a kernel with a buffer for each of them, ready to be dispatched.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/shader.h"
#include "base/thread_pool.h"

namespace doppler::gpu {

// What a device gives every kernel: SUBGROUPS, SUBGROUP_SIZE, F16, FMA_ROUNDS_ONCE, STRICT_BARRIERS.
ShaderValues common_values(const Features& features);

// Called with each kernel's file and values before it compiles, from any thread. For tests only.
std::function<void(std::string_view file, const ShaderValues& values)>& shader_watcher();

// Bytes of workgroup memory that an expanded text declares, as WebGPU counts them: each variable in whole 16
// bytes. wgpu (29.0) makes a pipeline of any text and leaves it to the driver, where more than there is stops
// the GPU (NVIDIA 580.159.04: exception 13, and whoever waits waits forever). Errors: kInternal for a
// declaration of another kind than our shaders have.
Result<std::uint64_t> workgroup_bytes(std::string_view label, std::string_view text);

struct Binding {
  std::string name;
  std::uint32_t index = 0;
  bool writes = false;
};

class Kernel {
 public:
  // Expands the embedded file with `values` (and common_values()) and
  // compiles its entry point `main`. Errors: kInternal with the compiler's message and the line it means.
  static Result<std::shared_ptr<const Kernel>> create(Device& device, std::string_view file,
                                                      const ShaderValues& values);
  // The same for a text that is expanded already.
  static Result<std::shared_ptr<const Kernel>> compile(Device& device, std::string label, std::string text);
  // One that is not compiled yet: enough to bind buffers to. Errors: kUnsupported for too many bindings or
  // too much workgroup memory.
  static Result<std::shared_ptr<Kernel>> declare(Device& device, std::string_view file,
                                                 const ShaderValues& values);
  // Compiles it, from any thread. Errors: kInternal with the compiler's message.
  Status finish(Device& device);

  const std::string& label() const { return label_; }
  std::size_t text_bytes() const { return text_.size(); }  // 0 once it is compiled
  const std::vector<Binding>& bindings() const { return bindings_; }
  WGPUComputePipeline pipeline() const { return pipeline_.get(); }
  WGPUBindGroupLayout layout() const { return layout_.get(); }

 private:
  static Result<std::shared_ptr<Kernel>> declare(Device& device, std::string label, std::string text);
  Status check(Device& device) const;  // the device's errors, as this kernel's

  std::string label_;
  std::string text_;  // until it is compiled
  std::vector<Binding> bindings_;
  BindGroupLayoutHandle layout_;
  PipelineHandle pipeline_;
};

// Part of a buffer under the name that the shader's text gives it.
struct Bound {
  std::string_view name;
  Buffer buffer;
  std::uint64_t offset = 0;  // a multiple of Limits::binding_alignment
  std::uint64_t bytes = 0;   // 0: to the end
};

class BoundKernel {
 public:
  BoundKernel() = default;
  // Every binding of the kernel exactly once. Errors: kInternal for a missing or unknown name or a range
  // outside its buffer; kLimit for a range larger than a binding may be.
  static Result<BoundKernel> create(Device& device, std::shared_ptr<const Kernel> kernel,
                                    const std::vector<Bound>& buffers);
  const Kernel& kernel() const { return *kernel_; }
  WGPUBindGroup group() const { return group_.get(); }

 private:
  std::shared_ptr<const Kernel> kernel_;
  BindGroupHandle group_;
};

// The source of a kernel.
struct KernelSource {
  std::string_view file;  // outlives whatever is made of it, as a literal does
  ShaderValues values;
};

// Kernels by file and values, so that layers of one shape share a pipeline.
class KernelCache {
 public:
  explicit KernelCache(Device& device) : device_(device) {}
  Result<std::shared_ptr<const Kernel>> get(std::string_view file, const ShaderValues& values);
  // The same without the check: to be measured only.
  Result<std::shared_ptr<const Kernel>> unchecked(std::string_view file, const ShaderValues& values);
  // Compiles those that are not there yet on all threads, but for those that this device cannot have: a
  // driver takes some tens of milliseconds for each. Those that will run are checked there, too; the others
  // are to be measured first.
  enum class Use : std::uint8_t { kRun, kMeasure };
  // `beside` is called by one of the threads, before each kernel that it compiles.
  using Beside = std::function<void()>;
  Status prepare(std::span<const KernelSource> sources, ThreadPool& pool, Use use = Use::kRun,
                 const Beside& beside = {});
  // Kernels that are to run soon: the next prepare(), or finish() with others, asks for them, compiles them
  // with its own and checks them like kRun. Replaces those of the call before; an empty function takes them
  // back.
  using Sources = std::function<Result<std::vector<KernelSource>>()>;
  void expect(Sources sources) { expected_ = std::move(sources); }
  // From defer() to finish() get() only declares what is not there yet, so that a program's kernels are
  // compiled and checked together, on all threads, when all of it is known. finish() says whether all passed:
  // where not, what was bound to them is to be made anew.
  void defer() { deferred_.emplace(); }
  // What finish() compiles besides, to be measured, and what is done meanwhile, as prepare() has it.
  struct Others {
    std::vector<KernelSource> measured;
    Beside beside;
  };
  Result<bool> finish(ThreadPool& pool, const Others& others = {});
  std::size_t size() const { return kernels_.size(); }
  // Every kernel passes through here when it is first asked for: a self-check may replace a wrong one.
  using Check = std::function<Result<std::shared_ptr<const Kernel>>(
      std::shared_ptr<const Kernel> compiled, std::string_view file, const ShaderValues& values)>;
  // Several that were compiled together pass through here before, so that their checks share the threads;
  // what it finds out, the check above knows.
  struct Compiled {
    std::shared_ptr<Kernel> kernel;
    KernelSource source;
    bool passed = true;
  };
  using CheckAhead = std::function<Status(std::span<Compiled> kernels, ThreadPool& pool)>;
  void check_with(Check check, CheckAhead ahead) {
    check_ = std::move(check);
    check_ahead_ = std::move(ahead);
  }

 private:
  // Kernels that are to be compiled, and their keys.
  struct Missing {
    std::vector<Compiled> kernels;
    std::vector<std::string> names;
  };
  // Declares those that are not there yet, but for those that this device cannot have: on all threads, since
  // the text of one takes a millisecond.
  Status add_missing(std::span<const KernelSource> sources, ThreadPool& pool, Missing& missing) const;
  Status add_expected(ThreadPool& pool, Missing& missing);
  Status compile_all(std::span<Compiled> kernels, ThreadPool& pool, const Beside& beside = {});

  Device& device_;
  Check check_;
  CheckAhead check_ahead_;
  std::optional<std::map<std::string, Compiled, std::less<>>> deferred_;
  using Kernels = std::map<std::string, std::shared_ptr<const Kernel>, std::less<>>;
  Sources expected_;
  Kernels kernels_, unchecked_;
  std::map<std::string, Error, std::less<>> refused_;  // by the check, which left no other variant
};

}  // namespace doppler::gpu
