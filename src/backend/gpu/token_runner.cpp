#include "backend/gpu/token_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/gpu/decode_grouping.h"
#include "backend/gpu/decode_join.h"
#include "backend/gpu/stopwatch.h"
#include "backend/gpu/tune.h"

namespace doppler::gpu {
namespace {

// Ranks that are tried: a driver that miscompiles as many shapes will not be right in the next.
constexpr std::size_t kRanks = 3;

// A software adapter is not measured: its speed does not matter to users.
bool measures(const Context& context) {
  return context.options.gpu_setup.tune && !context.device->adapter().software();
}

// Shapes measured for each kind of kernel; each takes the driver some tens of milliseconds. Of 33 products of
// five models the best of three is within 1 % of the best of six for 30, and within 3 % for all; with four a
// token is up to 0.5 % faster, and a first load up to 0.25 s longer (H100).
constexpr std::size_t kCandidates = 3;

// How single tokens are fastest, where that is not known of this adapter.
Status measure_shapes(Context& context, DecodeProgram& program) {
  constexpr double kSeconds = 1.2;  // of measuring, at the first load on an adapter
  if (!program.is_tuned(context)) DOPPLER_TRY(tune(context, program, kSeconds, kCandidates));
  return choose_grouping(context, program);
}

}  // namespace

std::vector<ShapeChoice> TokenRunner::choices(const Context& context) {
  std::vector<ShapeChoice> choices;
  if (measures(context)) choices.push_back({.measured = true, .rank = 0});
  for (std::size_t rank = 0; rank < kRanks; ++rank) choices.push_back({.measured = false, .rank = rank});
  return choices;
}

Result<TokenRunner> TokenRunner::create(Context& context, ShapeChoice choice) {
  context.shape_rank = choice.rank;
  if (choice.measured) load_tuned(context);
  // What is to be measured is compiled with the program, while the device wakes.
  const auto ahead = [&](const DecodeProgram& made) {
    if (!choice.measured || made.is_tuned(context)) return KernelCache::Others{};
    return tune_ahead(context, made, kCandidates);
  };
  DOPPLER_ASSIGN(DecodeProgram program, DecodeProgram::create(context, {}, nullptr, ahead));
  const Device::LoadSeconds before = context.device->loading;
  Device::LoadSeconds& loading = context.device->loading;
  {
    const Stopwatch tuning(loading.tuning);
    if (choice.measured) DOPPLER_TRY(measure_shapes(context, program));
    DOPPLER_TRY(join_kernels(context, program, choice.measured));
  }
  // The candidates' kernels count as kernels.
  loading.tuning -= loading.compiling - before.compiling + loading.checking - before.checking;
  return TokenRunner(context, std::move(program));
}

void TokenRunner::keep_shapes(ShapeChoice choice) const {
  if (choice.measured) store_tuned(*context_);
}

void TokenRunner::forget_shapes() const {
  std::size_t forgotten = forget_joined(*context_, program_);
  for (const GemvSite& site : program_.sites()) forgotten += context_->tuned.erase(site.key());
  if (forgotten > 0) store_tuned(*context_);
}

bool TokenRunner::is_greedy(const GenerateOptions& sampling) {
  return sampling.temperature == 0 && !Sampling::remembers(sampling) && sampling.logit_bias.empty();
}

std::string TokenRunner::why_not(const GenerateOptions& sampling) const {
  if (is_greedy(sampling) || Sampling::takes(context_->plan.vocab_size, sampling)) return {};
  return fmt::format(
      "The GPU does not sample from {} tokens with a window of {} tokens for the penalties by itself.",
      context_->plan.vocab_size, sampling.penalty_window);
}

Result<const DecodeProgram*> TokenRunner::program_for(const Tap* tap) {
  if (tap == nullptr) return &program_;
  const Plan& plan = context_->plan;
  for (std::size_t layer = 0; layer < plan.kv_layers.size(); ++layer) {
    if (tap->wants(Stage::kAttnScores, static_cast<int>(layer))) return nullptr;
  }
  Looks looks = looks_of(plan, *tap);
  if (looks.empty()) return &program_;
  if (looks == looks_) return looking_.get();
  looking_sampling_.reset();
  spare_taps_.clear();
  looking_.reset();
  auto made = DecodeProgram::create(*context_, looks, &program_);
  if (!made && made.error().code != ErrorCode::kUnsupported) return std::unexpected(std::move(made).error());
  looks_ = std::move(looks);
  if (made) DOPPLER_TRY(join_kernels(*context_, *made, false));
  if (made) looking_ = std::make_unique<DecodeProgram>(std::move(*made));
  return looking_.get();
}

Status TokenRunner::step(const DecodeProgram& program, const StepInput& input, Tap* tap, const Buffer& back,
                         std::span<float> logits) {
  DOPPLER_TRY(context_->set_alone(static_cast<std::uint32_t>(input.slots[0])));
  Device& device = *context_->device;
  const TapRing* taps = program.taps();
  Buffer taps_back;
  if (taps != nullptr) {
    DOPPLER_ASSIGN(taps_back,
                   device.take_read_back(spare_taps_, "taps", taps->tokens() * taps->token_bytes()));
  }
  Recorder recorder(device);
  program.record_logits(recorder, std::max<std::uint64_t>(input.positions[0], kernels_from_));
  if (taps != nullptr) taps->record_copy(recorder, 0, 1, taps_back);
  recorder.copy(program.logits(), 0, back, 0, logits.size_bytes());
  DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
  if (taps != nullptr) {
    DOPPLER_TRY(device.read(taps_back, taps->token_bytes(), submission,
                            [&](std::span<const std::byte> from) { taps->show(from, input, *tap); }));
    spare_taps_.push_back(std::move(taps_back));
  }
  return device.read(back, logits.size_bytes(), submission, [&](std::span<const std::byte> from) {
    std::memcpy(logits.data(), from.data(), from.size());
  });
}

Result<Sampling*> TokenRunner::sampling_of(const DecodeProgram& program) {
  std::optional<Sampling>& sampling = &program == &program_ ? sampling_ : looking_sampling_;
  if (!sampling) {
    DOPPLER_ASSIGN(sampling, Sampling::create(*context_->device, context_->kernels,
                                              {.vocab = context_->plan.vocab_size,
                                               .tokens = context_->options.context + 1},
                                              program.logits(), program.chosen()));
  }
  return &*sampling;
}

Status TokenRunner::begin(const Continuation& continuation, std::uint64_t length) {
  const GenerateOptions& options = *continuation.sampling;
  DOPPLER_ASSIGN(const DecodeProgram* program, program_for(continuation.tap));
  if (program == nullptr) {
    return fail(ErrorCode::kUnsupported,
                "The gpu backend does not show attn_scores, or binds too few buffers, while it continues a "
                "sequence. Look at single steps instead.");
  }
  Sampling* sampling = nullptr;
  if (!is_greedy(options)) {
    DOPPLER_ASSIGN(sampling, sampling_of(*program));
    DOPPLER_TRY(sampling->begin_alone(options, continuation.pad_id, continuation.history, continuation.draw));
  }
  DOPPLER_TRY(context_->set_alone(continuation.slot));
  const std::uint32_t words[] = {0, static_cast<std::uint32_t>(continuation.pad_id)};
  static_assert(StepLayout::kPad == StepLayout::kCounted + 1);
  for (Snapshot& snapshot : snapshots_) snapshot.length = UINT64_MAX;  // of another sequence
  DOPPLER_TRY(
      context_->device->write(context_->step, StepLayout::kCounted * 4, std::as_bytes(std::span(words))));
  flying_.emplace(Flying{.program = program,
                         .sampling = sampling,
                         .tap = program->taps() != nullptr ? continuation.tap : nullptr,
                         .slot = continuation.slot,
                         .begin = length,
                         .left = std::min(continuation.most, context_->options.context - length),
                         .fed = continuation.id});
  return {};
}

namespace {

// The parts of a layer's states that belong to one slot.
struct SlotState {
  const Buffer* buffer;
  std::uint64_t offset, bytes;
};

std::vector<SlotState> states_of(const Context& context, std::uint32_t slot) {
  std::vector<SlotState> states;
  for (std::size_t i = 0; i < context.kv.size(); ++i) {
    const KvLayer& layer = context.plan.kv_layers[i];
    const std::pair<const Buffer*, std::uint64_t> parts[] = {{&context.kv[i].conv_state, layer.conv_values()},
                                                             {&context.kv[i].state, layer.state}};
    for (const auto& [buffer, values] : parts) {
      const std::uint64_t bytes = values * sizeof(float);
      if (bytes > 0) states.push_back({buffer, slot * bytes, bytes});
    }
  }
  return states;
}

}  // namespace

Status TokenRunner::keep_snapshot(Recorder& recorder) {
  const std::vector<SlotState> states = states_of(*context_, flying_->slot);
  if (states.empty()) return {};
  if (snapshots_.empty()) snapshots_.resize(kSnapshots);
  Snapshot& snapshot = snapshots_[next_snapshot_++ % kSnapshots];
  snapshot.length = flying_->begin + flying_->submitted;
  snapshot.buffers.resize(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (!snapshot.buffers[i]) {
      DOPPLER_ASSIGN(snapshot.buffers[i], context_->device->make_buffer("snapshot", states[i].bytes));
    }
    recorder.copy(*states[i].buffer, states[i].offset, snapshot.buffers[i], 0, states[i].bytes);
  }
  return {};
}

// Puts the newest states in place that are not beyond `length`; returns the tokens that they stand for.
Result<std::uint64_t> TokenRunner::go_back(std::uint32_t slot, std::uint64_t length) {
  const Snapshot* newest = nullptr;
  for (const Snapshot& snapshot : snapshots_) {
    const bool fits = !snapshot.buffers.empty() && snapshot.length <= length;
    if (fits && (newest == nullptr || snapshot.length > newest->length)) newest = &snapshot;
  }
  if (newest == nullptr) return std::uint64_t{0};
  const std::vector<SlotState> states = states_of(*context_, slot);
  Recorder recorder(*context_->device);
  for (std::size_t i = 0; i < states.size(); ++i)
    recorder.copy(newest->buffers[i], 0, *states[i].buffer, states[i].offset, states[i].bytes);
  DOPPLER_TRY(recorder.submit());
  return newest->length;
}

Result<bool> TokenRunner::submit_tokens() {
  const DecodeProgram& program = *flying_->program;
  const TapRing* taps = program.taps();
  const auto at = static_cast<std::uint32_t>(flying_->submitted % DecodeProgram::kRing);
  // The first are short, so that the GPU has work while the next are recorded: as many as went before, plus
  // one.
  const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {std::max(1u, context_->options.gpu.submit_tokens), flying_->submitted + 1, flying_->left,
       DecodeProgram::kRing - at, taps != nullptr ? taps->tokens() : UINT32_MAX}));
  DOPPLER_ASSIGN(const std::uint32_t tokens,
                 context_->reserve_some(flying_->slot, flying_->begin + flying_->submitted, wanted));
  if (tokens == 0) return false;
  Device& device = *context_->device;
  Flight flight{.submission = 0, .first = flying_->submitted, .tokens = tokens, .back = {}, .taps_back = {}};
  DOPPLER_ASSIGN(flight.back, device.take_read_back(spare_, "tokens", DecodeProgram::kRing * 4));
  Recorder recorder(device);
  DOPPLER_TRY(keep_snapshot(recorder));
  for (std::uint32_t i = 0; i < tokens; ++i) {
    const std::uint64_t position = std::max(flying_->begin + flying_->submitted + i, kernels_from_);
    const TokenFrom from = flying_->submitted + i == 0 ? TokenFrom::kHost : TokenFrom::kBefore;
    if (flying_->sampling == nullptr) {
      program.record_greedy(recorder, position, from);
    } else {
      program.record_logits(recorder, position, from);
      flying_->sampling->record(recorder);
      program.record_next(recorder);
    }
  }
  recorder.copy(program.ring(), std::uint64_t{at} * 4, flight.back, 0, std::uint64_t{tokens} * 4);
  if (taps != nullptr) {
    DOPPLER_ASSIGN(flight.taps_back,
                   device.take_read_back(spare_taps_, "taps", taps->tokens() * taps->token_bytes()));
    taps->record_copy(recorder, flight.first, tokens, flight.taps_back);
  }
  DOPPLER_ASSIGN(flight.submission, recorder.submit());
  flying_->submitted += tokens;
  flying_->left -= tokens;
  flying_->flights.push_back(std::move(flight));
  return true;
}

