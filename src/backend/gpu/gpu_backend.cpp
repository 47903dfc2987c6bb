#include "backend/gpu/gpu_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "backend/fault.h"
#include "backend/gpu/bandwidth.h"
#include "backend/gpu/batch_program.h"
#include "backend/gpu/context.h"
#include "backend/gpu/decode_program.h"
#include "backend/gpu/kernel_report.h"
#include "backend/gpu/sampling.h"
#include "backend/gpu/tap_copy.h"
#include "backend/gpu/tune.h"
#include "backend/gpu_report.h"
#include "base/text.h"
#include "plan/fuse.h"

namespace doppler {
namespace {

using namespace gpu;

constexpr std::string_view kPasses[] = {"group_matmuls"};

// Tokens of a step where nobody asked for another number than every backend's: a large GPU is idle for most
// of a smaller step.
constexpr std::uint32_t kStepTokens = 512;

// Logits that are made at a time: a prompt whose every token wants 262144 of them comes in pieces.
constexpr std::uint64_t kMostLogitBytes = 64 << 20;

class GpuBackend final : public Backend {
 public:
  static Result<std::unique_ptr<Backend>> create(const ModelSpec& spec, const Weights& weights,
                                                 const BackendOptions& options) {
    DOPPLER_ASSIGN(std::shared_ptr<Device> device, Device::open({.adapter = options.gpu.adapter,
                                                                 .software = options.gpu.software,
                                                                 .checked = options.gpu.checked,
                                                                 .poison = options.gpu.poison,
                                                                 .no_subgroups = options.gpu.no_subgroups,
                                                                 .shader_edits = options.gpu.shader_edits}));
    DOPPLER_ASSIGN(Plan plan, plan_for(spec, weights, options));
    // Passes of the plan; the others are the programs' own.
    std::vector<std::string> disabled = options.disabled_passes;
    std::erase_if(disabled, is_batch_pass);
    DOPPLER_TRY(fuse_plan(plan, weights, kPasses, disabled));
    BackendOptions chosen = options;
    if (options.fault != nullptr) {
      for (const std::string_view pass : passes_off_with_fault()) chosen.disabled_passes.emplace_back(pass);
    }
    if (!options.gpu.shader_edits.empty()) chosen.gpu.tune = false;  // its results are kept
    if (chosen.max_step_tokens == BackendOptions{}.max_step_tokens) chosen.max_step_tokens = kStepTokens;
    chosen.kv_type = choose_kv_type(options, plan, weights);
    DOPPLER_TRY(check_kv(plan, chosen));
    std::unique_ptr<GpuBackend> backend(
        new GpuBackend(std::move(device), std::move(plan), weights, std::move(chosen)));
    DOPPLER_TRY(backend->prepare());
    return backend;
  }

