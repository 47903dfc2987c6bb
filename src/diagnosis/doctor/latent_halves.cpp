#include "diagnosis/doctor/latent_halves.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "system/threads.h"

namespace doppler::diagnosis::doctor {
namespace {

class HalfSource final : public ByteSource {
 public:
  HalfSource(WeightRole role, const AttentionSpec& attention, TensorView whole)
      : keys_(role == WeightRole::kKUp),
        heads_(attention.heads),
        own_(attention.head_dim - attention.latent.rope_dim),
        values_(attention.latent.value_dim),
        rank_(attention.latent.kv_rank),
        whole_(std::move(whole)) {}

  Shape shape() const { return keys_ ? Shape{heads_, rank_, own_} : Shape{heads_, values_, rank_}; }
  std::uint64_t size() const override { return heads_ * of_head() * sizeof(float); }

  Status read(std::uint64_t offset, std::span<std::byte> into) const override {
    const system::Lock lock(mutex_);
    const std::uint64_t bytes_of_head = of_head() * sizeof(float);
    while (!into.empty()) {
      const std::uint64_t head = offset / bytes_of_head, within = offset % bytes_of_head;
      if (head != kept_head_ || kept_.empty()) DOPPLER_TRY(read_head(head, kept_));
      kept_head_ = head;
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), bytes_of_head - within));
      std::memcpy(into.data(), std::as_bytes(std::span(kept_)).data() + within, count);
      into = into.subspan(count), offset += count;
    }
    return {};
  }

 private:
  std::uint64_t of_head() const { return (keys_ ? own_ : values_) * rank_; }

  // The rows of a head are its keys' own dims, then its values.
  Status read_head(std::uint64_t head, std::vector<float>& out) const {
    const std::uint64_t first = head * (own_ + values_) + (keys_ ? 0 : own_);
    out.resize(of_head());
    if (!keys_) return decode_f32(whole_, first * rank_, out);
    std::vector<float> rows(of_head());
    DOPPLER_TRY(decode_f32(whole_, first * rank_, rows));
    for (std::uint64_t r = 0; r < rank_; ++r) {
      for (std::uint64_t dim = 0; dim < own_; ++dim) out[r * own_ + dim] = rows[dim * rank_ + r];
    }
    return {};
  }

  bool keys_;
  std::uint64_t heads_, own_, values_, rank_;
  TensorView whole_;
  // Rows are mostly read one after the other, and each of keys takes its whole head.
  mutable system::Mutex mutex_;
  mutable std::vector<float> kept_;
  mutable std::uint64_t kept_head_ = 0;
};

}  // namespace

std::optional<LatentHalf> latent_half(WeightRole role, const AttentionSpec& attention,
                                      const TensorView& whole) {
  if (role != WeightRole::kKUp && role != WeightRole::kVUp) return std::nullopt;
  const LatentSpec& latent = attention.latent;
  const std::uint64_t rows =
      std::uint64_t{attention.heads} * (attention.head_dim - latent.rope_dim + latent.value_dim);
  if (whole.shape != Shape{rows, latent.kv_rank}) return std::nullopt;
  const auto source = std::make_shared<const HalfSource>(role, attention, whole);
  LatentHalf half;
  half.view.name = whole.name;
  half.view.dtype = DType::kF32;
  half.view.shape = source->shape();
  half.view.source = source.get();
  half.bytes = source;
  return half;
}

}  // namespace doppler::diagnosis::doctor
