// DecodeProgram: the plan for one new token of one sequence, in five dispatches a layer where the layer is
// that of most models: norms and residual sums are computed by the matrix-vector kernels that read them,
// attention turns, appends and attends in one, gate, up and activation are one. Whatever else a plan has runs
// op by op between them. Everything is made at load; a token changes a few words of the buffer `step`, which
// the device writes itself when it continues a sequence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/context.h"
#include "backend/gpu/gemv_shape.h"
#include "backend/gpu/recorder.h"
#include "backend/gpu/tap_ring.h"
#include "plan/fuse.h"

namespace doppler::gpu {

struct ExpertMatrix;

// A matrix-vector kernel of the program, with all it takes to make it anew in another shape.
struct GemvSite {
  enum class Where : std::uint8_t { kBody, kLogitsHead, kGreedyHead };
  // "qkv", "output", "gate_up", "down", "head": the work fused with the product, by where most models have
  // it. Sites of one kind and size share a shape.
  std::string kind;
  Where where = Where::kBody;
  std::size_t index = 0;  // among the dispatches there
  std::string_view file;
  ShaderValues values;  // but for the shape's
  std::vector<Bound> buffers;
  WeightFormat format;
  std::uint32_t rows = 0, units = 0;
  bool gated = false, quantises = false;
  std::uint32_t places = 0;  // experts of a token; 0: of a matrix by itself
  bool sums_places = false;  // a workgroup has its rows of all of them, else of one
  std::uint64_t bytes = 0;   // of weights
  GemvShape shape;
  std::uint32_t head_groups = 0;  // workgroups of a head, which takes several tiles of rows in each; else 0
  std::string key() const;
  std::uint32_t groups() const;  // workgroups in that shape
  // The `most` shapes that look best, in order; none where nothing fits.
  std::vector<GemvShape> shapes(const Device& device, std::size_t most) const;
};

// The products of a token's `chosen` experts: gates and ups with their activation, which is left in blocks
// (`quantises`) or as floats, and downs with their weighted sum.
GemvSite experts_in_site(const ExpertMatrix& gates, std::uint32_t chosen, bool quantises);
GemvSite experts_out_site(const ExpertMatrix& downs, std::uint32_t chosen);

// A stage that a tap wants of every token.
struct Look {
  Stage stage = Stage::kNone;
  int layer = -1;
  Columns columns;
  ValueId value = 0;  // the value of that name
  bool operator==(const Look&) const = default;
};
using Looks = std::vector<Look>;
// The stages that a tap wants, in the order of the plan, as far as a program for single tokens can show them:
// all but attn_scores.
Looks looks_of(const Plan& plan, const Tap& tap);

// Whether a token is the host's, whose id stands in `step`, or what record_greedy() or record_next() chose
// just before: then its embedding may be there already.
enum class TokenFrom : std::uint8_t { kHost, kBefore };

class DecodeProgram {
 public:
  // Results of a continuation that the host has not read yet; a power of two.
  static constexpr std::uint32_t kRing = 1024;
  // Workgroups of a shard of the head at most, each of which leaves a candidate.
  static constexpr std::uint32_t kMostHeadGroups = 1024;

  // Any plan whose ops have kernels. `looks`: these stages are stored, too, by the same kernels with the same
  // arithmetic, and gathered into taps(); `like`, which may be null, is the program without them. Errors:
  // kUnsupported, naming the limit, where the device cannot run an op, or cannot bind what `looks` asks for.
  // `ahead` is shown the program before its kernels are compiled, and says what is compiled with them.
  using Ahead = std::function<KernelCache::Others(const DecodeProgram& program)>;
  static Result<DecodeProgram> create(Context& context, const Looks& looks = {},
                                      const DecodeProgram* like = nullptr, const Ahead& ahead = {});
  // The ring for the stages of `looks`; null where it was empty.
  const TapRing* taps() const { return taps_ ? &*taps_ : nullptr; }

  // One token: id, position and slot are those of the step's token 0. Leaves `logits()`. `position`, which
  // the host knows, too, chooses between kernels that compute the same, and one is faster early, the other
  // late in a sequence.
  void record_logits(Recorder& recorder, std::uint64_t position, TokenFrom from = TokenFrom::kHost) const;
  // One token, whose likeliest successor (never the id in StepLayout::kPad) becomes the next step's token 0.
  void record_greedy(Recorder& recorder, std::uint64_t position, TokenFrom from = TokenFrom::kHost) const;
  // After record_logits() and a recorded choice: the id in `chosen()` is the next step's token 0.
  void record_next(Recorder& recorder) const;

