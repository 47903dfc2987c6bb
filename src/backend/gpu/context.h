// Context: the state that the GPU backend's programs share: the device, the plan, and everything that lies on
// the device for as long as the model is loaded.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cache_extent.h"
#include "backend/gpu/device.h"
#include "backend/gpu/gemv_shape.h"
#include "backend/gpu/kernel.h"
#include "backend/gpu/provider.h"
#include "backend/gpu/self_check.h"
#include "backend/gpu/weights.h"
#include "backend/page_table.h"
#include "base/thread_pool.h"
#include "plan/fuse.h"

namespace doppler::gpu {

// The passes of plan/fuse.h that the programs have kernels for.
inline constexpr std::string_view kGpuPasses[] = {
    kPassReadValues,     kPassGroupMatmuls,    kPassLateRows,    kPassBatchGemm,
    kPassBatchHalves,    kPassBatchNorm,       kPassBatchGated,  kPassBatchRope,
    kPassBatchAttention, kPassDecodeAttention, kPassDecodeHead,  kPassDecodeProduct,
    kPassDecodeRoute,    kPassDecodeExperts,   kPassDecodeDelta, kPassDecodeGatedNorm};

// The buffer `step` describes a step's tokens: words 0 to 7 are counts, then come four lists of
// room() words, and then the table of pages, a row for each slot (shaders/kv.wgsl).
struct StepLayout {
  std::uint32_t tokens = 0;                    // that a step has at most
  std::uint32_t table_rows = 0, page_row = 0;  // page_row: words of a row
  static constexpr std::uint32_t kHeader = 8;
  static constexpr std::uint32_t kCount = 0, kWantedCount = 1, kLongest = 2;
  static constexpr std::uint32_t kCounted = 3;  // tokens that a continuation has given its ring
  static constexpr std::uint32_t kPad = 4;      // the token that is never chosen; 0xffffffff: none
  // Kernels have these places in their texts: steps of up to 64 tokens share them, and so what a driver
  // keeps.
  std::uint32_t room() const { return (tokens + 63) / 64 * 64; }
  std::uint32_t ids() const { return kHeader; }
  std::uint32_t positions() const { return kHeader + room(); }
  std::uint32_t slots() const { return kHeader + 2 * room(); }
  std::uint32_t wanted() const { return kHeader + 3 * room(); }
  // Rows of pages: first that of the slot whose tokens come alone, once more, which a kernel finds without
  // reading the slot; then those of all slots.
  std::uint32_t alone_row() const { return kHeader + 4 * room(); }
  std::uint32_t page_table() const { return alone_row() + page_row; }
  std::uint64_t bytes() const {
    return (std::uint64_t{page_table()} + std::uint64_t{table_rows} * page_row) * 4;
  }
};

// One layer's cache: [block][kv_head][position % capacity][head_dim], where a block is a slot's, or a page.
struct KvBuffers {
  std::uint32_t capacity = 0;
  bool paged = false;
  Buffer keys, values;
  // Of a recurrent layer, slot after slot: see KvLayer.
  Buffer conv_state, state;
};

// The matrices of a matmul on the device: neighbouring weights of one format are stacked into one matrix.
struct PlacedMatrix {
  const GpuMatrix* matrix = nullptr;
  std::uint32_t first_row = 0;  // its place among all rows of the op
  Buffer bias;                  // one float per row; none if no weight has one
};

// A shape that was measured to be the fastest.
struct TunedShape {
  GemvShape shape;
  std::uint32_t head_groups = 0;
  bool operator==(const TunedShape&) const = default;
};

// How the weights of recurrent layers lie on the device: as they are; a convolution's by tap; as -exp of
// them.
enum class VectorForm : std::uint8_t { kPlain, kByTap, kRates };

// The weights of the product that makes the plan's logits, with or without a softcap and the like behind it.
std::vector<WeightId> weights_of_logits(const Plan& plan);

struct Context {
  std::shared_ptr<Device> device;
  KernelCache kernels;
  std::optional<SelfCheck> self_check;  // of all kernels; none if it is not wanted
  ThreadPool pool;
  Plan plan;
  const Weights& weights;
  BackendOptions options;
  std::uint64_t most_binding_bytes;  // of a weight's shard
  StepLayout layout;
  Buffer step;
  std::vector<KvBuffers> kv;
  PageTable pages;
  bool has_fewer_positions = false;  // than the slots may use, because no more fit
  std::vector<Buffer> angles;        // by rope table: see shaders/rope_angle.wgsl
  std::vector<WeightId> heads;       // the weights of the product that makes logits
  std::map<std::vector<WeightId>, GpuMatrix> matrices;
  std::map<std::string, TunedShape> tuned;  // by GemvSite::key()
  std::optional<std::uint32_t> alone;       // the slot whose row of pages is StepLayout::alone_row()
  std::string one_by_one;  // why single tokens run op by op; empty where groups of ops are one kernel
  std::chrono::steady_clock::time_point awake_at = {};  // when the device was last known to be: tune.h
  std::size_t shape_rank = 0;  // among the shapes that look best, where none was measured: 0 the best
  // By the weights in them, and the offset added to each.
  std::map<std::vector<std::pair<WeightId, double>>, Buffer> norms;
  std::map<std::vector<WeightId>, Buffer> biases;
  // Of kHeadMatmul: by weight, first row of a head, and whether transposed.
  std::map<std::tuple<WeightId, std::uint32_t, bool>, Buffer> by_head;
  std::map<std::pair<WeightId, VectorForm>, Buffer> forms;  // of recurrent layers

