#include "backend/gpu/kernel.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <functional>
#include <numeric>
#include <set>

#include "backend/gpu/provider.h"
#include "backend/gpu/stopwatch.h"
#include "base/text.h"

namespace doppler::gpu {
namespace {

// `@group(0) @binding(N) var<storage, read> name : type;`, as our shaders write it, on a line of its own.
Result<std::vector<Binding>> find_bindings(std::string_view label, std::string_view text) {
  std::vector<Binding> bindings;
  constexpr std::string_view kMark = "@group(0) @binding(";
  for (std::size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
    std::string_view line = text.substr(at + kMark.size());
    line = line.substr(0, line.find('\n'));
    Binding binding;
    const char* const end = std::from_chars(line.data(), line.data() + line.size(), binding.index).ptr;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    constexpr std::string_view kRead = ") var<storage, read> ", kWrite = ") var<storage, read_write> ";
    if (line.starts_with(kWrite)) {
      binding.writes = true;
      line.remove_prefix(kWrite.size());
    } else if (line.starts_with(kRead)) {
      line.remove_prefix(kRead.size());
    } else {
      return fail(ErrorCode::kInternal, "The shader {} declares a binding that is no storage buffer: {}.",
                  label, line);
    }
    binding.name = std::string(line.substr(0, line.find_first_of(" :")));
    bindings.push_back(std::move(binding));
  }
  return bindings;
}

// Bytes of `f32`, `vec4<f16>`, `atomic<u32>` and so on; 0: none of those that our shaders have.
std::uint64_t scalar_or_vector_bytes(std::string_view type) {
  struct Size {
    std::string_view type;
    std::uint64_t bytes;
  };
  static constexpr Size kSizes[] = {{"f32", 4},   {"u32", 4},       {"i32", 4},      {"atomic<u32>", 4},
                                    {"vec2f", 8}, {"vec2u", 8},     {"vec4f", 16},   {"vec4u", 16},
                                    {"f16", 2},   {"vec2<f16>", 4}, {"vec4<f16>", 8}};
  const auto found = std::ranges::find(kSizes, type, &Size::type);
  return found != std::end(kSizes) ? found->bytes : 0;
}

// What the text declares behind `declared`, up to `end`; empty: nothing.
std::string_view declaration(std::string_view text, const std::string& declared, std::string_view end) {
  const std::size_t at = text.find(declared);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + declared.size());
  return text.substr(0, text.find(end));
}

// Bytes of a value of that type, which the text may declare as `alias Name = type;` or as `struct Name {`
// with a member `name : type,` on each line; 0: it is none of those.
std::uint64_t value_bytes(std::string_view text, std::string_view type) {
  if (const std::uint64_t bytes = scalar_or_vector_bytes(type)) return bytes;
  if (const auto alias = declaration(text, fmt::format("alias {} = ", type), ";"); !alias.empty())
    return scalar_or_vector_bytes(alias);
  std::string_view members = declaration(text, fmt::format("struct {} {{\n", type), "}");
  std::uint64_t total = 0, widest = 4;
  while (!members.empty()) {
    const std::string_view line = members.substr(0, members.find('\n'));
    members.remove_prefix(std::min(members.size(), line.size() + 1));
    const std::size_t begin = std::min(line.size(), line.find(" : ") + 3);
    const std::uint64_t bytes = scalar_or_vector_bytes(line.substr(begin, line.find(',') - begin));
    if (bytes == 0) return 0;
    widest = std::max(widest, bytes);
    total = (total + bytes - 1) / bytes * bytes + bytes;  // each is aligned to its size
  }
  return (total + widest - 1) / widest * widest;  // of no members: 0
}

// The number of an array's elements, which may be a constant that the text declares as `const name = number`;
// 0: it is neither.
std::uint64_t elements_of(std::string_view text, std::string_view count) {
  if (count.ends_with('>')) count.remove_suffix(1);
  std::uint32_t value = 0;
  const auto is_number = [&](std::string_view digits) {
    return std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
  };
  return is_number(count) || is_number(declaration(text, fmt::format("const {} = ", count), ";")) ? value : 0;
}

}  // namespace

