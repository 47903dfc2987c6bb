// TensorStore: the tensors of one model, from one file or many, by name. Views stay valid while the store, or
// a copy of it, lives. Views of a store that was opened from files are aligned for their types.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"
#include "quant/tensor.h"

namespace doppler {

class TensorStore {
 public:
  // Null if there is none of that name.
  const TensorView* find(std::string_view name) const;
  // Sorted by name.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  std::uint64_t total_bytes() const;
  // The `__metadata__` strings of the safetensors headers, first file first.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // The files behind the tensors, as far as they are mapped.
  const std::vector<MappedFile>& files() const { return files_; }

  // For readers: takes over a file, then its tensors. Errors: kCorrupt when a name comes twice.
  void keep(MappedFile file) { files_.push_back(std::move(file)); }
  void keep(std::shared_ptr<const ByteSource> source) { sources_.push_back(std::move(source)); }
  Status add(TensorView tensor);
  // Moves in everything another store holds. Errors: kCorrupt when a name comes twice.
  Status merge(TensorStore other);
  // Copies every tensor that is not aligned for its type into memory of the store (files that are not padded
  // are rare and old; one copy at load keeps every reader simple and fast). Errors: kLimit when memory is
  // short.
  Status align();
  // Sets TensorView::mapped for every tensor whose bytes lie in files().
  void mark_mapped();
  // Moves one tensor into memory of the store: `fill` gets the old bytes and, of the same size, the new ones
  // to write, whose shape may be another of as many values; pages of a mapped original are given back. One in
  // a source stays there, and `fill`, which must hold what it needs, is called when it is read.
  // Errors: kNotFound, kLimit when memory is short.
  Status rewrite(std::string_view name,
                 const std::function<void(std::span<const std::byte> from, std::span<std::byte> to)>& fill,
                 std::optional<Shape> shape = std::nullopt);
  // Makes one tensor of the bytes of several of its type, in that order; they leave the store. Errors:
  // kNotFound, kMismatch when they are not as large as the whole, kLimit when memory is short, kCorrupt when
  // the name is taken.
  Status join(std::span<const std::string> parts, std::string name, Shape shape);
  // A new tensor in memory of the store, for the caller to fill. Errors: kCorrupt when the name is there;
  // kLimit when memory is short.
  Result<std::span<std::byte>> create(std::string name, DType dtype, Shape shape);
  // Forgets a tensor whose values stand elsewhere now, and gives its pages back.
  void drop(std::string_view name);
  // Errors: kNotFound; kCorrupt when the new name is there.
  Status rename(std::string_view from, std::string to);
  // Another shape of as many values for a tensor that is there.
  void reshape(std::string_view name, Shape shape) { tensors_.find(name)->second.shape = std::move(shape); }
  // How much align(), rewrite() and create() took.
  std::uint64_t copied_bytes() const { return copied_bytes_; }
  void add_metadata(std::string key, std::string value) {
    metadata_.emplace(std::move(key), std::move(value));
  }

 private:
  Result<std::span<std::byte>> reserve_copy(std::uint64_t bytes);
  std::vector<MappedFile> files_;
  std::vector<std::shared_ptr<const ByteSource>> sources_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::shared_ptr<const std::byte>> copies_;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace doppler
