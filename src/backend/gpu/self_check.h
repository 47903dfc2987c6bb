// SelfCheck: runs the kernel variants that a program is about to use once, on inputs of its own, and compares
// them with plain loops on the CPU, so that a driver that miscompiles one costs speed and not answers. What
// passed is remembered in a file for each adapter, driver and set of shaders.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/cache_file.h"
#include "backend/gpu/device.h"
#include "backend/gpu/kernel.h"
#include "system/threads.h"

namespace doppler::gpu {

// A kernel before it is compiled.
struct Variant {
  std::string file;
  ShaderValues values;
  std::string name() const;  // file and values, as KernelCache has them
};

// Runs a kernel of this variant, on its real shape or on the first workgroups of it, and says how it differs
// from the CPU's result; an empty text if it does not, or if nothing is known to compare it with. May be
// called from several threads at once that give one `turn`, in which each has the device. Errors: of the
// device.
Result<std::string> difference_from_cpu(Device& device, std::shared_ptr<const Kernel> kernel,
                                        const ShaderValues& values, system::Mutex* turn = nullptr);

// Whether difference_from_cpu knows what to compare this variant with.
bool can_check(std::string_view file, const ShaderValues& values);

class SelfCheck {
 public:
  // An empty folder: nothing is remembered.
  SelfCheck(Device& device, const std::filesystem::path& folder);

  // The kernel, or a slower one with the same bindings and workgroups if it computes something else; what was
  // refused is in refusals(). `compiled` may be null. Errors: kUnsupported, with the last refusal, if none is
  // left; kInternal for one that does not compile.
  Result<std::shared_ptr<const Kernel>> check(std::shared_ptr<const Kernel> compiled, std::string_view file,
                                              const ShaderValues& values);
  // The same for candidates at hand, the preferred one, which `compiled` is, first.
  Result<std::shared_ptr<const Kernel>> choose(std::span<const Variant> candidates,
                                               std::shared_ptr<const Kernel> compiled = nullptr);

  // Checks kernels that were compiled together: the plain loops on all threads, the device in turns. One that
  // does not pass is checked again, and replaced, when it is asked for by itself.
  Status check_ahead(std::span<KernelCache::Compiled> kernels, ThreadPool& pool);

  // For checks made elsewhere, by name: whether one has passed before, and the result of one made now (a
  // sentence that says what is wrong, or an empty text).
  bool has_passed(std::string_view name) const { return passed_.contains(name); }
  void note(std::string name, std::string refusal);

  // Sentences, one for each variant that was refused.
  const std::vector<std::string>& refusals() const { return refusals_; }
  std::size_t runs() const { return runs_; }  // checks that were not remembered

  // Writes the file if there are new results; where that fails, later loads check again.
  void remember();

 private:
  void load();
  Device& device_;
  CacheFile file_;
  std::set<std::string, std::less<>> passed_;
  std::set<std::string, std::less<>> refused_;
  std::vector<std::string> refusals_;
  std::size_t runs_ = 0;
  bool news_ = false;
};

}  // namespace doppler::gpu