Result<std::uint64_t> workgroup_bytes(std::string_view label, std::string_view text) {
  std::uint64_t total = 0;
  constexpr std::string_view kMark = "var<workgroup> ", kArray = "array<";
  for (std::size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + 1)) {
    const std::string_view line = text.substr(at, text.find('\n', at) - at);
    const std::size_t begin = line.find(": ") + 2, end = line.find(';');
    const std::string_view type =
        begin < end && end != std::string_view::npos ? line.substr(begin, end - begin) : "";
    std::uint64_t bytes = value_bytes(text, type);
    const std::size_t comma = type.rfind(", ");
    if (type.starts_with(kArray) && comma != std::string_view::npos) {
      bytes = elements_of(text, type.substr(comma + 2)) *
              value_bytes(text, type.substr(kArray.size(), comma - kArray.size()));
    }
    if (bytes == 0)
      return fail(ErrorCode::kInternal, "The shader {} declares workgroup memory of an unknown size: {}",
                  label, line);
    total += (bytes + 15) / 16 * 16;
  }
  return total;
}

ShaderValues common_values(const Features& features) {
  return {{"SUBGROUPS", features.subgroups ? 1 : 0},
          {"SUBGROUP_SIZE", features.subgroup_size},
          {"F16", features.f16 ? 1 : 0},
          {"FMA_ROUNDS_ONCE", features.fma_rounds_once ? 1 : 0},
          {"STRICT_BARRIERS", provider::proves_barriers() ? 1 : 0}};
}

std::function<void(std::string_view, const ShaderValues&)>& shader_watcher() {
  static std::function<void(std::string_view, const ShaderValues&)> watcher;
  return watcher;
}

Result<std::shared_ptr<Kernel>> Kernel::declare(Device& device, std::string_view file,
                                                const ShaderValues& values) {
  DOPPLER_ASSIGN(std::string text,
                 expand_shader(file, values, common_values(device.features()), device.setup().shader_edits));
  if (shader_watcher()) shader_watcher()(file, values);
  if (device.features().subgroups) text = std::string(provider::subgroup_prelude()) + text;
  std::string label(file);
  for (const auto& [name, value] : values) label += fmt::format(" {}={}", name, value);
  return declare(device, std::move(label), std::move(text));
}

Result<std::shared_ptr<const Kernel>> Kernel::create(Device& device, std::string_view file,
                                                     const ShaderValues& values) {
  DOPPLER_ASSIGN(std::shared_ptr<Kernel> kernel, declare(device, file, values));
  DOPPLER_TRY(kernel->finish(device));
  return kernel;
}

Result<std::shared_ptr<const Kernel>> Kernel::compile(Device& device, std::string label, std::string text) {
  DOPPLER_ASSIGN(std::shared_ptr<Kernel> kernel, declare(device, std::move(label), std::move(text)));
  DOPPLER_TRY(kernel->finish(device));
  return kernel;
}