  Context(const Context&) = delete;  // the kernels' check refers to it by address
  Context& operator=(const Context&) = delete;
  Context(std::shared_ptr<Device> opened, Plan made, const Weights& w, const BackendOptions& o)
      : device(std::move(opened)),
        kernels(*device),
        pool(provider::threads_for_calls(o.threads)),
        plan(std::move(made)),
        weights(w),
        options(o),
        most_binding_bytes(std::min(o.gpu_setup.most_shard_bytes, device->limits().binding_bytes)) {
    layout.tokens = step_tokens(o);
    heads = weights_of_logits(plan);
    if (!o.gpu_setup.self_check) return;
    // Passing or failing with edited kernels says nothing about the real ones.
    self_check.emplace(*device,
                       o.gpu_setup.shader_edits.empty() ? CacheFile::user_folder() : std::filesystem::path());
    kernels.check_with(
        [this](std::shared_ptr<const Kernel> compiled, std::string_view file, const ShaderValues& values) {
          return self_check->check(std::move(compiled), file, values);
        },
        [this](std::span<KernelCache::Compiled> compiled, ThreadPool& threads) {
          return self_check->check_ahead(compiled, threads);
        });
  }

  // Rows of the rope table's first part.
  std::uint32_t high_rows() const { return static_cast<std::uint32_t>((options.context + 255) / 256); }
  // Quantised weights are multiplied with 8-bit activations.
  bool eight_bits(const GpuMatrix& matrix) const { return matrix.format.quantised() && !options.exact; }

  // The words of `step` in front of the rows of pages, for token 0 alone, id 0 at position 0 of slot 0.
  std::vector<std::uint32_t> first_step() const { return std::vector<std::uint32_t>(layout.alone_row(), 0); }

  // Gives a slot the pages of its first `length` positions, of which those from `held` on are to be written
  // by what is submitted next. Errors: kLimit where there are too few; those of the device.
  Status reserve(std::uint32_t slot, std::uint64_t held, std::uint64_t length);
  // Of the single tokens that are submitted next (DecodeProgram): makes StepLayout::alone_row() that slot's.
  Status set_alone(std::uint32_t slot);
  // The same for as many positions as there are pages for, `most` at most: returns how many.
  Result<std::uint32_t> reserve_some(std::uint32_t slot, std::uint64_t held, std::uint32_t most);

  Status allocate();
  Status allocate_pages();
  Status copy_page(const PageCopy& copy);
  // A slot's row of pages, from that word of `step` on.
  Status write_pages(std::uint32_t slot, std::uint64_t word) const;
  Status allocate_states(const KvLayer& layer, KvBuffers& buffers) const;
  // How a weight lies on the device.
  WeightFormat format_of(WeightId id) const;
  // Uploads the matrices that are not on the device yet.
  Result<const GpuMatrix*> matrix(std::span<const WeightId> ids);
  Result<std::vector<PlacedMatrix>> place(const Op& op);
  // One float for each row of the op's weights [begin, end), or value where they are vectors; nothing if none
  // of them has a bias.
  Result<Buffer> bias(const Op& op, std::size_t begin, std::size_t end);
  // Vectors one behind the other: what each expert or head has.
  Result<Buffer> vectors(WeightId first, std::size_t count);
  // A norm's weights with its offset added, and behind them those of a second norm, if there is one.
  Result<Buffer> norm_weights(const Op& first, const Op* second = nullptr);
  // The matrices of a kHeadMatmul: [head][input][output].
  Result<Buffer> head_matrices(const Op& op);
  Result<Buffer> plain_norm_weights(const Op& op);
  Result<Buffer> vector(WeightId id, VectorForm form);
  // Bytes on the device: all, the cache's, and the weights'.
  std::uint64_t bytes() const { return device->allocated_bytes(); }
  std::uint64_t cache_bytes() const;
  std::uint64_t weight_bytes() const;
};

// Floats and bits of a float as a template's value.
std::int64_t float_bits(double value);

}  // namespace doppler::gpu
