// DecodeProgram: the plan for one new token of one sequence, in five dispatches a layer: norms and residual
// sums are computed by the matrix-vector kernels that read them, attention turns, appends and attends in one,
// gate, up and activation are one. Everything is made at load; a token changes a few words of the buffer
// `step`, which the device writes itself when it continues a sequence.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/gemv_shape.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/values.h"

namespace doppler::gpu {

struct FixedDispatch {
  BoundKernel kernel;
  Workgroups groups;
};

// A matrix-vector kernel of the program, with all it takes to make it anew in another shape.
struct GemvSite {
  enum class Where : std::uint8_t { kBody, kLogitsHead, kGreedyHead };
  std::string kind;  // "qkv", "output", "gate_up", "down", "head": sites of one kind and size share a shape
  Where where = Where::kBody;
  std::size_t index = 0;  // among the dispatches there
  std::string_view file;
  ShaderValues values;  // but for the shape's
  std::vector<Bound> buffers;
  WeightFormat format;
  std::uint32_t rows = 0, units = 0;
  bool gated = false, quantises = false;
  std::uint64_t bytes = 0;  // of weights
  GemvShape shape;
  std::uint32_t head_groups = 0;  // workgroups of a head, which takes several tiles of rows in each; else 0
  std::string key() const;
};

class DecodeProgram {
 public:
  // Results of a continuation that the host has not read yet; a power of two.
  static constexpr std::uint32_t kRing = 1024;
  // Words of `step` beside the lists: how many tokens the ring has been given.
  static constexpr std::uint32_t kRingCount = 3;

  // Errors: kUnsupported, with the reason, for plans and devices that it is not made for; the batch program
  // then serves single tokens too.
  // `looks`: every stage but attn_scores is stored, too, by the same kernels with the same arithmetic, for
  // looking at.
  static Result<DecodeProgram> create(Context& context, bool looks = false);
  // Where a stage lies after a step of a program that looks; nothing for stages that it does not store.
  const ValueView* look(Stage stage, int layer) const;

  // One token: id, position and slot are those of the step's token 0. Leaves `logits()`.
  void record_logits(Recorder& recorder) const;
  // One token, whose likeliest successor (`pad` never wins) becomes the next step's token 0.
  Status prepare_greedy(Context& context, TokenId pad);
  void record_greedy(Recorder& recorder) const;
  // After record_logits(): the token that something recorded in between wrote to `chosen()` is the next.
  void record_next(Recorder& recorder) const;

  const Buffer& logits() const { return logits_; }
  const Buffer& chosen() const { return chosen_; }
  const Buffer& ring() const { return ring_; }
  std::size_t dispatches() const { return body_.size() + head_greedy_.size() + 1; }
  const std::vector<FixedDispatch>& body() const { return body_; }
  const std::vector<GemvSite>& sites() const { return sites_; }
  // Whether Context::tuned has a shape for each of them.
  bool is_tuned(const Context& context) const;
  const std::vector<FixedDispatch>& head() const { return head_greedy_; }
  static KernelSource source_of(const GemvSite& site, const GemvShape& shape, std::uint32_t head_groups);
  // One of the sites in another shape; the program itself stays as it is.
  static Result<FixedDispatch> shaped(Context& context, const GemvSite& site, const GemvShape& shape,
                                      std::uint32_t head_groups);
  // Gives a site that shape.
  Status reshape(Context& context, std::size_t site, const GemvShape& shape, std::uint32_t head_groups);

 private:
  friend class DecodeBuilder;
  static void record(Recorder& recorder, const std::vector<FixedDispatch>& dispatches);
  std::vector<FixedDispatch> body_, head_logits_, head_greedy_;
  std::vector<GemvSite> sites_;
  FixedDispatch next_greedy_, next_chosen_;
  Buffer logits_, chosen_, ring_, candidates_;
  TokenId pad_ = -2;  // that head_greedy_ is made for
  std::map<std::pair<Stage, int>, ValueView> looks_;
  // What head_greedy_ is made from.
  struct Slices {
    Buffer buffer;
    std::uint64_t stride = 0;  // bytes
  };
  Slices stream_[2], down_;
  std::map<std::string, Slices>
      looked_;  // what only a program that looks stores: a buffer for each stage, a slice a layer
  std::size_t stream_at_ = 0;
  bool looking_ = false;
  std::uint32_t candidate_count_ = 0;
};

}  // namespace doppler::gpu
