#include "backend/gpu/decode_program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backend/gpu/shader_values.h"
#include "plan/residual.h"

namespace doppler::gpu {
namespace {

// Workgroups of a site in that shape.
std::uint32_t groups_of(const GemvSite& site, const GemvShape& shape, std::uint32_t head_groups) {
  const std::uint32_t tiles = ceil_div(site.rows, shape.rows);
  return site.head_groups == 0 ? tiles : std::min({head_groups, tiles, DecodeProgram::kMostHeadGroups});
}

}  // namespace

Looks looks_of(const Plan& plan, const Tap& tap) {
  Looks looks;
  for (const Op& op : plan.ops) {
    for (const ValueId id : op.outputs) {
      for_each_name(plan, plan.values[id], [&](Stage stage, int layer) {
        if (tap.wants(stage, layer)) looks.push_back({stage, layer, tap.columns(stage, layer), id});
      });
    }
  }
  return looks;
}

Result<DecodeProgram> DecodeProgram::create(Context& context, const Looks& looks, const DecodeProgram* like,
                                            const Ahead& ahead) {
  DecodeProgram program;
  context.kernels.defer();
  const Status built = build_decode_program(context, program, looks, like);
  KernelCache::Others others;
  if (built && ahead) others = ahead(program);
  DOPPLER_ASSIGN(const bool passed, context.kernels.finish(context.pool, others));
  DOPPLER_TRY(built);
  if (passed) return program;
  // Whatever replaces a kernel that is refused is found one by one.
  program = DecodeProgram();
  DOPPLER_TRY(build_decode_program(context, program, looks, like));
  return program;
}

bool DecodeProgram::has_declined(const OpGroup& group) const {
  return std::ranges::any_of(declined_, [&](const Declined& declined) {
    return declined.group.first == group.first && declined.group.pass == group.pass;
  });
}

std::string GemvSite::key() const {
  return fmt::format("{} {} {} {} {}{}{}", kind, static_cast<int>(format.codes),
                     static_cast<int>(format.scales), rows, units, quantises ? " quantises" : "",
                     places != 0 ? fmt::format(" x {}", places) : "");
}

std::vector<GemvShape> GemvSite::shapes(const Device& device, std::size_t most) const {
  return sums_places
             ? best_shapes_of_places(device, format, rows, units, places, most)
             : best_fused_shapes(device, format, rows, units, gated, quantises, head_groups == 0, most);
}

KernelSource DecodeProgram::source_of(const GemvSite& site, const GemvShape& shape,
                                      std::uint32_t head_groups) {
  KernelSource source{site.file, site.values};
  source.values["R"] = shape.rows;
  source.values[site.sums_places ? "PLACE_LANES" : "LANES"] = shape.lanes;
  source.values["UNITS"] = shape.units;
  if (site.file == "gemv.wgsl" && streams(site.format, shape)) {
    source.values["STREAM"] = shape.stream;
  } else if (site.head_groups == 0) {
    source.values["AT_ONCE"] = shape.loaded();
  }
  if (site.head_groups != 0) source.values["GROUPS"] = groups_of(site, shape, head_groups);
  return source;
}

Result<FixedDispatch> DecodeProgram::shaped(Context& context, const GemvSite& site, const GemvShape& shape,
                                            std::uint32_t head_groups, bool checked) {
  const KernelSource source = source_of(site, shape, head_groups);
  DOPPLER_ASSIGN(auto kernel, checked ? context.kernels.get(source.file, source.values)
                                      : context.kernels.unchecked(source.file, source.values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(*context.device, std::move(kernel), site.buffers));
  const std::uint32_t each = site.places != 0 && !site.sums_places ? site.places : 1;
  return FixedDispatch{std::move(bound), {groups_of(site, shape, head_groups), 1, each}};
}

std::uint32_t GemvSite::groups() const {
  return groups_of(*this, shape, head_groups);
}

bool DecodeProgram::is_tuned(const Context& context) const {
  return std::ranges::all_of(sites_,
                             [&](const GemvSite& site) { return context.tuned.contains(site.key()); });
}

Status DecodeProgram::reshape(Context& context, std::size_t index, const GemvShape& shape,
                              std::uint32_t head_groups) {
  GemvSite& site = sites_[index];
  DOPPLER_ASSIGN(FixedDispatch made, shaped(context, site, shape, head_groups));
  site.shape = shape;
  if (site.head_groups != 0) site.head_groups = head_groups;
  if (site.where == GemvSite::Where::kGreedyHead) return connect_heads(context);
  std::vector<FixedDispatch>& dispatches = site.where == GemvSite::Where::kBody ? body_ : head_logits_;
  dispatches[site.index] = std::move(made);
  return {};
}

Status DecodeProgram::connect_heads(Context& context) {
  std::uint32_t candidates = 0;
  for (GemvSite& site : sites_) {
    if (site.where != GemvSite::Where::kGreedyHead) continue;
    site.values["CANDIDATE0"] = candidates;
    DOPPLER_ASSIGN(head_greedy_[site.index], shaped(context, site, site.shape, site.head_groups));
    candidates += site.groups();
  }
  if (candidates > 0) next_values_["CANDIDATES"] = candidates;  // else likeliest.wgsl leaves them
  DOPPLER_ASSIGN(auto kernel, context.kernels.get("next_token.wgsl", next_values_));
  DOPPLER_ASSIGN(next_greedy_.kernel, BoundKernel::create(*context.device, std::move(kernel), next_buffers_));
  return {};
}

std::string DecodeProgram::name() const {
  std::set<std::string_view> labels;
  for (const auto* dispatches : {&body_, &head_logits_, &head_greedy_}) {
    for (const FixedDispatch& dispatch : *dispatches) labels.insert(dispatch.kernel.kernel().label());
  }
  for (const auto& [first, joined] : joined_) labels.insert(joined.dispatch.kernel.kernel().label());
  return fmt::format("decode program: {}", fmt::join(labels, "; "));
}

template <typename Function>
void DecodeProgram::each_of_body(std::uint64_t position, Function function) const {
  std::size_t i = 0;
  for (const ByPosition& part : by_position_) {
    for (; i < part.first; ++i) function(i);
    const bool late = position >= part.from;
    for (i = late ? part.middle : part.first; i < (late ? part.end : part.middle); ++i) function(i);
    i = part.end;
  }
  for (; i < body_.size(); ++i) function(i);
}

std::vector<std::size_t> DecodeProgram::body_at(std::uint64_t position) const {
  std::vector<std::size_t> indices;
  each_of_body(position, [&](std::size_t i) { indices.push_back(i); });
  return indices;
}

std::string DecodeProgram::key_of(const Pair& pair) const {
  return fmt::format("{} + {}", sites_[pair.first].key(), sites_[pair.second].key());
}

std::string DecodeProgram::key_of(const Beside& beside) const {
  return fmt::format("{} beside {}", sites_[beside.product].key(), sites_[beside.other].key());
}

Status DecodeProgram::clear_handed(Device& device) const {
  for (const Bound& handed : handed_)
    DOPPLER_TRY(device.write(handed.buffer, handed.offset, std::vector<std::byte>(handed.bytes)));
  return {};
}

void DecodeProgram::join(const std::optional<Pair>& pair, const std::optional<Beside>& beside,
                         FixedDispatch dispatch) {
  const std::size_t second = sites_[pair ? pair->second : beside->product].index;
  const std::size_t last = beside ? sites_[beside->other].index : second;
  if (pair) handed_.push_back(pair->handed);
  joined_[pair ? sites_[pair->first].index : second] = {pair ? second : last, last, std::move(dispatch)};
}

std::vector<const FixedDispatch*> DecodeProgram::joined_body(std::uint64_t position) const {
  std::vector<const FixedDispatch*> dispatches;
  const Joined* begun = nullptr;  // by the dispatch just before, or with it
  bool joins = false;             // that one dispatch is in use
  each_of_body(position, [&](std::size_t i) {
    if (begun != nullptr && i == begun->second) {
      dispatches.back() = &begun->dispatch;
      joins = true;
    } else if (!joins) {
      dispatches.push_back(&body_[i]);
    }
    if (joins && i < begun->last) return;
    joins = false;
    const auto found = joined_.find(i);
    begun = found == joined_.end() ? nullptr : &found->second;
  });
  return dispatches;
}

std::size_t DecodeProgram::dispatches(std::uint64_t position) const {
  return joined_body(position).size() + head_greedy_.size() + (embeds_next_ ? 0 : 1);
}

void DecodeProgram::record_body(Recorder& recorder, std::uint64_t position, TokenFrom from) const {
  const FixedDispatch* embedded = embeds_next_ && from == TokenFrom::kBefore ? &body_.front() : nullptr;
  for (const FixedDispatch* dispatch : joined_body(position)) {
    if (dispatch == embedded) continue;
    Workgroups groups = dispatch->groups;
    if (dispatch->positions_each != 0)
      groups.x = static_cast<std::uint32_t>(
          std::min<std::uint64_t>(groups.x, position / dispatch->positions_each + 1));
    recorder.dispatch(dispatch->kernel, groups);
  }
}

void DecodeProgram::record_logits(Recorder& recorder, std::uint64_t position, TokenFrom from) const {
  record_body(recorder, position, from);
  for (const FixedDispatch& dispatch : head_logits_) recorder.dispatch(dispatch);
  if (taps_) taps_->record(recorder);
}

void DecodeProgram::record_greedy(Recorder& recorder, std::uint64_t position, TokenFrom from) const {
  record_body(recorder, position, from);
  for (const FixedDispatch& dispatch : head_greedy_) recorder.dispatch(dispatch);
  if (taps_) taps_->record(recorder);
  recorder.dispatch(next_greedy_);
}

void DecodeProgram::record_next(Recorder& recorder) const {
  recorder.dispatch(next_chosen_);
}

}  // namespace doppler::gpu
