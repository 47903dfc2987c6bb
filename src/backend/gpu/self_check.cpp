#include "backend/gpu/self_check.h"

#include <fmt/format.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "backend/gpu/embedded_shaders.h"
#include "backend/gpu/provider.h"
#include "base/files.h"
#include "base/json.h"

namespace doppler::gpu {
namespace {

// A file of some hundred names; more is somebody else's.
constexpr std::uint64_t kMostBytes = 4 << 20;

// FNV-1a of 64 bits: to tell versions apart, not to keep anybody out.
struct Hash {
  std::uint64_t value = 0xcbf29ce484222325;
  void add(std::string_view text) {
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    value = (value ^ 0xff) * 0x100000001b3;  // an end that no text contains
  }
};

// Everything that a kernel's results could depend on, but for the variant itself.
std::string identity(const Device& device) {
  Hash hash;
  const AdapterInfo& a = device.adapter();
  const Features& f = device.features();
  hash.add(a.name), hash.add(a.driver), hash.add(a.api), hash.add(provider::version());
  hash.add(fmt::format("{} {} {} {} {} {}", a.vendor_id, a.device_id, f.f16, f.subgroups, f.subgroup_size,
                       device.options().checked));
  for (const EmbeddedShader& shader : embedded_shaders()) hash.add(shader.name), hash.add(shader.text);
  return fmt::format("{:016x}", hash.value);
}

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

std::filesystem::path self_check_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::filesystem::path(cache) / "doppler";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::filesystem::path(home) / ".cache" / "doppler";
  return {};
}

SelfCheck::SelfCheck(Device& device, std::filesystem::path folder) : device_(device) {
  if (folder.empty()) return;
  path_ = folder / fmt::format("gpu-checked-{}.json", identity(device));
  load();
}

// {"passed": ["norm.wgsl DIM=64 ...", ...]}; whatever else the file holds, it is as if it were not there.
void SelfCheck::load() {
  const auto text = read_text_file(path_, kMostBytes);
  if (!text) return;
  const auto json = parse_json(*text, "the file of checked kernels");
  if (!json || !json->is_object()) return;
  const auto passed = json->find("passed");
  if (passed == json->end() || !passed->is_array()) return;
  for (const Json& name : *passed) {
    if (name.is_string()) passed_.insert(name.get<std::string>());
  }
}

void SelfCheck::remember() {
  if (!news_ || path_.empty()) return;
  news_ = false;
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  auto file = OutputFile::create(path_);
  if (!file) return;
  Json names = Json::array();
  for (const std::string& name : passed_) names.push_back(name);
  const Json json = {
      {"adapter", device_.adapter().name}, {"driver", device_.adapter().driver}, {"passed", names}};
  const std::string text = json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
  if (file->write(std::string_view(text))) (void)file->commit();
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