Result<std::shared_ptr<Kernel>> Kernel::declare(Device& device, std::string label, std::string text) {
  auto kernel = std::make_shared<Kernel>();
  kernel->label_ = std::move(label);
  DOPPLER_ASSIGN(kernel->bindings_, find_bindings(kernel->label_, text));
  kernel->text_ = std::move(text);
  if (kernel->bindings_.size() > device.limits().storage_buffers) {
    return fail(ErrorCode::kUnsupported, "The kernel {} binds {} buffers, but the GPU {} allows {}.",
                kernel->label_, kernel->bindings_.size(), device.adapter().name,
                device.limits().storage_buffers);
  }
  DOPPLER_ASSIGN(const std::uint64_t bytes, workgroup_bytes(kernel->label_, kernel->text_));
  if (bytes > device.limits().workgroup_bytes) {
    return fail(ErrorCode::kUnsupported, "The kernel {} needs {} of workgroup memory, but the GPU {} has {}.",
                kernel->label_, human_bytes(bytes), device.adapter().name,
                human_bytes(device.limits().workgroup_bytes));
  }
  std::vector<WGPUBindGroupLayoutEntry> entries;
  for (const Binding& binding : kernel->bindings_) {
    WGPUBindGroupLayoutEntry entry = {};
    entry.binding = binding.index;
    entry.visibility = WGPUShaderStage_Compute;
    entry.buffer.type =
        binding.writes ? WGPUBufferBindingType_Storage : WGPUBufferBindingType_ReadOnlyStorage;
    entries.push_back(entry);
  }
  WGPUBindGroupLayoutDescriptor descriptor = {};
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  kernel->layout_ = BindGroupLayoutHandle(wgpuDeviceCreateBindGroupLayout(device.raw(), &descriptor));
  DOPPLER_TRY(kernel->check(device));
  return kernel;
}

Status Kernel::check(Device& device) const {
  Status status = device.check();
  if (!status)
    return fail(status.error().code, "The kernel {} does not compile. {}", label_, status.error().message);
  return {};
}

Status Kernel::finish(Device& device) {
  WGPUShaderSourceWGSL source = {};
  source.chain.sType = WGPUSType_ShaderSourceWGSL;
  source.code = view_of(text_);
  WGPUShaderModuleDescriptor module_descriptor = {};
  module_descriptor.nextInChain = &source.chain;
  module_descriptor.label = view_of(label_);
  const ShaderHandle module(
      provider::create_shader_module(device.raw(), module_descriptor, device.options().checked));
  DOPPLER_TRY(check(device));
  const WGPUBindGroupLayout layouts[] = {layout_.get()};
  WGPUPipelineLayoutDescriptor layout_descriptor = {};
  layout_descriptor.bindGroupLayoutCount = 1;
  layout_descriptor.bindGroupLayouts = layouts;
  const PipelineLayoutHandle pipeline_layout(
      wgpuDeviceCreatePipelineLayout(device.raw(), &layout_descriptor));
  DOPPLER_TRY(check(device));
  WGPUComputePipelineDescriptor descriptor = {};
  descriptor.label = view_of(label_);
  descriptor.layout = pipeline_layout.get();
  descriptor.compute.module = module.get();
  descriptor.compute.entryPoint = view_of(std::string_view("main"));
  pipeline_ = PipelineHandle(wgpuDeviceCreateComputePipeline(device.raw(), &descriptor));
  text_.clear();
  return check(device);
}

