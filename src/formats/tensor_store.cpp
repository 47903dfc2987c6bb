#include "formats/tensor_store.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>

#include "base/checked.h"
#include "base/text.h"
#include "system/memory.h"
#include "system/threads.h"

namespace doppler {
namespace {

// What a rewrite makes of a tensor in a source, made when it is read: once for a reader that goes from the
// beginning to the end, after which nobody asks again.
class RewrittenSource final : public ByteSource {
 public:
  using Fill = std::function<void(std::span<const std::byte> from, std::span<std::byte> to)>;
  RewrittenSource(TensorView from, Fill fill) : from_(std::move(from)), fill_(std::move(fill)) {}

  std::uint64_t size() const override { return from_.bytes(); }
  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    const system::Lock lock(mutex_);
    if (made_.empty()) {
      DOPPLER_ASSIGN(const HeldTensor held, hold(from_));
      made_.resize(held.view.data.size());
      fill_(held.view.data, made_);
    }
    if (!(Checked(offset) + Checked(into.size())).at_most(made_.size()))
      return fail(ErrorCode::kIo, "The tensor {} ends too early. Report this.", printable(from_.name));
    std::ranges::copy(std::span(made_).subspan(static_cast<std::size_t>(offset), into.size()), into.begin());
    if (offset + into.size() == made_.size()) std::vector<std::byte>().swap(made_);
    return {};
  }

 private:
  TensorView from_;
  Fill fill_;
  mutable system::Mutex mutex_;
  mutable std::vector<std::byte> made_;
};

}  // namespace

const TensorView* TensorStore::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::uint64_t TensorStore::total_bytes() const {
  std::uint64_t total = 0;  // cannot overflow: every tensor has its own bytes in memory
  for (const auto& [name, tensor] : tensors_) total += tensor.bytes();
  return total;
}

Status TensorStore::add(TensorView tensor) {
  std::string name = tensor.name;
  const auto [place, fresh] = tensors_.try_emplace(std::move(name), std::move(tensor));
  if (!fresh) {
    return fail(ErrorCode::kCorrupt,
                "The model holds two tensors named {}. Remove one of the files they are in.",
                printable(place->first));
  }
  return {};
}

Status TensorStore::merge(TensorStore other) {
  for (auto& [name, tensor] : other.tensors_) DOPPLER_TRY(add(std::move(tensor)));
  for (auto& [key, value] : other.metadata_) add_metadata(key, std::move(value));
  for (MappedFile& file : other.files_) keep(std::move(file));
  for (auto& source : other.sources_) keep(std::move(source));
  for (auto& copy : other.copies_) copies_.push_back(std::move(copy));
  copied_bytes_ += other.copied_bytes_;
  return {};
}

Result<std::span<std::byte>> TensorStore::reserve_copy(std::uint64_t bytes) {
  // operator new aligns for every scalar type, which is all that aligned() asks.
  auto* memory = bytes > SIZE_MAX ? nullptr : new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)];
  if (memory == nullptr) {
    return fail(ErrorCode::kLimit, "There is no memory for {}. Close other programs.", human_bytes(bytes));
  }
  copies_.emplace_back(memory, std::default_delete<const std::byte[]>());
  copied_bytes_ += bytes;
  return std::span(memory, static_cast<std::size_t>(bytes));
}

Status TensorStore::align() {
  for (auto& [name, tensor] : tensors_) {
    if (tensor.source != nullptr || aligned(tensor)) continue;
    const auto copy = reserve_copy(tensor.data.size());
    if (!copy) {
      return fail(ErrorCode::kLimit,
                  "The tensor {} is not aligned in its file and its copy of {} does not fit into memory. "
                  "Save the model again with a current safetensors library.",
                  printable(name), human_bytes(tensor.data.size()));
    }
    std::memcpy(copy->data(), tensor.data.data(), tensor.data.size());
    tensor.data = *copy;
  }
  return {};
}