  std::string_view name() const override { return "gpu"; }
  const Plan& plan() const override { return context_.plan; }
  const BackendOptions& options() const override { return context_.options; }
  Rounding rounding() const override {
    if (eight_bits_) return Rounding::kEightBits;
    return context_.options.kv_type == KvType::kF16 ? Rounding::kHalfCache : Rounding::kFloat;
  }
  std::optional<DeviceInfo> device() const override { return info_of(context_.device->adapter()); }
  std::optional<DeviceCounters> counters() const override {
    const Device::Counters& c = context_.device->counters;
    return DeviceCounters{.submits = c.submits,
                          .dispatches = c.dispatches,
                          .read_backs = c.read_backs,
                          .read_back_bytes = c.read_back_bytes,
                          .written_bytes = c.written_bytes};
  }
  Result<std::optional<double>> measure_read_bandwidth(std::uint64_t bytes) override {
    if (!bandwidth_) {
      DOPPLER_ASSIGN(bandwidth_, ReadBandwidth::create(*context_.device, bytes));
    }
    DOPPLER_ASSIGN(const double measured, bandwidth_->measure());
    return measured;
  }
  Result<std::vector<VariantRow>> describe() override {
    std::vector<VariantRow> rows;
    if (decode_) {
      DOPPLER_ASSIGN(const std::vector<Piece> pieces, decode_pieces());
      rows = variant_rows(context_.device->features(), pieces);
    } else {
      rows.push_back({.what = "decode", .variant = "as a batch", .why = why_no_decode_});
    }
    DOPPLER_ASSIGN(const std::vector<Piece> pieces, batch_pieces(options().max_step_tokens));
    std::vector<VariantRow> batch = variant_rows(context_.device->features(), pieces);
    std::ranges::move(batch, std::back_inserter(rows));
    if (context_.self_check) {
      for (const std::string& refusal : context_.self_check->refusals())
        rows.push_back({.what = "refused", .variant = "", .why = refusal});
    }
    return rows;
  }
  Result<std::vector<KernelTime>> time_kernels() override {
    const std::uint64_t tokens = lengths_[0];
    if (tokens == 0 || flying_)
      return fail(ErrorCode::kUsage, "Kernels are timed at the end of a sequence that rests in slot 0.");
    std::vector<Piece> pieces;
    if (decode_) {
      DOPPLER_ASSIGN(pieces, decode_pieces());
    } else {
      DOPPLER_ASSIGN(pieces, batch_pieces(1));
    }
    StepInput last;
    last.add(0, tokens - 1, 0, true);
    wanted_ = {0};
    DOPPLER_TRY(write_step(last));
    DOPPLER_TRY(write_words(context_.layout.wanted(), wanted_));
    clear(0);
    return time_pieces(*context_.device, pieces, tokens);
  }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_[slot] = 0; }
  std::uint64_t memory_bytes() const override { return context_.bytes() - weight_bytes_; }

  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    DOPPLER_TRY(check_step(input, plan(), options(), lengths_));
    wanted_.clear();
    for (std::size_t t = 0; t < input.size(); ++t) {
      if (input.wants_logits[t]) wanted_.push_back(static_cast<std::uint32_t>(t));
    }
    if (flying_)
      return fail(ErrorCode::kUsage, "A sequence is being continued. Stop it before the next step.");
    logits_.resize(wanted_.size() * plan().vocab_size);
    DOPPLER_TRY(write_step(input));
    input_ = &input;
    tap_ = tap;
    seen_ = input;
    if (decode_ && input.size() == 1 && wanted_.size() == 1) {
      DOPPLER_ASSIGN(const DecodeProgram* program, program_for(tap));
      if (program != nullptr) return single_step(*program);
    }
    DOPPLER_TRY(run(0, batch_->first_wanted_op(), 0));
    for (std::size_t done = 0; done < wanted_.size();) {
      const std::size_t rows = std::min<std::size_t>(batch_->wanted_rows(), wanted_.size() - done);
      DOPPLER_TRY(write_words(context_.layout.wanted(), std::span(wanted_).subspan(done, rows)));
      first_wanted_ = done;
      DOPPLER_TRY(run(batch_->first_wanted_op(), plan().ops.size(), rows));
      done += rows;
    }
    for (const std::int32_t slot : input.slots) ++lengths_[static_cast<std::size_t>(slot)];
    return std::span<const float>(logits_);
  }

  bool can_continue(const GenerateOptions& sampling) const override {
    // What Sampling takes; whatever fits a device stays far below.
    constexpr std::uint32_t kMostVocab = 1 << 22, kMostWindow = 1 << 24;
    return decode_ && (is_greedy(sampling) ||
                       (plan().vocab_size < kMostVocab && sampling.penalty_window <= kMostWindow));
  }

