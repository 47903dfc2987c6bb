// Kernel: a compute pipeline made from an expanded WGSL text, with the bindings that the text declares.
// BoundKernel: a kernel with a buffer for each of them, ready to be dispatched.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/gpu/shader.h"
#include "base/thread_pool.h"

namespace doppler::gpu {

// What a device gives every kernel: SUBGROUPS, SUBGROUP_SIZE, F16, STRICT_BARRIERS.
ShaderValues common_values(const Features& features);

// Called with each kernel's file and values before it compiles, from any thread. For tests only.
std::function<void(std::string_view file, const ShaderValues& values)>& shader_watcher();

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
  static Result<std::shared_ptr<const Kernel>> compile(Device& device, std::string label,
                                                       const std::string& text);

  const std::string& label() const { return label_; }
  const std::vector<Binding>& bindings() const { return bindings_; }
  WGPUComputePipeline pipeline() const { return pipeline_.get(); }
  WGPUBindGroupLayout layout() const { return layout_.get(); }

 private:
  std::string label_;
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
  std::string_view file;
  ShaderValues values;
};

// Kernels by file and values, so that layers of one shape share a pipeline.
class KernelCache {
 public:
  explicit KernelCache(Device& device) : device_(device) {}
  Result<std::shared_ptr<const Kernel>> get(std::string_view file, const ShaderValues& values);
  // The same without the check: to be measured only.
  Result<std::shared_ptr<const Kernel>> unchecked(std::string_view file, const ShaderValues& values);
  // Compiles those that are not there yet on all threads: a driver takes some tens of milliseconds for each.
  Status prepare(std::span<const KernelSource> sources, ThreadPool& pool);
  std::size_t size() const { return kernels_.size(); }
  // Every kernel passes through here when it is first asked for: a self-check may replace a wrong one.
  using Check = std::function<Result<std::shared_ptr<const Kernel>>(
      std::shared_ptr<const Kernel> compiled, std::string_view file, const ShaderValues& values)>;
  void check_with(Check check) { check_ = std::move(check); }

 private:
  Device& device_;
  Check check_;
  using Kernels = std::map<std::string, std::shared_ptr<const Kernel>, std::less<>>;
  Kernels kernels_, unchecked_;
};

}  // namespace doppler::gpu