void TensorStore::mark_mapped() {
  for (auto& [name, tensor] : tensors_) {
    const std::less<const std::byte*> before;
    tensor.mapped = std::ranges::any_of(files_, [&](const MappedFile& file) {
      const auto bytes = file.bytes();
      return !before(tensor.data.data(), bytes.data()) &&
             before(tensor.data.data(), bytes.data() + bytes.size());
    });
  }
}

Status TensorStore::rewrite(
    std::string_view name,
    const std::function<void(std::span<const std::byte> from, std::span<std::byte> to)>& fill,
    std::optional<Shape> shape) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return fail(ErrorCode::kNotFound, "The model holds no tensor {}. Check the name.", printable(name));
  }
  TensorView& tensor = found->second;
  if (tensor.source != nullptr) {
    const auto source = std::make_shared<RewrittenSource>(tensor, fill);
    keep(source);
    tensor.source = source.get();
    tensor.offset = 0;
    if (shape) tensor.shape = std::move(*shape);
    return {};
  }
  DOPPLER_ASSIGN(const std::span<std::byte> copy, reserve_copy(tensor.data.size()));
  fill(tensor.data, copy);
  if (tensor.mapped) system::release_pages(tensor.data);
  tensor.data = copy;
  tensor.mapped = false;
  if (shape) tensor.shape = std::move(*shape);
  return {};
}

Status TensorStore::join(std::span<const std::string> parts, std::string name, Shape shape) {
  std::uint64_t bytes = 0;
  std::optional<DType> dtype;
  for (const std::string& part : parts) {
    const TensorView* tensor = find(part);
    if (tensor == nullptr)
      return fail(ErrorCode::kNotFound, "The model holds no tensor {}. Check the name.", printable(part));
    bytes += tensor->bytes();
    if (dtype && *dtype != tensor->dtype) bytes = UINT64_MAX;  // no size fits
    dtype = tensor->dtype;
    if (bytes == UINT64_MAX) break;
  }
  if (!dtype || byte_size(*dtype, shape) != bytes) {
    return fail(ErrorCode::kMismatch,
                "The {} tensors from {} on are not of one type with the {} values of {} together. Check that "
                "all weight files are there and belong to this model.",
                parts.size(), parts.empty() ? "none" : printable(parts[0]), describe_shape(shape), name);
  }
  DOPPLER_ASSIGN(const std::span<std::byte> copy, reserve_copy(bytes));
  std::size_t at = 0;
  for (const std::string& part : parts) {
    const auto found = tensors_.find(part);
    DOPPLER_TRY(read_bytes(found->second, 0, copy.subspan(at, found->second.bytes())));
    at += found->second.bytes();
    tensors_.erase(found);
  }
  return add({std::move(name), *dtype, std::move(shape), copy});
}

Result<std::span<std::byte>> TensorStore::create(std::string name, DType dtype, Shape shape) {
  const auto bytes = byte_size(dtype, shape);
  if (!bytes) {
    return fail(ErrorCode::kMismatch, "The tensor {} ({}, {}) does not hold whole rows of blocks. Check it.",
                printable(name), dtype_name(dtype), describe_shape(shape));
  }
  DOPPLER_ASSIGN(const std::span<std::byte> made, reserve_copy(*bytes));
  DOPPLER_TRY(add({std::move(name), dtype, std::move(shape), made}));
  return made;
}

Status TensorStore::rename(std::string_view from, std::string to) {
  const auto found = tensors_.find(from);
  if (found == tensors_.end()) {
    return fail(ErrorCode::kNotFound, "The model holds no tensor {}. Check the name.", printable(from));
  }
  TensorView tensor = std::move(found->second);
  tensors_.erase(found);
  tensor.name = std::move(to);
  return add(std::move(tensor));
}

void TensorStore::drop(std::string_view name) {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return;
  if (found->second.mapped) system::release_pages(found->second.data);
  tensors_.erase(found);
}

}  // namespace doppler