Result<std::span<const TokenId>> TokenRunner::next_tokens() {
  // One submission runs while the results of the one before are looked at.
  bool room = true;
  while (room && flying_->flights.size() < 2 && flying_->left > 0) {
    DOPPLER_ASSIGN(room, submit_tokens());
  }
  tokens_.clear();
  if (flying_->flights.empty()) {
    if (!room) tokens_.push_back(kNoRoom);
    return std::span<const TokenId>(tokens_);
  }
  Flight flight = std::move(flying_->flights.front());
  flying_->flights.erase(flying_->flights.begin());
  tokens_.resize(flight.tokens);
  DOPPLER_TRY(context_->device->read(
      flight.back, flight.tokens * 4, flight.submission,
      [&](std::span<const std::byte> bytes) { std::memcpy(tokens_.data(), bytes.data(), bytes.size()); }));
  if (flying_->tap != nullptr) DOPPLER_TRY(show(flight));
  spare_.push_back(std::move(flight.back));
  flying_->given += flight.tokens;
  return std::span<const TokenId>(tokens_);
}

// The token that each step was fed is the one that the step before chose.
Status TokenRunner::show(const Flight& flight) {
  const TapRing& taps = *flying_->program->taps();
  DOPPLER_TRY(context_->device->read(flight.taps_back, flight.tokens * taps.token_bytes(), flight.submission,
                                     [&](std::span<const std::byte> bytes) {
                                       for (std::size_t i = 0; i < flight.tokens; ++i) {
                                         StepInput input;
                                         input.add(i == 0 ? flying_->fed : tokens_[i - 1],
                                                   flying_->begin + flight.first + i, flying_->slot, true);
                                         taps.show(bytes.subspan(i * taps.token_bytes(), taps.token_bytes()),
                                                   input, *flying_->tap);
                                       }
                                     }));
  flying_->fed = tokens_.back();
  spare_taps_.push_back(flight.taps_back);
  return {};
}

Result<TokenRunner::Ended> TokenRunner::end(std::uint64_t length) {
  const Flying flying = std::move(*flying_);
  flying_.reset();
  Status waited;
  for (const Flight& flight : flying.flights) {
    if (Status status = context_->device->wait(flight.submission); !status) waited = std::move(status);
    spare_.push_back(flight.back);
    if (flight.taps_back) spare_taps_.push_back(flight.taps_back);
  }
  if (length < flying.begin || length > flying.begin + flying.given) {
    return fail(ErrorCode::kUsage, "The slot {} cannot keep {} tokens; it has {} to {}.", flying.slot, length,
                flying.begin, flying.begin + flying.given);
  }
  DOPPLER_TRY(waited);
  const std::uint64_t written = flying.begin + flying.submitted;
  if (length == written || !is_recurrent(context_->plan.kv_layers))
    return Ended{flying.slot, length, written};
  DOPPLER_ASSIGN(const std::uint64_t kept, go_back(flying.slot, length));
  return Ended{flying.slot, kept, written};
}

}  // namespace doppler::gpu