Result<BoundKernel> BoundKernel::create(Device& device, std::shared_ptr<const Kernel> kernel,
                                        const std::vector<Bound>& buffers) {
  std::vector<WGPUBindGroupEntry> entries;
  for (const Binding& binding : kernel->bindings()) {
    const Bound* found = nullptr;
    for (const Bound& bound : buffers) {
      if (bound.name == binding.name) found = &bound;
    }
    if (found == nullptr) {
      return fail(ErrorCode::kInternal, "The kernel {} is bound without its buffer {}.", kernel->label(),
                  binding.name);
    }
    const std::uint64_t total = found->buffer.bytes();
    const std::uint64_t bytes =
        found->bytes != 0 || found->offset > total ? found->bytes : total - found->offset;
    if (found->offset % device.limits().binding_alignment != 0 || found->offset > total ||
        bytes > total - found->offset || bytes == 0 || bytes % 4 != 0) {
      return fail(ErrorCode::kInternal,
                  "The kernel {} is bound to {} bytes at {} of its buffer {}, which has {}.", kernel->label(),
                  bytes, found->offset, binding.name, total);
    }
    if (bytes > device.limits().binding_bytes) {
      return fail(ErrorCode::kLimit,
                  "The kernel {} needs {} of its buffer {}, but the GPU {} binds at most {}.",
                  kernel->label(), human_bytes(bytes), binding.name, device.adapter().name,
                  human_bytes(device.limits().binding_bytes));
    }
    WGPUBindGroupEntry entry = {};
    entry.binding = binding.index;
    entry.buffer = found->buffer.raw();
    entry.offset = found->offset;
    entry.size = bytes;
    entries.push_back(entry);
  }
  if (entries.size() != buffers.size()) {
    std::vector<std::string_view> given;
    for (const Bound& bound : buffers) given.push_back(bound.name);
    return fail(ErrorCode::kInternal, "The kernel {} has {} bindings but is given {}.", kernel->label(),
                entries.size(), fmt::join(given, ", "));
  }
  WGPUBindGroupDescriptor descriptor = {};
  descriptor.layout = kernel->layout();
  descriptor.entryCount = entries.size();
  descriptor.entries = entries.data();
  BoundKernel bound;
  bound.group_ = BindGroupHandle(wgpuDeviceCreateBindGroup(device.raw(), &descriptor));
  bound.kernel_ = std::move(kernel);
  DOPPLER_TRY(device.check());
  return bound;
}

static std::string key_of(std::string_view file, const ShaderValues& values) {
  std::string key(file);
  for (const auto& [name, value] : values) key += fmt::format(" {}={}", name, value);
  return key;
}

Result<std::shared_ptr<const Kernel>> KernelCache::unchecked(std::string_view file,
                                                             const ShaderValues& values) {
  std::string key = key_of(file, values);
  for (const Kernels* kernels : {&kernels_, &unchecked_}) {
    const auto found = kernels->find(key);
    if (found != kernels->end()) return found->second;
  }
  const Stopwatch compiling(device_.loading.compiling);
  DOPPLER_ASSIGN(auto kernel, Kernel::create(device_, file, values));
  return unchecked_.emplace(std::move(key), std::move(kernel)).first->second;
}

Result<std::shared_ptr<const Kernel>> KernelCache::get(std::string_view file, const ShaderValues& values) {
  std::string key = key_of(file, values);
  const auto found = kernels_.find(key);
  if (found != kernels_.end()) return found->second;
  const auto refused = refused_.find(key);
  if (refused != refused_.end()) return std::unexpected(refused->second);
  if (deferred_ && !unchecked_.contains(key)) {
    auto waiting = deferred_->find(key);
    if (waiting == deferred_->end()) {
      DOPPLER_ASSIGN(auto kernel, Kernel::declare(device_, file, values));
      waiting = deferred_->emplace(std::move(key), Compiled{std::move(kernel), {file, values}}).first;
    }
    return waiting->second.kernel;
  }
  DOPPLER_ASSIGN(auto kernel, unchecked(file, values));
  unchecked_.erase(key);
  if (check_) {
    const Stopwatch checking(device_.loading.checking);
    auto checked = check_(std::move(kernel), file, values);
    if (!checked) {
      if (checked.error().code == ErrorCode::kUnsupported) refused_.emplace(std::move(key), checked.error());
      return std::unexpected(std::move(checked).error());
    }
    kernel = *std::move(checked);
  }
  kernels_.emplace(std::move(key), kernel);
  return kernel;
}

Status KernelCache::compile_all(std::span<Compiled> kernels, ThreadPool& pool, const Beside& beside) {
  const Stopwatch compiling(device_.loading.compiling);
  std::vector<Status> made(kernels.size());
  // The longest texts take a driver longest; begun last, they would be waited for alone.
  std::vector<std::size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t i) { return kernels[i].kernel->text_bytes(); });
  std::atomic<std::size_t> next = 0;
  pool.parallel_for(pool.used(), 1, [&](std::size_t begin, std::size_t) {
    for (;;) {
      if (begin == 0 && beside && pool.used() > 1) beside();
      const std::size_t at = next++;
      if (at >= order.size()) return;
      made[order[at]] = kernels[order[at]].kernel->finish(device_);
    }
  });
  for (Status& status : made) DOPPLER_TRY(std::move(status));
  provider::settle(device_.raw());
  return device_.check();
}

