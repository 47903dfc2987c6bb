#include "backend/gpu/decode_builder.h"

#include <algorithm>
#include <array>

#include "backend/gpu/batch_groups.h"
#include "backend/gpu/shader_values.h"
#include "backend/gpu/split_attention.h"

namespace doppler::gpu {
namespace {

constexpr std::array<std::string_view, 7> kDecodePasses = {
    kPassDecodeAttention, kPassDecodeHead,  kPassDecodeProduct,  kPassDecodeRoute,
    kPassDecodeExperts,   kPassDecodeDelta, kPassDecodeGatedNorm};

// Threads of the smallest kernels, which have few values to work on.
constexpr std::uint32_t kFewThreads = 64;

// Threads that choose the next token, each of some candidates.
constexpr std::uint32_t kChooseThreads = 256;

// Workgroups that look for the likeliest of the logits: some for each processor of a large GPU.
constexpr std::uint32_t kMostPickers = 264;
constexpr std::uint32_t kPickThreads = 256;

}  // namespace

DecodeBuilder::DecodeBuilder(Context& context, DecodeProgram& program, const Looks& looks,
                             const DecodeProgram* like)
    : context_(context),
      program_(program),
      looks_(looks),
      like_(like),
      readers_(context.plan),
      values_(context) {
  for (const Look& look : looks) wanted_.insert(look.value);
}

Status DecodeBuilder::build() {
  DOPPLER_TRY(make_buffers());
  DOPPLER_TRY(group_ops(plan(), kDecodePasses, [&](const OpGroup& group) { return take(group); }));
  if (program_.head_greedy_.empty()) DOPPLER_TRY(choose_likeliest());
  DOPPLER_TRY(next_tokens());
  return make_taps();
}

Status DecodeBuilder::make_buffers() {
  std::uint64_t parts = 0, marks = 0, row = 0, expert_units = 0;
  for (const Op& op : plan().ops) {
    if (op.kind == OpKind::kAttention) {
      const auto& a = std::get<AttentionParams>(op.params);
      parts = std::max(parts, most_splits(a) * split_bytes(a, *context_.options.kv_type));
      marks = std::max(marks, most_splits(a) * std::uint64_t{a.heads} * 8);
      row = std::max(row, std::uint64_t{a.heads + 2 * a.kv_heads} * a.head_dim);  // where they are three
    }
    if (op.kind == OpKind::kExpertMatmul)
      expert_units = std::max<std::uint64_t>(expert_units, ceil_div(info(op.inputs[0]).width, kUnitValues));
    if (op.kind == OpKind::kExpertMatmul ||
        (op.kind == OpKind::kMatmul && read_as(context_, op.inputs[0]).blocks))
      block_units_ = std::max<std::uint64_t>(block_units_, ceil_div(info(op.inputs[0]).width, kUnitValues));
  }
  if (marks != 0) {
    DOPPLER_ASSIGN(parts_, device().make_buffer("parts", parts));
    DOPPLER_ASSIGN(marks_, device().make_buffer("marks", marks));
    DOPPLER_ASSIGN(heads_, device().make_buffer("heads", row * 4));
  }
  if (expert_units != 0) {
    DOPPLER_ASSIGN(expert_codes_, device().make_buffer("expert8", expert_units * kUnitValues));
    DOPPLER_ASSIGN(expert_scales_, device().make_buffer("experts", expert_units * 16));
  }
  const std::uint64_t vocab = plan().vocab_size;
  DOPPLER_ASSIGN(program_.logits_, device().make_buffer("logits", vocab * 4));
  DOPPLER_ASSIGN(program_.chosen_, device().make_buffer("chosen", 4));
  DOPPLER_ASSIGN(program_.ring_, device().make_buffer("ring", DecodeProgram::kRing * 4));
  return {};
}

// --- group by group

Result<bool> DecodeBuilder::take(const OpGroup& group) {
  at_ = group.first;
  if (group.pass.empty()) {
    DOPPLER_TRY(single(plan().ops[group.first]));
    return true;
  }
  if (!context_.one_by_one.empty()) {
    program_.declined_.push_back({group, context_.one_by_one});
    return false;
  }
  // A program that stores more for taps must run the same kernels as the one without.
  if (like_ != nullptr && like_->has_declined(group)) return false;
  Mark before = mark();
  const Status built = fused(group);
  if (built) return true;
  if (built.error().code != ErrorCode::kUnsupported || like_ != nullptr)
    return std::unexpected(built.error());
  go_back(std::move(before));
  program_.declined_.push_back({group, built.error().message});
  return false;
}

Status DecodeBuilder::fused(const OpGroup& group) {
  if (group.pass == kPassDecodeAttention) return attention(group);
  if (group.pass == kPassDecodeHead) return head(group);
  if (group.pass == kPassDecodeRoute) return route(group);
  if (group.pass == kPassDecodeExperts) return experts(group);
  if (group.pass == kPassDecodeDelta) return delta(group);
  if (group.pass == kPassDecodeGatedNorm) return gated_norm(group);
  return product(group);
}

DecodeBuilder::Mark DecodeBuilder::mark() const {
  return {.body = program_.body_.size(),
          .by_position = program_.by_position_.size(),
          .logits_head = program_.head_logits_.size(),
          .greedy_head = program_.head_greedy_.size(),
          .sites = program_.sites_.size(),
          .values = values_.state(),
          .blocks = blocks_};
}

void DecodeBuilder::go_back(Mark mark) {
  if (routed_ && routed_->taken) {
    program_.body_.resize(routed_->body);
    program_.body_.push_back(std::move(*routed_->taken));
    routed_.reset();
  }
  program_.body_.resize(mark.body);
  program_.by_position_.resize(mark.by_position);
  program_.head_logits_.resize(mark.logits_head);
  program_.head_greedy_.resize(mark.greedy_head);
  program_.sites_.resize(mark.sites);
  std::erase_if(program_.pairs_, [&](const auto& pair) { return pair.second >= mark.sites; });
  std::erase_if(program_.besides_, [&](const auto& beside) { return beside.other >= mark.sites; });
  values_.restore(std::move(mark.values));
  blocks_ = std::move(mark.blocks);
}

// The values that the group's ops read from other ops.
std::vector<ValueId> DecodeBuilder::read_by(const OpGroup& group) const {
  std::vector<ValueId> read;
  for (std::size_t i = group.first; i < group.first + group.count; ++i) {
    for (const ValueId id : plan().ops[i].inputs) {
      if (values_.has(id)) read.push_back(id);
    }
  }
  return read;
}

Status DecodeBuilder::place(std::span<const ValueId> ids, std::span<const ValueId> read) {
  if (ids.size() == 1 && ids[0] == plan().logits) {
    values_.set(ids[0], {.buffer = program_.logits_, .width = info(ids[0]).width});
    return {};
  }
  return values_.place(ids, read);
}

Result<FixedDispatch> DecodeBuilder::make(std::string_view file, const ShaderValues& values,
                                          const std::vector<Bound>& buffers, Workgroups groups) {
  DOPPLER_ASSIGN(auto kernel, context_.kernels.get(file, values));
  DOPPLER_ASSIGN(BoundKernel bound, BoundKernel::create(device(), std::move(kernel), buffers));
  return FixedDispatch{std::move(bound), groups};
}

Status DecodeBuilder::add(std::string_view file, const ShaderValues& values,
                          const std::vector<Bound>& buffers, Workgroups groups) {
  DOPPLER_ASSIGN(FixedDispatch made, make(file, values, buffers, groups));
  program_.body_.push_back(std::move(made));
  return {};
}

Status DecodeBuilder::add(const KernelCall& call) {
  return add(call.file, call.values, call.buffers, {call.x, 1, call.z});
}

// --- ops by themselves

Status DecodeBuilder::single(const Op& op) {
  switch (op.kind) {
    case OpKind::kEmbed:
      return embed(op);
    case OpKind::kMatmul:
      DOPPLER_TRY(place_outputs(op));
      return multiply(op, Prologue::kNone, {});
    case OpKind::kAttention:
      return attend(op);
    case OpKind::kSelect:  // the token's logits are wanted
      values_.set(op.outputs[0], values_[op.inputs[0]]);
      return {};
    case OpKind::kRmsNorm: {
      DOPPLER_TRY(place_outputs(op));
      DOPPLER_ASSIGN(const KernelCall call,
                     norm_kernel(context_, op, values_[op.inputs[0]], values_[op.outputs[0]]));
      return add(call);
    }
    case OpKind::kRope:
      DOPPLER_TRY(place_outputs(op));
      return add(rope_kernel(context_, op, values_[op.inputs[0]], values_[op.outputs[0]]));
    case OpKind::kAdd:
    case OpKind::kGated:
    case OpKind::kSoftcap:
    case OpKind::kScaleQuery:
      DOPPLER_TRY(place_outputs(op));
      return add(element_kernel(context_, op, values_[op.inputs[0]],
                                op.inputs.size() > 1 ? &values_[op.inputs[1]] : nullptr,
                                values_[op.outputs[0]]));
    case OpKind::kChoose:
    case OpKind::kWeigh:
      return route(op);
    case OpKind::kExpertMatmul:
      return multiply_experts(op);
    case OpKind::kSpread:
    case OpKind::kExpertSum:
      DOPPLER_TRY(place_outputs(op));
      return add(parts_call(op, [&](ValueId id) { return &values_[id]; }));
    case OpKind::kScale:
    case OpKind::kJoin:
    case OpKind::kHeadMatmul:
    case OpKind::kMix:
    case OpKind::kMatchRms:
    case OpKind::kCutoff: {
      DOPPLER_TRY(place_outputs(op));
      std::vector<const ValueView*> in;
      for (const ValueId id : op.inputs) in.push_back(&values_[id]);
      DOPPLER_ASSIGN(const KernelCall call, column_kernel(context_, op, in, values_[op.outputs[0]]));
      return add(call);
    }
    case OpKind::kColumns:
    case OpKind::kTimeStep:
    case OpKind::kDecay:
    case OpKind::kConvolution:
    case OpKind::kDeltaRule:
    case OpKind::kScan:
    case OpKind::kChannelScan:
      return recurrent(op);
    case OpKind::kGatedMatmul:
    case OpKind::kCount:
      break;
  }
  return fail(ErrorCode::kInternal, "The gpu backend does not run the op {}.", op_name(op.kind));
}

Status DecodeBuilder::embed(const Op& op) {
  DOPPLER_TRY(place_outputs(op));
  const ValueView& out = values_[op.outputs[0]];
  for (std::size_t i = 0; i < op.weights.size(); ++i) {
    DOPPLER_ASSIGN(const GpuMatrix* table, context_.matrix(std::span(op.weights).subspan(i, 1)));
    for (const Shard& shard : table->shards) {
      ShaderValues values;
      std::vector<Bound> buffers = {out.bound("out")};
      add_embed(context_, op, i, *table, shard, kFewThreads, values, buffers);
      // Who chooses a token may embed it, too, where that is the first that its step does, and in one buffer.
      if (program_.body_.empty() && table->shards.size() == 1) {
        program_.embeds_next_ = true;
        next_embeds_ = {values, buffers, out.width};
      }
      DOPPLER_TRY(add("embed.wgsl", values, buffers, {ceil_div(out.width / 4, kFewThreads), 1, 1}));
    }
  }
  return {};
}

Status DecodeBuilder::attend(const Op& op) {
  DOPPLER_TRY(place_outputs(op));
  if (op.inputs.size() > 1) {
    const ValueView* values = op.inputs.size() > 2 ? &values_[op.inputs[2]] : nullptr;
    DOPPLER_TRY(add(append_kernel(context_, op, values_[op.inputs[1]], values)));
  }
  DOPPLER_ASSIGN(const KernelCall call,
                 attention_kernel(context_, op, values_[op.inputs[0]], values_[op.outputs[0]], nullptr));
  return add(call);
}

// --- activations in 8 bits

// Buffers for the next blocks: not those of `read`, which is still needed while they are made, nor those of a
// value that exists as blocks alone and is still to be read, nor those that the product just before reads,
// which may become one dispatch with what makes the next (decode_join.h).
Result<DecodeBuilder::Blocks*> DecodeBuilder::free_blocks(std::optional<ValueId> read) {
  for (Blocks& blocks : blocks_) {
    const bool needed = blocks.of && !values_.has(*blocks.of) && !readers_.of(*blocks.of).empty() &&
                        readers_.of(*blocks.of).back() >= at_;
    const bool just_read = std::ranges::any_of(program_.sites_, [&](const GemvSite& site) {
      return site.where == GemvSite::Where::kBody && site.index + 1 == program_.body_.size() &&
             std::ranges::any_of(
                 site.buffers, [&](const Bound& bound) { return bound.buffer.raw() == blocks.codes.raw(); });
    });
    if (!needed && !just_read && (!read || blocks.of != read)) return &blocks;
  }
  Blocks made;
  const std::uint64_t values = block_units_ * kUnitValues;
  // The values beyond the width stay zero: nothing writes them.
  const auto zero = [](std::span<std::byte>) {};
  DOPPLER_ASSIGN(made.codes, device().make_filled("act8", values, zero));
  DOPPLER_ASSIGN(made.scales, device().make_filled("acts", values / 32 * 8, zero));
  blocks_.push_back(std::move(made));
  return &blocks_.back();
}

// Quantises the value if no kernel has left it so.
Result<const DecodeBuilder::Blocks*> DecodeBuilder::blocks_of(ValueId id) {
  for (const Blocks& blocks : blocks_) {
    if (blocks.of == id) return &blocks;
  }
  const ValueView& x = values_[id];
  const std::uint32_t units = ceil_div(x.width, kUnitValues);
  DOPPLER_ASSIGN(Blocks * blocks, free_blocks(std::nullopt));
  blocks->of = id;
  ShaderValues values = {{"THREADS", kFewThreads}, {"UNITS_K", units}, {"WIDTH", x.width}};
  if (has_vectors(x)) {  // eight threads a block, which wait for a load each
    values["GATED"] = 0;
    values["EMIT"] = 0;
    add_view(values, "A", x);
    DOPPLER_TRY(add("batch_quantise.wgsl", values,
                    {x.bound("a"), {"x8", blocks->codes}, {"xs", blocks->scales}},
                    {ceil_div(units * kUnitValues / 4, kFewThreads), 1, 1}));
    return blocks;
  }
  add_view(values, "X", x);
  DOPPLER_TRY(add("quantise.wgsl", values, {x.bound("x"), {"x8", blocks->codes}, {"xs", blocks->scales}},
                  {ceil_div(units * 2, kFewThreads), 1, 1}));
  return blocks;
}

// --- the token that follows

// For a head that is several kernels: the logits lie in memory.
Status DecodeBuilder::choose_likeliest() {
  const ValueView& view = values_[plan().logits];
  if (view.buffer.raw() != program_.logits_.raw()) {
    ValueView logits = {.buffer = program_.logits_, .width = view.width};
    DOPPLER_TRY(add(copy_kernel(view, logits)));
  }
  const std::uint32_t vocab = plan().vocab_size;
  const std::uint32_t pickers = std::min(ceil_div(vocab, kPickThreads), kMostPickers);
  DOPPLER_TRY(make_candidates(pickers));
  const ShaderValues values = {
      {"THREADS", kPickThreads}, {"GROUPS", pickers}, {"VOCAB", vocab}, {"PAD_WORD", StepLayout::kPad}};
  DOPPLER_ASSIGN(FixedDispatch made,
                 make("likeliest.wgsl", values,
                      {{"step", context_.step}, {"logits", program_.logits_}, {"candidates", candidates_}},
                      {pickers, 1, 1}));
  program_.head_greedy_.push_back(std::move(made));
  return {};
}

Status DecodeBuilder::make_candidates(std::uint32_t count) {
  candidate_count_ = count;
  DOPPLER_ASSIGN(candidates_, device().make_buffer("candidates", std::uint64_t{count} * 8));
  return {};
}

Status DecodeBuilder::next_tokens() {
  ShaderValues values = {{"RING", DecodeProgram::kRing},    {"VOCAB", plan().vocab_size},
                         {"IDS", context_.layout.ids()},    {"POSITIONS", context_.layout.positions()},
                         {"COUNTED", StepLayout::kCounted}, {"GREEDY", 0}};
  std::vector<Bound> buffers = {{"ring", program_.ring_}};
  Workgroups groups;
  if (program_.embeds_next_) {
    values["EMBEDS"] = 1;
    values.insert(next_embeds_.values.begin(), next_embeds_.values.end());
    buffers.insert(buffers.end(), next_embeds_.buffers.begin(), next_embeds_.buffers.end());
    groups.x = ceil_div(next_embeds_.width / 4, kChooseThreads);
  } else {
    buffers.push_back({"step", context_.step});
  }
  values["THREADS"] = kChooseThreads;
  program_.next_greedy_.groups = groups;
  buffers.push_back({"chosen", program_.chosen_});
  DOPPLER_ASSIGN(program_.next_chosen_, make("next_token.wgsl", values, buffers, groups));
  values["GREEDY"] = 1;
  values["CANDIDATES"] = candidate_count_;
  buffers.back() = {"candidates", candidates_};
  program_.next_values_ = std::move(values);
  program_.next_buffers_ = std::move(buffers);
  return program_.connect_heads(context_);
}

// Gathers the wanted stages from where the kernels leave them.
Status DecodeBuilder::make_taps() {
  if (looks_.empty()) return {};
  std::vector<TapRing::Stored> stored;
  for (const Look& look : looks_) {
    if (!values_.has(look.value)) {
      return fail(ErrorCode::kUnsupported, "{} is not shown for single tokens",
                  stage_key(look.stage, look.layer));
    }
    const ValueView& view = values_[look.value];
    const ValueView in_buffer = {.buffer = view.buffer,
                                 .offset = static_cast<std::uint32_t>(view.begin / 4) + view.offset,
                                 .width = view.width};
    stored.push_back({look.stage, look.layer, info(look.value).heads, in_buffer, look.columns});
  }
  DOPPLER_ASSIGN(program_.taps_,
                 TapRing::create(context_, std::move(stored), context_.options.gpu.submit_tokens));
  return {};
}

Status build_decode_program(Context& context, DecodeProgram& program, const Looks& looks,
                            const DecodeProgram* like) {
  return DecodeBuilder(context, program, looks, like).build();
}

}  // namespace doppler::gpu
