#include "backend/gpu/self_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/gpu/self_check_inputs.h"
#include "backend/gpu/split_attention.h"
#include "base/json.h"

namespace doppler::gpu {
namespace {

// The same kernel for devices without subgroups; nothing where its text or its shape needs them.
std::optional<Variant> without_subgroups(const Device& device, std::string_view file,
                                         const ShaderValues& values) {
  // Where a value is named the text sums over subgroups only if that is set.
  static constexpr std::pair<std::string_view, std::string_view> kAble[] = {
      {"norm.wgsl", ""},
      {"batch_norm.wgsl", "NORM"},
      {"batch_quantise.wgsl", ""},
      {"rope_append.wgsl", "NORM"},
      {"attention.wgsl", ""},
      {"attention_tiled.wgsl", ""},
      {"attention_combine.wgsl", "BLOCKS"},
      {"attention_decode.wgsl", ""},
      {"gemv.wgsl", ""},
      {"head.wgsl", ""}};
  const auto* const able = std::ranges::find(kAble, file, [](const auto& row) { return row.first; });
  if (able == std::end(kAble)) return std::nullopt;
  if (!able->second.empty() && Values(values)[able->second] == 0) return std::nullopt;
  // Workgroups are whole subgroups, and so have whole teams only if these are no larger.
  if (file == "attention_decode.wgsl" && device.features().subgroup_size < kTeamThreads) return std::nullopt;
  Variant variant{std::string(file), values};
  variant.values["SUBGROUPS"] = 0;
  variant.values["SUBGROUP_SIZE"] = 1;
  return variant;
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
  if (device_.features().subgroups) {
    // Subgroup operations are what drivers get wrong most; sums then go through workgroup memory.
    if (auto other = without_subgroups(device_, file, values)) candidates.push_back(std::move(*other));
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
    if (difference.empty()) {
      note(std::move(name), {});
      return kernel;
    }
    note(name, fmt::format("The GPU {} computes the kernel {} wrongly: {}.", device_.adapter().name, name,
                           difference));
    refused_.insert(std::move(name));
  }
  return fail(ErrorCode::kUnsupported,
              "{} No other variant of it is left. Update the GPU's driver, or use --backend cpu.",
              refusals_.empty() ? std::string("There is no kernel to choose from.") : refusals_.back());
}

Status SelfCheck::check_ahead(std::span<KernelCache::Compiled> kernels, ThreadPool& pool) {
  std::vector<KernelCache::Compiled*> news;
  std::vector<std::string> names;
  for (KernelCache::Compiled& compiled : kernels) {
    std::string name = Variant{std::string(compiled.source.file), compiled.source.values}.name();
    compiled.passed = !refused_.contains(name);
    if (passed_.contains(name) || !compiled.passed) continue;
    news.push_back(&compiled);
    names.push_back(std::move(name));
  }
  std::vector<Result<std::string>> differences(news.size());
  system::Mutex turn;
  pool.parallel_for(news.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      differences[i] = difference_from_cpu(device_, news[i]->kernel, news[i]->source.values, &turn);
  });
  for (std::size_t i = 0; i < news.size(); ++i) {
    if (!differences[i]) return std::unexpected(std::move(differences[i]).error());
    news[i]->passed = differences[i]->empty();
    if (news[i]->passed) note(std::move(names[i]), {});
  }
  return {};
}

}  // namespace doppler::gpu