  const Buffer& logits() const { return logits_; }
  const Buffer& chosen() const { return chosen_; }
  const Buffer& ring() const { return ring_; }
  // Names all its kernels together: programs of one name compute alike.
  std::string name() const;
  // A group whose ops run one by one because the device cannot run them as one, and the reason.
  struct Declined {
    OpGroup group;
    std::string why;
  };
  const std::vector<Declined>& declined() const { return declined_; }
  bool has_declined(const OpGroup& group) const;
  std::size_t dispatches(std::uint64_t position) const;
  const std::vector<FixedDispatch>& body() const { return body_; }
  // Those of the body that a token at that position runs.
  std::vector<std::size_t> body_at(std::uint64_t position) const;
  bool varies_by_position() const { return !by_position_.empty(); }
  const std::vector<FixedDispatch>& head() const { return head_greedy_; }
  const std::vector<GemvSite>& sites() const { return sites_; }
  // Whether Context::tuned has a shape for each of them.
  bool is_tuned(const Context& context) const;
  static KernelSource source_of(const GemvSite& site, const GemvShape& shape, std::uint32_t head_groups);
  // One of the sites in another shape; the program itself stays as it is. `checked` false: to be measured
  // only.
  static Result<FixedDispatch> shaped(Context& context, const GemvSite& site, const GemvShape& shape,
                                      std::uint32_t head_groups, bool checked = true);
  // Gives a site that shape. Candidates that a greedy head of another shape has left are never read.
  Status reshape(Context& context, std::size_t site, const GemvShape& shape, std::uint32_t head_groups);

  // Numbers of two sites, of which the second reads what the first leaves, as the branch that its prologue
  // adds: decode_join.h. `handed`: where that lies while one dispatch does both, which is where the first
  // leaves it else, unless a tap (`keeps`) or other products read it (`others`, how many) that are not in
  // that dispatch: then the second stores it there.
  struct Pair {
    std::size_t first, second;
    Bound handed;
    bool keeps = false;
    std::size_t others = 0;
  };
  const std::vector<Pair>& pairs() const { return pairs_; }
  // Numbers of two sites, one right after the other, that multiply the same by matrices of several formats:
  // neither reads what the other leaves.
  struct Beside {
    std::size_t product, other;
  };
  const std::vector<Beside>& besides() const { return besides_; }
  // Names kind and size, as GemvSite::key() does a site's.
  std::string key_of(const Pair& pair) const;
  std::string key_of(const Beside& beside) const;
  // One dispatch, from now on, for a pair (where a token runs one right after the other), for products beside
  // one another, or for a pair with what is beside its second.
  void join(const std::optional<Pair>& pair, const std::optional<Beside>& beside, FixedDispatch dispatch);
  // Makes all that joined pairs have handed over 0 again: whole tokens leave it so, anything else that runs
  // their dispatches does not.
  Status clear_handed(Device& device) const;

 private:
  friend class DecodeBuilder;
  // Of the body [first, middle) runs at positions below `from`, and [middle, end) from there on.
  struct ByPosition {
    std::size_t first, middle, end;
    std::uint64_t from;
  };
  template <typename Function>
  void each_of_body(std::uint64_t position, Function function) const;
  void record_body(Recorder& recorder, std::uint64_t position, TokenFrom from) const;
  // The body at that position, pairs as they are joined.
  std::vector<const FixedDispatch*> joined_body(std::uint64_t position) const;
  // Makes the greedy heads, if the program has any, leave their candidates one behind the other, and
  // next_token.wgsl read exactly these.
  Status connect_heads(Context& context);
  std::vector<FixedDispatch> body_, head_logits_, head_greedy_;
  std::vector<ByPosition> by_position_;  // in the order of the body
  std::vector<GemvSite> sites_;
  std::vector<Pair> pairs_;
  std::vector<Beside> besides_;
  // One dispatch for some of the body's, by their numbers: the first, which is the key, `second` if that is
  // what a token runs next, and those behind it up to `last`.
  struct Joined {
    std::size_t second, last;
    FixedDispatch dispatch;
  };
  std::map<std::size_t, Joined> joined_;
  std::vector<Bound> handed_;  // what they hand over
  std::vector<Declined> declined_;
  FixedDispatch next_greedy_, next_chosen_;
  // Whether the body begins with the whole embedding, which these two then save the token behind them.
  bool embeds_next_ = false;
  ShaderValues next_values_;  // of next_greedy_
  std::vector<Bound> next_buffers_;
  Buffer logits_, chosen_, ring_;
  std::optional<TapRing> taps_;
};

// Fills an empty program: DecodeProgram::create().
Status build_decode_program(Context& context, DecodeProgram& program, const Looks& looks,
                            const DecodeProgram* like);

}  // namespace doppler::gpu