  Status continue_sequence(const Continuation& continuation) override {
    if (flying_) return fail(ErrorCode::kUsage, "A sequence is being continued already.");
    const GenerateOptions& sampling = *continuation.sampling;
    if (!can_continue(sampling))
      return fail(ErrorCode::kUnsupported, "The gpu backend does not sample with these options by itself.");
    StepInput input;
    input.add(continuation.id, 0, continuation.slot, true);
    if (continuation.slot < lengths_.size())
      input.positions[0] = static_cast<std::int32_t>(lengths_[continuation.slot]);
    DOPPLER_TRY(check_step(input, plan(), options(), lengths_));
    DOPPLER_ASSIGN(const DecodeProgram* chosen, program_for(continuation.tap));
    if (chosen == nullptr) {
      return fail(ErrorCode::kUnsupported,
                  "The gpu backend does not show attn_scores, or binds too few buffers, while it continues a "
                  "sequence. Look at single steps instead.");
    }
    DecodeProgram& program = chosen == &*decode_ ? *decode_ : *looking_;
    std::optional<Sampling>& sampler = chosen == &*decode_ ? sampling_ : looking_sampling_;
    const bool greedy = is_greedy(sampling);
    if (greedy) {
      DOPPLER_TRY(program.prepare_greedy(context_, continuation.pad_id));
    } else {
      if (!sampler) {
        DOPPLER_ASSIGN(sampler, Sampling::create(*context_.device, context_.kernels, plan().vocab_size,
                                                 program.logits(), program.chosen()));
      }
      DOPPLER_TRY(sampler->begin(sampling, continuation.pad_id, continuation.history, continuation.draw));
    }
    wanted_.clear();
    DOPPLER_TRY(write_step(input));
    const std::uint64_t length = lengths_[continuation.slot];
    flying_.emplace(Flying{.program = &program,
                           .sampling = greedy ? nullptr : &*sampler,
                           .tap = continuation.tap,
                           .slot = continuation.slot,
                           .begin = length,
                           .left = std::min(continuation.most, options().context - length),
                           .fed = continuation.id});
    return {};
  }

  Result<std::span<const TokenId>> next_tokens() override {
    if (!flying_) return fail(ErrorCode::kUsage, "No sequence is being continued.");
    // One submission runs while the results of the one before are looked at.
    while (flying_->flights.size() < 2 && flying_->left > 0) DOPPLER_TRY(submit_tokens());
    tokens_.clear();
    if (flying_->flights.empty()) return std::span<const TokenId>();
    Flight flight = std::move(flying_->flights.front());
    flying_->flights.erase(flying_->flights.begin());
    tokens_.resize(flight.tokens);
    DOPPLER_TRY(context_.device->read(
        flight.back, flight.tokens * 4, flight.submission,
        [&](std::span<const std::byte> bytes) { std::memcpy(tokens_.data(), bytes.data(), bytes.size()); }));
    spare_.push_back(flight.back);
    if (flight.looks) DOPPLER_TRY(deliver_looks(flight));
    flying_->given += flight.tokens;
    return std::span<const TokenId>(tokens_);
  }

  Status stop_sequence(std::uint64_t length) override {
    if (!flying_) return fail(ErrorCode::kUsage, "No sequence is being continued.");
    const Flying flying = std::move(*flying_);
    flying_.reset();
    Status waited;
    for (const Flight& flight : flying.flights) {
      if (Status status = context_.device->wait(flight.submission); !status) waited = std::move(status);
      spare_.push_back(flight.back);
    }
    if (length < flying.begin || length > flying.begin + flying.given) {
      return fail(ErrorCode::kUsage, "The slot {} cannot keep {} tokens; it has {} to {}.", flying.slot,
                  length, flying.begin, flying.begin + flying.given);
    }
    lengths_[flying.slot] = length;
    return waited;
  }

 private:
  // What a token takes that the backend generates by itself.
  Result<std::vector<Piece>> decode_pieces() {
    DOPPLER_TRY(decode_->prepare_greedy(context_, -1));
    std::vector<Recorded> list;
    Recorder recorder(*context_.device, list);
    decode_->record_greedy(recorder);
    std::vector<Piece> pieces;
    for (Recorded& recorded : list) {
      std::string what = fused_title(recorded.kernel.kernel().label());
      pieces.push_back({std::move(what), std::move(recorded)});
    }
    return pieces;
  }

  // What a step of so many tokens takes, one of whose logits are wanted.
  Result<std::vector<Piece>> batch_pieces(std::uint32_t tokens) {
    std::vector<Piece> pieces;
    StepInput one_sequence;
    for (std::uint32_t i = 0; i < tokens; ++i) one_sequence.add(0, i, 0, false);
    const StepShape shape{tokens, 1, has_runs(one_sequence)};
    for (std::size_t i = 0; i < plan().ops.size(); ++i) {
      std::vector<Recorded> list;
      Recorder recorder(*context_.device, list);
      DOPPLER_TRY(batch_->record(context_, recorder, i, i + 1, shape, nullptr));
      for (Recorded& recorded : list)
        pieces.push_back(
            {fmt::format("step of {}: {}", tokens, op_title(plan(), plan().ops[i])), std::move(recorded)});
    }
    return pieces;
  }

