#include "backend/gpu/self_check.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"

namespace doppler::gpu {
namespace {

// The kernels whose text has a branch for devices without subgroups.
bool works_without_subgroups(std::string_view file, const ShaderValues& values) {
  if (file == "norm.wgsl" || file == "attention.wgsl") return true;
  const auto prologue = values.find("PRO");
  return file == "gemv.wgsl" && prologue != values.end() && prologue->second == 0;
}

}  // namespace

std::string Variant::name() const {
  std::string name = file;
  for (const auto& [key, value] : values) name += fmt::format(" {}={}", key, value);
  return name;
}

SelfCheck::SelfCheck(Device& device, const std::filesystem::path& folder)
    : device_(device), file_(device, folder, "gpu-checked") {
  load();
}

// {"passed": ["norm.wgsl DIM=64 ...", ...]}; other content of the file is ignored.
void SelfCheck::load() {
  const std::optional<Json> json = file_.read();
  if (!json) return;
  const auto passed = json->find("passed");
  if (passed == json->end() || !passed->is_array()) return;
  for (const Json& name : *passed) {
    if (name.is_string()) passed_.insert(name.get<std::string>());
  }
}

void SelfCheck::remember() {
  if (!news_) return;
  news_ = false;
  Json names = Json::array();
  for (const std::string& name : passed_) names.push_back(name);
  file_.write({{"adapter", device_.adapter().name}, {"driver", device_.adapter().driver}, {"passed", names}});
}

void SelfCheck::note(std::string name, std::string refusal) {
  ++runs_;
  if (!refusal.empty()) {
    refusals_.push_back(std::move(refusal));
    return;
  }
  passed_.insert(std::move(name));
  news_ = true;
}

Result<std::shared_ptr<const Kernel>> SelfCheck::check(std::shared_ptr<const Kernel> compiled,
                                                       std::string_view file, const ShaderValues& values) {
  std::vector<Variant> candidates = {{std::string(file), values}};
  if (device_.features().subgroups && works_without_subgroups(file, values)) {
    // Subgroup operations are what drivers get wrong most; sums then go through workgroup memory.
    candidates.push_back(candidates[0]);
    candidates[1].values["SUBGROUPS"] = 0;
    candidates[1].values["SUBGROUP_SIZE"] = 1;
  }
  return choose(candidates, std::move(compiled));
}

Result<std::shared_ptr<const Kernel>> SelfCheck::choose(std::span<const Variant> candidates,
                                                        std::shared_ptr<const Kernel> compiled) {
  for (const Variant& variant : candidates) {
    std::string name = variant.name();
    auto kernel = std::exchange(compiled, nullptr);  // of the first one only
    if (refused_.contains(name)) continue;
    if (kernel == nullptr) {
      DOPPLER_ASSIGN(kernel, Kernel::create(device_, variant.file, variant.values));
    }
    if (passed_.contains(name)) return kernel;
    DOPPLER_ASSIGN(const std::string difference, difference_from_cpu(device_, kernel, variant.values));
    ++runs_;
    if (difference.empty()) {
      passed_.insert(std::move(name));
      news_ = true;
      return kernel;
    }
    refusals_.push_back(fmt::format("The GPU {} computes the kernel {} wrongly: {}.", device_.adapter().name,
                                    name, difference));
    refused_.insert(std::move(name));
  }
  return fail(ErrorCode::kUnsupported,
              "{} No other variant of it is left. Update the GPU's driver, or use --backend cpu.",
              refusals_.empty() ? std::string("There is no kernel to choose from.") : refusals_.back());
}

}  // namespace doppler::gpu
