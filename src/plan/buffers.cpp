#include "plan/buffers.h"

#include <algorithm>

namespace doppler {
namespace {

// Widths are rounded up to a cache line of floats, so that buffers begin on lines.
constexpr std::uint64_t kLineFloats = 16;

// Ops that read an element of their first input only before they write the same element of their output.
bool works_in_place(const Op& op) {
  switch (op.kind) {
    case OpKind::kRmsNorm:
    case OpKind::kAdd:
    case OpKind::kGated:
    case OpKind::kSoftcap:
    case OpKind::kScale:
    case OpKind::kCutoff:
    case OpKind::kTimeStep:
    case OpKind::kDecay:
      return true;
    case OpKind::kRope:
      return std::get<RopeParams>(op.params).layout != RopeLayout::kInterleavedToHalf;
    default:
      return false;
  }
}

class Planner {
 public:
  explicit Planner(const Plan& plan) : plan_(plan), last_read_(plan.values.size(), 0) {
    buffers_.offsets.assign(plan.values.size(), BufferPlan::kNowhere);
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      for (const ValueId id : plan.ops[i].inputs) last_read_[id] = i;
      for (const ValueId id : plan.ops[i].outputs)
        last_read_[id] = i;  // an output that no op reads lives for its tap
    }
    last_read_[plan.logits] = plan.ops.size();
  }

  BufferPlan run() {
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      const Op& op = plan_.ops[i];
      for (const ValueId id : op.outputs) place(id, op, i);
      for (auto& live : live_)
        std::erase_if(live, [&](const Block& block) { return last_read_[block.id] <= i; });
    }
    return std::move(buffers_);
  }

 private:
  struct Block {
    std::uint64_t begin, end;
    ValueId id;
  };

  std::vector<Block>& live_of(ValueId id) { return live_[static_cast<std::size_t>(plan_.values[id].rows)]; }

  void place(ValueId id, const Op& op, std::size_t index) {
    std::vector<Block>& live = live_of(id);
    if (works_in_place(op)) {
      for (Block& block : live) {
        const bool dies_here = block.id == op.inputs[0] && last_read_[block.id] == index;
        if (!dies_here || plan_.values[block.id].width != plan_.values[id].width) continue;
        buffers_.offsets[id] = block.begin;
        block.id = id;
        return;
      }
    }
    // First fit: `live` is sorted by place.
    const std::uint64_t size = (plan_.values[id].width + kLineFloats - 1) / kLineFloats * kLineFloats;
    std::uint64_t begin = 0;
    auto next = live.begin();
    for (; next != live.end() && next->begin < begin + size; ++next) begin = next->end;
    live.insert(next, {begin, begin + size, id});
    buffers_.offsets[id] = begin;
    std::uint64_t& extent = buffers_.extents[static_cast<std::size_t>(plan_.values[id].rows)];
    extent = std::max(extent, begin + size);
  }

  const Plan& plan_;
  std::vector<std::size_t> last_read_;  // the op after which a value may be overwritten
  std::array<std::vector<Block>, 2> live_;
  BufferPlan buffers_;
};

}  // namespace

BufferPlan plan_buffers(const Plan& plan) {
  return Planner(plan).run();
}

}  // namespace doppler