  // The likeliest token of the logits as they are: found by the head itself.
  static bool is_greedy(const GenerateOptions& sampling) {
    return sampling.temperature == 0 && sampling.repeat_penalty == 1 && sampling.presence_penalty == 0 &&
           sampling.frequency_penalty == 0 && sampling.logit_bias.empty();
  }

  // Tokens that are being computed, in one submission.
  struct Flight {
    std::uint64_t submission = 0;
    std::uint32_t tokens = 0;
    Buffer back;
    // What a tap looks at, token by token.
    std::vector<std::unique_ptr<StepInput>> inputs;
    std::unique_ptr<TapCopy> looks;
  };
  struct Flying {
    const DecodeProgram* program = nullptr;
    const Sampling* sampling = nullptr;  // null: the likeliest token, which the head finds itself
    Tap* tap = nullptr;
    std::uint32_t slot = 0;
    std::uint64_t begin = 0;  // length of the cache before
    std::uint64_t left = 0;   // tokens that are not submitted yet
    std::uint64_t submitted = 0, given = 0;
    TokenId fed = 0;  // to the first step of the next flight, as far as the host knows
    std::vector<Flight> flights;
  };

  Status submit_tokens() {
    const auto at = static_cast<std::uint32_t>(flying_->submitted % DecodeProgram::kRing);
    const auto tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        {std::max(1u, options().gpu.submit_tokens), flying_->left, DecodeProgram::kRing - at}));
    Flight flight{.submission = 0, .tokens = tokens, .back = {}};
    if (spare_.empty()) {
      DOPPLER_ASSIGN(flight.back, context_.device->make_read_back("tokens", DecodeProgram::kRing * 4));
    } else {
      flight.back = spare_.back();
      spare_.pop_back();
    }
    Recorder recorder(*context_.device);
    for (std::uint32_t i = 0; i < tokens; ++i) {
      if (flying_->sampling == nullptr) {
        flying_->program->record_greedy(recorder);
      } else {
        flying_->program->record_logits(recorder);
        flying_->sampling->record(recorder);
        flying_->program->record_next(recorder);
      }
      if (flying_->tap != nullptr) DOPPLER_TRY(look(flight, recorder));
    }
    recorder.copy(flying_->program->ring(), std::uint64_t{at} * 4, flight.back, 0, std::uint64_t{tokens} * 4);
    DOPPLER_ASSIGN(flight.submission, recorder.submit());
    flying_->submitted += tokens;
    flying_->left -= tokens;
    flying_->flights.push_back(std::move(flight));
    return {};
  }

  // The program for single tokens, or where a tap looks its twin that stores every stage. Null where the
  // batch program must do: for scores, which only it stores, and on a device that cannot bind as many buffers
  // as the twin needs.
  Result<const DecodeProgram*> program_for(const Tap* tap) {
    if (tap == nullptr) return &*decode_;
    for (std::size_t layer = 0; layer < plan().kv_layers.size(); ++layer) {
      if (tap->wants(Stage::kAttnScores, static_cast<int>(layer))) return nullptr;
    }
    if (!looking_ && why_no_looking_.empty()) {
      auto made = DecodeProgram::create(context_, true);
      if (made) {
        looking_ = std::move(*made);
      } else if (made.error().code == ErrorCode::kUnsupported) {
        why_no_looking_ = made.error().message;
      } else {
        return std::unexpected(std::move(made).error());
      }
    }
    return looking_ ? &*looking_ : nullptr;
  }

  // Records the copies of one token of a flight; which token it is, only the device knows yet.
  Status look(Flight& flight, Recorder& recorder) {
    if (!flight.looks && !spare_looks_.empty()) {
      flight.looks = std::move(spare_looks_.back());
      spare_looks_.pop_back();
    }
    if (!flight.looks) flight.looks = std::make_unique<TapCopy>(*context_.device);
    auto input = std::make_unique<StepInput>();
    input->add(0, flying_->begin + flying_->submitted + flight.inputs.size(), flying_->slot, true);
    flight.inputs.push_back(std::move(input));
    return copy_looks(*flying_->tap, *flight.inputs.back(), *flight.looks, recorder);
  }

  // The token that each step was fed is the one that the step before chose.
  Status deliver_looks(Flight& flight) {
    for (std::size_t i = 0; i < flight.inputs.size(); ++i) {
      flight.inputs[i]->ids[0] = i == 0 ? flying_->fed : tokens_[i - 1];
    }
    flying_->fed = tokens_.back();
    DOPPLER_TRY(flight.looks->deliver(flight.submission, *flying_->tap));
    spare_looks_.push_back(std::move(flight.looks));
    return {};
  }

  // Copies what the tap wants to see of a single token, stage by stage in the order of the plan.
  Status copy_looks(const Tap& tap, const StepInput& input, TapCopy& to, Recorder& recorder) {
    std::vector<TapCopy::Row> rows;
    std::uint64_t floats = 0;
    const auto add = [&](Stage stage, int layer, const Value& v) {
      const ValueView* view = looking_->look(stage, layer);
      if (view == nullptr || !tap.wants(stage, layer)) return;
      rows.push_back({*view, {stage, layer, {}, 1, v.width, v.heads, &input}});
      floats += v.width + 64;  // and what may lie between slices
    };
    for (const Op& op : plan().ops) {
      for (const ValueId id : op.outputs) {
        const Value& v = plan().values[id];
        add(v.stage, v.layer, v);
        const bool feeds_layer = v.stage == Stage::kEmbedOut || v.stage == Stage::kLayerOut;
        if (feeds_layer) add(Stage::kAttnInput, v.layer + 1, v);
      }
    }
    if (!to.has_room(floats)) {
      return fail(ErrorCode::kLimit,
                  "What the tap looks at in one submission exceeds 64 MiB. Lower --submit-tokens.");
    }
    return to.copy_rows(recorder, rows);
  }

  Result<std::span<const float>> single_step(const DecodeProgram& program) {
    Recorder recorder(*context_.device);
    program.record_logits(recorder);
    const std::uint64_t bytes = std::uint64_t{plan().vocab_size} * 4;
    if (tap_ != nullptr) DOPPLER_TRY(copy_looks(*tap_, *input_, taps_, recorder));
    recorder.copy(program.logits(), 0, logits_back_, 0, bytes);
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder.submit());
    if (tap_ != nullptr) DOPPLER_TRY(taps_.deliver(submission, *tap_));
    DOPPLER_TRY(context_.device->read(logits_back_, bytes, submission, [&](std::span<const std::byte> from) {
      std::memcpy(logits_.data(), from.data(), from.size());
    }));
    ++lengths_[static_cast<std::size_t>(input_->slots[0])];
    return std::span<const float>(logits_);
  }

  GpuBackend(std::shared_ptr<Device> device, Plan plan, const Weights& weights, BackendOptions options)
      : context_(std::move(device), std::move(plan), weights, options),
        taps_(*context_.device),
        lengths_(options.slots) {}

  static Status check_kv(const Plan& plan, const BackendOptions& options) {
    if (options.kv_type == KvType::kQ8_0) {
      return fail(ErrorCode::kUnsupported,
                  "The gpu backend keeps keys and values as f32 or f16, not as q8_0. Leave --kv-type out.");
    }
    for (const KvLayer& layer : plan.kv_layers) {
      if (layer.head_dim % 2 != 0 && options.kv_type == KvType::kF16)
        return fail(
            ErrorCode::kUnsupported,
            "The gpu backend needs an even head size for f16 keys, but this model has {}. Use --kv-type "
            "f32.",
            layer.head_dim);
    }
    return {};
  }

  Status prepare() {
    const std::uint32_t most = context_.device->limits().workgroups_per_dimension;
    if (context_.options.max_step_tokens > most) {
      return fail(ErrorCode::kUsage, "A step of {} tokens exceeds what the GPU {} takes, {}.",
                  context_.options.max_step_tokens, context_.device->adapter().name, most);
    }
    DOPPLER_TRY(context_.allocate());
    const std::uint64_t row_bytes = std::uint64_t{plan().vocab_size} * 4;
    const std::uint64_t rows = std::clamp<std::uint64_t>(
        std::min(kMostLogitBytes, context_.device->limits().binding_bytes) / row_bytes, 1,
        context_.options.max_step_tokens);
    DOPPLER_ASSIGN(batch_, BatchProgram::create(context_, static_cast<std::uint32_t>(rows)));
    if (context_.options.gpu.tune && !context_.device->adapter().software()) load_tuned(context_);
    auto decode = options().fault == nullptr
                      ? DecodeProgram::create(context_)
                      : fail(ErrorCode::kUnsupported, "A fault is put in, which has to reach every stage.");
    if (decode) {
      decode_ = std::move(*decode);
      DOPPLER_TRY(use_tuned());
    } else if (decode.error().code == ErrorCode::kUnsupported) {
      why_no_decode_ = decode.error().message;
    } else {
      return std::unexpected(std::move(decode).error());
    }
    for (const auto& [ids, matrix] : context_.matrices) {
      weight_bytes_ += matrix.bytes;
      eight_bits_ = eight_bits_ || context_.eight_bits(matrix);
    }
    DOPPLER_ASSIGN(logits_back_, context_.device->make_read_back("logits", rows * row_bytes));
    if (context_.self_check) context_.self_check->remember();
    return {};
  }

  // The fastest shapes of the decode kernels: measured at the first load on an adapter, remembered for later
  // ones. A software adapter is not measured: nobody waits for it.
  Status use_tuned() {
    constexpr double kSeconds = 1.2;  // of measuring, at the first load
    constexpr std::size_t kCandidates =
        5;  // for each kind of kernel; each takes the driver some tens of milliseconds
    DOPPLER_TRY(decode_->prepare_greedy(context_, -1));
    if (!context_.options.gpu.tune || context_.device->adapter().software() || decode_->is_tuned(context_))
      return {};
    DOPPLER_TRY(tune(context_, *decode_, kSeconds, kCandidates));
    store_tuned(context_);
    return {};
  }

  Status write_words(std::uint32_t at, std::span<const std::uint32_t> words) {
    return context_.device->write(context_.step, std::uint64_t{at} * 4, std::as_bytes(words));
  }

  Status write_step(const StepInput& input) {
    const auto as_words = [](const std::vector<std::int32_t>& values) {
      return std::span(reinterpret_cast<const std::uint32_t*>(values.data()), values.size());
    };
    longest_ =
        1 + static_cast<std::uint32_t>(*std::max_element(input.positions.begin(), input.positions.end()));
    const std::uint32_t header[] = {static_cast<std::uint32_t>(input.size()),
                                    static_cast<std::uint32_t>(wanted_.size()), longest_, 0};
    DOPPLER_TRY(write_words(0, header));
    DOPPLER_TRY(write_words(context_.layout.ids(), as_words(input.ids)));
    DOPPLER_TRY(write_words(context_.layout.positions(), as_words(input.positions)));
    return write_words(context_.layout.slots(), as_words(input.slots));
  }

  // Ops [begin, end) in one submission, or in several where a tap wants more than fits at a time.
  Status run(std::size_t begin, std::size_t end, std::size_t wanted) {
    std::optional<Recorder> recorder(std::in_place, *context_.device);
    const StepShape shape{static_cast<std::uint32_t>(input_->size()), static_cast<std::uint32_t>(wanted),
                          has_runs(*input_) && options().fault == nullptr};
    for (std::size_t i = begin; i < end; ++i) {
      const Op& op = plan().ops[i];
      if (options().fault == nullptr) {
        DOPPLER_TRY(batch_->record(context_, *recorder, i, i + 1, shape, tap_));
      } else {
        DOPPLER_TRY(run_faulty(i, shape, recorder));
      }
      if (tap_ == nullptr) continue;
      if (op.kind == OpKind::kAttention && tap_->wants(Stage::kAttnScores, op.layer))
        DOPPLER_TRY(emit_scores(i, shape, recorder));
      for (const ValueId id : op.outputs) DOPPLER_TRY(report(id, wanted, recorder));
    }
    if (context_.self_check) context_.self_check->remember();  // of kernels made for this step
    if (wanted > 0) {
      const ValueView& logits = batch_->value(plan().logits);
      const std::uint64_t bytes = std::uint64_t{wanted} * plan().vocab_size * 4;
      recorder->copy(logits.buffer, 0, logits_back_, 0, bytes);
      DOPPLER_ASSIGN(const std::uint64_t submission, recorder->submit());
      if (tap_ != nullptr) DOPPLER_TRY(taps_.deliver(submission, *tap_));
      return context_.device->read(logits_back_, bytes, submission, [&](std::span<const std::byte> from) {
        std::memcpy(logits_.data() + first_wanted_ * plan().vocab_size, from.data(), from.size());
      });
    }
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder->submit());
    if (tap_ != nullptr) DOPPLER_TRY(taps_.deliver(submission, *tap_));
    return {};
  }

  // An op with a fault around it: the tokens as it sees them, its values as they become.
  Status run_faulty(std::size_t index, const StepShape& shape, std::optional<Recorder>& recorder) {
    const Op& op = plan().ops[index];
    if (op.kind == OpKind::kAttention) {
      DOPPLER_TRY(look(op, Fault::Moment::kAppend, recorder));
      DOPPLER_TRY(batch_->record_attention(context_, *recorder, index, shape, true));
      DOPPLER_TRY(look(op, Fault::Moment::kAttend, recorder));
      DOPPLER_TRY(batch_->record_attention(context_, *recorder, index, shape, false));
    } else {
      DOPPLER_TRY(look(op, Fault::Moment::kOp, recorder));
      DOPPLER_TRY(batch_->record(context_, *recorder, index, index + 1, shape, nullptr));
    }
    for (const ValueId id : op.outputs) {
      if (options().fault->wants(plan(), id)) DOPPLER_TRY(spoil(id, shape, recorder));
    }
    return {};
  }

  // The step's buffer is rewritten between submissions.
  Status look(const Op& op, Fault::Moment moment, std::optional<Recorder>& recorder) {
    DOPPLER_ASSIGN(const StepInput* seen, as_seen(*options().fault, op, moment, *input_, plan(), options()));
    if (seen->ids == seen_.ids && seen->positions == seen_.positions && seen->slots == seen_.slots) return {};
    DOPPLER_TRY(flush(recorder));
    seen_ = *seen;
    return write_step(seen_);
  }

  // Submits what is recorded, and hands the tap what it has looked at.
  Status flush(std::optional<Recorder>& recorder) {
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder->submit());
    if (tap_ != nullptr) DOPPLER_TRY(taps_.deliver(submission, *tap_));
    recorder.emplace(*context_.device);
    return {};
  }

  // Fetches the value, has it changed, and puts it back.
  Status spoil(ValueId id, const StepShape& shape, std::optional<Recorder>& recorder) {
    struct Fetch final : Tap {
      std::vector<float> data;
      bool wants(Stage, int) const override { return true; }
      void on_stage(const TapEvent& event) override { data.assign(event.data.begin(), event.data.end()); }
    } fetch;
    const Value& v = plan().values[id];
    const ValueView& view = batch_->value(id);
    const std::size_t rows = v.rows == Rows::kAll ? shape.tokens : shape.wanted;
    if (rows == 0) return {};
    DOPPLER_TRY(flush(recorder));
    TapCopy copy(*context_.device);
    DOPPLER_TRY(copy.copy(*recorder, view, {v.stage, v.layer, {}, rows, v.width, v.heads, input_}));
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder->submit());
    DOPPLER_TRY(copy.deliver(submission, fetch));
    recorder.emplace(*context_.device);
    if (!options().fault->after({plan(), id, *input_, fetch.data, rows})) return {};
    for (std::size_t row = 0; row < rows; ++row) {
      DOPPLER_TRY(context_.device->write(
          view.buffer, (row * view.stride + view.offset) * 4,
          std::as_bytes(std::span<const float>(fetch.data).subspan(row * v.width, v.width))));
    }
    return {};
  }

  // Makes room for a value's rows among the pending copies.
  Status make_room(std::uint64_t floats, std::optional<Recorder>& recorder) {
    if (taps_.has_room(floats) || taps_.empty()) return {};
    DOPPLER_ASSIGN(const std::uint64_t submission, recorder->submit());
    DOPPLER_TRY(taps_.deliver(submission, *tap_));
    recorder.emplace(*context_.device);
    return {};
  }

  Status report(ValueId id, std::size_t wanted, std::optional<Recorder>& recorder) {
    const Value& v = plan().values[id];
    if (v.stage == Stage::kNone) return {};
    const std::size_t rows = v.rows == Rows::kAll ? input_->size() : wanted;
    const auto send = [&](Stage stage, int layer) -> Status {
      if (!tap_->wants(stage, layer)) return {};
      DOPPLER_TRY(make_room(std::uint64_t{rows} * v.width, recorder));
      return taps_.copy(*recorder, batch_->value(id), {stage, layer, {}, rows, v.width, v.heads, input_});
    };
    DOPPLER_TRY(send(v.stage, v.layer));
    // The residual stream that enters a layer is what the embedding or the layer before has left.
    const bool feeds_layer = v.stage == Stage::kEmbedOut || v.stage == Stage::kLayerOut;
    if (feeds_layer && static_cast<std::size_t>(v.layer + 1) < plan().kv_layers.size())
      return send(Stage::kAttnInput, v.layer + 1);
    return {};
  }

  // Runs the attention once more with its scores stored: the same arithmetic over the same cache.
  Status emit_scores(std::size_t index, const StepShape& shape, std::optional<Recorder>& recorder) {
    const Op& op = plan().ops[index];
    const std::uint32_t heads = std::get<AttentionParams>(op.params).heads;
    const std::uint64_t floats = std::uint64_t{input_->size()} * heads * longest_;
    DOPPLER_TRY(make_room(floats, recorder));
    DOPPLER_ASSIGN(const Buffer scores,
                   context_.device->make_filled("scores", floats * 4, [](std::span<std::byte> out) {
                     const float masked = -std::numeric_limits<float>::infinity();
                     for (std::size_t i = 0; i + 4 <= out.size(); i += 4) std::memcpy(&out[i], &masked, 4);
                   }));
    DOPPLER_TRY(batch_->record_scores(context_, *recorder, index, shape, scores));
    const std::uint32_t width = heads * longest_;
    return taps_.copy(*recorder, {scores, width, 0, width},
                      {Stage::kAttnScores, op.layer, {}, input_->size(), width, heads, input_});
  }

  Context context_;
  TapCopy taps_;
  std::optional<BatchProgram> batch_;
  std::optional<DecodeProgram> decode_;
  std::optional<ReadBandwidth> bandwidth_;
  std::string why_no_decode_;
  std::optional<DecodeProgram> looking_;  // made when a tap first looks at a single token
  std::string why_no_looking_;
  std::optional<Sampling> sampling_, looking_sampling_;  // made when first needed
  std::optional<Flying> flying_;
  std::vector<Buffer> spare_;  // read-back buffers
  std::vector<std::unique_ptr<TapCopy>> spare_looks_;
  std::vector<TokenId> tokens_;
  Buffer logits_back_;
  std::vector<float> logits_;
  std::vector<std::uint64_t> lengths_;
  std::vector<std::uint32_t> wanted_;
  std::size_t first_wanted_ = 0;
  std::uint32_t longest_ = 0;
  std::uint64_t weight_bytes_ = 0;
  bool eight_bits_ = false;
  const StepInput* input_ = nullptr;
  StepInput seen_;  // what lies in `step` of it: the same, but for a fault
  Tap* tap_ = nullptr;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelSpec& spec, const Weights& weights,
                                                  const BackendOptions& options) {
  DOPPLER_TRY(check_backend_options(options));
  return GpuBackend::create(spec, weights, options);
}

}  // namespace doppler