Status KernelCache::add_missing(std::span<const KernelSource> sources, ThreadPool& pool,
                                Missing& missing) const {
  std::set<std::string> keys(missing.names.begin(), missing.names.end());
  std::vector<const KernelSource*> news;
  std::vector<std::string> names;
  for (const KernelSource& source : sources) {
    std::string key = key_of(source.file, source.values);
    if (kernels_.contains(key) || unchecked_.contains(key) || refused_.contains(key)) continue;
    if (!keys.insert(key).second) continue;
    news.push_back(&source);
    names.push_back(std::move(key));
  }
  std::vector<Result<std::shared_ptr<Kernel>>> declared(news.size());
  pool.parallel_for(news.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      declared[i] = Kernel::declare(device_, news[i]->file, news[i]->values);
  });
  for (std::size_t i = 0; i < news.size(); ++i) {
    // What the device cannot have is told to who asks for it.
    if (!declared[i] && declared[i].error().code == ErrorCode::kUnsupported) continue;
    if (!declared[i]) return std::unexpected(std::move(declared[i]).error());
    missing.kernels.push_back({std::move(*declared[i]), *news[i]});
    missing.names.push_back(std::move(names[i]));
  }
  return {};
}

Status KernelCache::add_expected(ThreadPool& pool, Missing& missing) {
  const Sources expected = std::exchange(expected_, {});
  if (!expected) return {};
  DOPPLER_ASSIGN(const std::vector<KernelSource> soon, expected());
  return add_missing(soon, pool, missing);
}

Status KernelCache::prepare(std::span<const KernelSource> sources, ThreadPool& pool, Use use,
                            const Beside& beside) {
  Missing missing;
  DOPPLER_TRY(add_missing(sources, pool, missing));
  const std::size_t own = missing.kernels.size();
  DOPPLER_TRY(add_expected(pool, missing));
  DOPPLER_TRY(compile_all(missing.kernels, pool, beside));
  for (std::size_t i = 0; i < missing.kernels.size(); ++i)
    unchecked_.emplace(std::move(missing.names[i]), missing.kernels[i].kernel);
  const std::span<Compiled> checked = std::span(missing.kernels).subspan(use == Use::kMeasure ? own : 0);
  if (checked.empty() || !check_ahead_) return {};
  const Stopwatch checking(device_.loading.checking);
  return check_ahead_(checked, pool);
}

Result<bool> KernelCache::finish(ThreadPool& pool, const Others& others) {
  Missing missing;
  for (auto& [key, compiled] : *deferred_) {
    missing.names.push_back(key);
    missing.kernels.push_back(std::move(compiled));
  }
  deferred_.reset();
  const std::size_t own = missing.kernels.size();
  if (!others.measured.empty()) DOPPLER_TRY(add_expected(pool, missing));
  const std::size_t checked = missing.kernels.size();
  DOPPLER_TRY(add_missing(others.measured, pool, missing));
  DOPPLER_TRY(compile_all(missing.kernels, pool, others.beside));
  if (check_ahead_) {
    const Stopwatch checking(device_.loading.checking);
    DOPPLER_TRY(check_ahead_(std::span(missing.kernels).first(checked), pool));
  }
  bool passed = true;
  for (std::size_t i = 0; i < missing.kernels.size(); ++i) {
    Compiled& compiled = missing.kernels[i];
    const bool runs = i < own && compiled.passed;
    if (i < own) passed = passed && runs;
    (runs ? kernels_ : unchecked_).emplace(std::move(missing.names[i]), std::move(compiled.kernel));
  }
  return passed;
}

}  // namespace doppler::gpu
