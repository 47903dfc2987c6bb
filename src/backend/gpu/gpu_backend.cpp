#include "backend/gpu/gpu_backend.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/gpu/bandwidth.h"
#include "backend/gpu/batch_runner.h"
#include "backend/gpu/context.h"
#include "backend/gpu/few_rows_shape.h"
#include "backend/gpu/gpu_cache.h"
#include "backend/gpu/guess_check.h"
#include "backend/gpu/guess_runner.h"
#include "backend/gpu/kernel_report.h"
#include "backend/gpu/sequences_runner.h"
#include "backend/gpu/stopwatch.h"
#include "backend/gpu/token_check.h"
#include "backend/gpu/token_runner.h"
#include "backend/gpu/tune.h"
#include "backend/gpu_report.h"
#include "backend/step_trace.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/fuse.h"

namespace doppler {
namespace {

using namespace gpu;

// Passes whose kernels do not store every stage: off while a fault is in, which must reach every stage.
constexpr std::string_view kHidingPasses[] = {kPassBatchNorm, kPassBatchGated, kPassBatchRope};

// Tokens of a step where the options give no number: a large GPU is idle for most of a smaller step.
constexpr std::uint32_t kStepTokens = 512;

// Logits that are made at a time: a prompt whose every token wants 262144 of them comes in pieces.
constexpr std::uint64_t kMostLogitBytes = 64 << 20;

// The numbers of the step's tokens whose logits are wanted.
std::vector<std::uint32_t> wanted_of(const StepInput& input) {
  std::vector<std::uint32_t> wanted;
  for (std::size_t t = 0; t < input.size(); ++t) {
    if (input.wants_logits[t]) wanted.push_back(static_cast<std::uint32_t>(t));
  }
  return wanted;
}

class GpuBackend final : public Backend, private Continuer, private DeviceView {
 public:
  static Result<std::unique_ptr<Backend>> create(const ModelSpec& spec, const Weights& weights,
                                                 const BackendOptions& options) {
    DOPPLER_ASSIGN(std::shared_ptr<Device> device, Device::open(options.gpu, options.gpu_setup));
    DOPPLER_ASSIGN(Plan plan, plan_for(spec, weights, options));
    BackendOptions chosen = options;
    chosen.shared.reset();  // its weights lie on the device
    if (options.fault != nullptr) {
      for (const std::string_view pass : kHidingPasses) chosen.disabled_passes.emplace_back(pass);
    }
    DOPPLER_TRY(fuse_plan(plan, weights, kGpuPasses, chosen.disabled_passes));
    if (!options.gpu_setup.shader_edits.empty()) chosen.gpu_setup.tune = false;  // its results are kept
    chosen.max_step_tokens = options.max_step_tokens.value_or(kStepTokens);
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
  Precision precision() const override {
    const bool half_cache = context_.options.kv_type == KvType::kF16;
    const bool halves = batch_ && batch_->multiplies_halves();
    return {.rounding = eight_bits_  ? Rounding::kEightBits
                        : halves     ? Rounding::kHalf
                        : half_cache ? Rounding::kHalfCache
                                     : Rounding::kFloat,
            .half_products = halves,
            .half_parts = half_cache,
            .wide_blocks_from = batch_ && batch_->has_wide_reads() ? kFewRows + 1 : 0};
  }
  Continuer* continuer() override { return runner_ ? this : nullptr; }
  DeviceView* device() override { return this; }
  MemoryUse memory() const override {
    const std::uint64_t cache = context_.cache_bytes(), weights = context_.weight_bytes();
    return {.cache = cache, .activations = context_.bytes() - cache - weights, .weights = weights};
  }

  Result<std::vector<VariantRow>> describe() override {
    std::vector<VariantRow> rows;
    if (runner_) {
      DOPPLER_ASSIGN(const std::vector<Piece> pieces, all_decode_pieces());
      rows = variant_rows(context_.device->features(), pieces);
      for (const auto& [group, why] : runner_->program().declined())
        rows.push_back({.what = fmt::format("decode: {}", op_title(plan(), plan().ops[group.first])),
                        .variant = fmt::format("without {}", group.pass),
                        .why = why});
    } else {
      rows.push_back({.what = "decode", .variant = "as a batch", .why = why_no_runner_});
    }
    DOPPLER_ASSIGN(const std::vector<Piece> pieces, batch_pieces(prompt_step()));
    std::vector<VariantRow> batch = variant_rows(context_.device->features(), pieces);
    std::ranges::move(batch, std::back_inserter(rows));
    if (context_.self_check) {
      for (const std::string& refusal : context_.self_check->refusals())
        rows.push_back({.what = "refused", .variant = "", .why = refusal});
    }
    return rows;
  }
  std::size_t rows_that_agree() const override {
    const bool alike = runner_ && runner_->program().declined().empty() &&
                       batch_->agrees_in_company(plan()) && has_pass(plan(), kPassBatchGemm);
    return alike ? std::min({kMostInLine, batch_->wanted_rows(), context_.layout.tokens}) : 1;
  }
  std::uint64_t length(std::uint32_t slot) const override { return lengths_[slot]; }
  void clear(std::uint32_t slot) override { lengths_.clear(slot); }
  CacheAccess* cache() override { return &cache_; }

  Result<std::span<const float>> step(const StepInput& input, Tap* tap) override {
    DOPPLER_TRY(begin_step(input, UINT32_MAX));
    logits_.resize(steps_->wanted().size() * plan().vocab_size);
    if (runner_ && input.size() == 1 && steps_->wanted().size() == 1) {
      DOPPLER_ASSIGN(const DecodeProgram* program, runner_->program_for(tap));
      if (program != nullptr) {
        DOPPLER_TRY(runner_->step(*program, input, tap, steps_->logits_back(), logits_));
        lengths_.grow(static_cast<std::size_t>(input.slots[0]));
        return std::span<const float>(logits_);
      }
      note({"While something looks at every token, each is computed as a batch of one, which is slower.",
            "The program for single tokens does not show attn_scores, or the device binds too few buffers."});
    }
    const Status done = steps_->run(input, tap, logits_);
    remember_checks();  // of kernels made for this step
    DOPPLER_TRY(done);
    for (const std::int32_t slot : input.slots) lengths_.grow(static_cast<std::size_t>(slot));
    return std::span<const float>(logits_);
  }

 private:
  // --- Continuer

  bool can_continue(const GenerateOptions& sampling) override {
    const std::string why = runner_->why_not(sampling);
    if (!why.empty()) note({"Every token is chosen on the CPU, which is slower than on the device.", why});
    return why.empty();
  }

  Status continue_sequence(const Continuation& continuation) override {
    if (is_continuing() || is_together())
      return fail(ErrorCode::kUsage, "A sequence is being continued already.");
    if (!can_continue(*continuation.sampling))
      return fail(ErrorCode::kUnsupported, "The gpu backend does not sample with these options by itself.");
    if (!continuation.guesses.empty()) return guess_sequence(continuation);
    DOPPLER_ASSIGN(const StepInput input, first_step_of(continuation));
    DOPPLER_TRY(steps_->write(input, {}));
    return runner_->begin(continuation, lengths_[continuation.slot]);
  }

  Status guess_sequence(const Continuation& c) {
    const std::size_t rows = 1 + c.guesses.size();
    if (!can_guess(*c.sampling, c.guesses.size()) || c.tap != nullptr) {
      return fail(
          ErrorCode::kUnsupported,
          "The gpu backend does not guess so many tokens by itself, with these options, or with a tap.");
    }
    DOPPLER_ASSIGN(StepInput input, first_step_of(c));
    if (c.history.size() != lengths_[c.slot] + 1)
      return fail(ErrorCode::kUsage, "A sequence that is guessed ahead needs all its tokens.");
    for (std::size_t i = 0; i + 1 < rows; ++i)
      input.add(c.guesses[i], lengths_[c.slot] + i + 1, c.slot, true);
    DOPPLER_TRY(check_step(input, plan(), options(), lengths_.all()));
    DOPPLER_TRY(prepare_check(rows, *c.sampling));
    DOPPLER_TRY(steps_->write(input, wanted_of(input), static_cast<std::uint32_t>(c.pad_id)));
    DOPPLER_TRY(steps_->write_wanted());
    return guesser_->begin(c, lengths_[c.slot], *checker_);
  }

  Result<std::span<const TokenId>> next_tokens() override {
    if (!is_continuing()) return fail(ErrorCode::kUsage, "No sequence is being continued.");
    return is_guessing() ? guesser_->next_tokens(*checker_) : runner_->next_tokens();
  }

  bool wind_down() override {
    if (!is_continuing()) return false;
    is_guessing() ? guesser_->wind_down() : runner_->wind_down();
    return true;
  }

  bool can_check(const GenerateOptions& sampling) override {
    return rows_that_agree() > 1 && can_continue(sampling);
  }

  bool can_guess(const GenerateOptions& sampling, std::size_t guesses) override {
    return guesses > 0 && guesses < rows_that_agree() &&
           GuessRunner::most_flights(options(), guesses + 1) > 0 && can_continue(sampling);
  }

  Status prepare_check(std::size_t tokens, const GenerateOptions& sampling) override {
    if (!checker_) {
      DOPPLER_ASSIGN(checker_, GuessCheck::create(context_, *batch_));
    }
    Status prepared = checker_->prepare(tokens, sampling);
    remember_checks();  // of kernels made for it
    DOPPLER_TRY(prepared);
    if (rows_that_agree() < tokens) {
      return fail(ErrorCode::kUnsupported,
                  "The GPU {} attends for several tokens otherwise than for one, because a kernel of several "
                  "is refused.",
                  context_.device->adapter().name);
    }
    if (!can_guess(sampling, tokens - 1)) return {};
    if (!guesser_ || guesser_->rows() != tokens) {
      DOPPLER_ASSIGN(guesser_, GuessRunner::create(context_, static_cast<std::uint32_t>(tokens)));
    }
    return guesser_->prepare(*checker_, sampling);
  }

  Result<std::span<const TokenId>> check(const StepInput& input, const Continuation& first) override {
    if (!are_in_line(input) || input.size() > rows_that_agree())
      return fail(ErrorCode::kUsage, "A check takes 2 to {} tokens of a sequence, all with their logits.",
                  rows_that_agree());
    DOPPLER_TRY(prepare_check(input.size(), *first.sampling));
    DOPPLER_TRY(begin_step(input, static_cast<std::uint32_t>(first.pad_id)));
    DOPPLER_TRY(steps_->write_wanted());
    DOPPLER_ASSIGN(const auto chosen, checker_->run(input.size(), first));
    for (const std::int32_t slot : input.slots) lengths_.grow(static_cast<std::size_t>(slot));
    return chosen;
  }

  Status stop_sequence(std::uint64_t length) override {
    if (!is_continuing()) return fail(ErrorCode::kUsage, "No sequence is being continued.");
    DOPPLER_ASSIGN(const TokenRunner::Ended ended,
                   is_guessing() ? guesser_->end(length) : runner_->end(length));
    lengths_.keep(ended.slot, ended.length, ended.written);
    return {};
  }

  std::uint32_t most_together() override {
    if (is_recurrent(plan().kv_layers)) {
      note({"Sequences that grow together run step by step, and their tokens are chosen on the CPU.",
            "The model has recurrent layers, whose states do not go back to where a sequence ended."});
      return 0;
    }
    return std::min({SequencesRunner::kMost, batch_->wanted_rows(), context_.layout.tokens});
  }

  Status join(const Continuation& continuation) override {
    if (is_continuing())
      return fail(ErrorCode::kUsage, "A sequence is being continued by itself. Stop it before others join.");
    if (most_together() == 0 || continuation.tap != nullptr || !can_continue(*continuation.sampling)) {
      return fail(ErrorCode::kUnsupported,
                  "The gpu backend does not continue several sequences of this model, with these options, or "
                  "with a tap, by itself.");
    }
    DOPPLER_TRY(first_step_of(continuation));
    DOPPLER_TRY(make_sequences());
    return sequences_->join(continuation, lengths_[continuation.slot]);
  }

  Result<std::span<const SlotToken>> tokens_of_all() override {
    if (!is_together()) return std::span<const SlotToken>();
    const std::vector<std::uint32_t> slots = sequences_->slots();
    auto tokens = sequences_->next_tokens();
    remember_checks();  // of kernels made for these steps
    if (!tokens) {
      for (const std::uint32_t slot : slots) lengths_.clear(slot);
    }
    return tokens;
  }

  Status leave(std::uint32_t slot, std::uint64_t length) override {
    if (!is_together() || !sequences_->has(slot))
      return fail(ErrorCode::kUsage, "The sequence in slot {} is not being continued.", slot);
    DOPPLER_ASSIGN(const SequencesRunner::Ended ended, sequences_->leave(slot, length));
    lengths_.keep(slot, ended.length, ended.written);
    return {};
  }

  Status make_sequences() {
    if (sequences_) return {};
    DOPPLER_ASSIGN(sequences_, SequencesRunner::create(context_, *batch_, most_together()));
    return {};
  }

  // Checks a step, makes room for it, and tells the device. `pad`: a token that is never chosen.
  Status begin_step(const StepInput& input, std::uint32_t pad) {
    DOPPLER_TRY(check_step(input, plan(), options(), lengths_.all()));
    if (is_continuing())
      return fail(ErrorCode::kUsage, "A sequence is being continued. Stop it before the next step.");
    if (is_together()) DOPPLER_TRY(make_way(input));
    DOPPLER_TRY(reserve(input));
    trace_kv(plan(), options(), input, lengths_.all());
    return steps_->write(input, wanted_of(input), pad);
  }

  // Pages for the step's tokens; where they run out, no slot keeps any for tokens that it did not get.
  Status reserve(const StepInput& input) {
    if (context_.pages.empty()) return {};
    const auto tokens = tokens_by_slot(input);
    for (const auto& [slot, count] : tokens) {
      if (Status reserved = context_.reserve(slot, lengths_[slot], lengths_[slot] + count); !reserved) {
        for (const auto& [other, unused] : tokens) context_.pages.cut(other, lengths_[other]);
        return reserved;
      }
    }
    return {};
  }

  bool is_together() const { return sequences_ && !sequences_->empty(); }

  // A step between those of sequences that continue together.
  Status make_way(const StepInput& input) {
    for (const std::int32_t slot : input.slots) {
      if (sequences_->has(static_cast<std::uint32_t>(slot)))
        return fail(ErrorCode::kUsage, "The sequence in slot {} is being continued. Take it out first.",
                    slot);
    }
    return sequences_->settle();
  }

  // The step that a continuation begins with, checked.
  Result<StepInput> first_step_of(const Continuation& continuation) const {
    StepInput input;
    input.add(continuation.id, 0, continuation.slot, true);
    if (continuation.slot < lengths_.size())
      input.positions[0] = static_cast<std::int32_t>(lengths_[continuation.slot]);
    DOPPLER_TRY(check_step(input, plan(), options(), lengths_.all()));
    return input;
  }

  // --- DeviceView

  DeviceInfo info() const override { return info_of(context_.device->adapter()); }
  DeviceCounters counters() const override {
    const Device::Counters& c = context_.device->counters;
    return {.submits = c.submits,
            .dispatches = c.dispatches,
            .read_backs = c.read_backs,
            .read_back_bytes = c.read_back_bytes,
            .written_bytes = c.written_bytes};
  }
  Result<double> measure_read_bandwidth(std::uint64_t bytes) override {
    if (!bandwidth_) {
      DOPPLER_ASSIGN(bandwidth_, ReadBandwidth::create(*context_.device, bytes));
    }
    return bandwidth_->measure();
  }
  Result<std::vector<KernelTime>> time_kernels(std::uint32_t sequences) override {
    const auto rests = [&](std::uint64_t length) { return length > 0; };
    if (sequences == 0 || sequences > lengths_.size() ||
        !std::ranges::all_of(lengths_.all().first(sequences), rests) || is_continuing() || is_together()) {
      return fail(ErrorCode::kUsage,
                  "Kernels are timed at the end of sequences that rest in the slots from 0 on.");
    }
    std::vector<Piece> pieces;
    if (sequences > 1) {
      DOPPLER_ASSIGN(pieces, pieces_together(sequences));
    } else if (runner_) {
      DOPPLER_ASSIGN(pieces, decode_pieces(lengths_[0] - 1));
    } else {
      DOPPLER_ASSIGN(pieces, batch_pieces({1, 1}));
    }
    StepInput last;
    for (std::uint32_t slot = 0; slot < sequences; ++slot) last.add(0, lengths_[slot] - 1, slot, true);
    DOPPLER_TRY(steps_->write(last, wanted_of(last)));
    DOPPLER_TRY(steps_->write_wanted());
    const std::uint64_t tokens = lengths_[0];
    for (std::uint32_t slot = 0; slot < sequences; ++slot) clear(slot);
    DOPPLER_TRY(wake(context_, {&pieces.front().dispatch, 1}));
    DOPPLER_ASSIGN(std::vector<KernelTime> times, time_pieces(*context_.device, pieces, tokens));
    if (runner_) DOPPLER_TRY(runner_->program().clear_handed(*context_.device));
    return times;
  }

  Result<std::vector<KernelCheck>> check_kernels() override {
    if (is_continuing() || is_together())
      return fail(ErrorCode::kUsage, "A sequence is being continued. Stop it before kernels are checked.");
    DOPPLER_ASSIGN(std::vector<Piece> pieces, batch_pieces(prompt_step()));
    if (const auto rows = static_cast<std::uint32_t>(std::min<std::size_t>(rows_that_agree(), kLeastInLine));
        rows > 1) {
      const StepShape guesses{.tokens = rows, .wanted = rows, .apart = true, .in_line = true};
      DOPPLER_ASSIGN(std::vector<Piece> checks, batch_pieces(guesses));
      std::ranges::move(checks, std::back_inserter(pieces));
    }
    if (runner_) {
      DOPPLER_ASSIGN(std::vector<Piece> decode, all_decode_pieces());
      pieces.insert(pieces.begin(), std::make_move_iterator(decode.begin()),
                    std::make_move_iterator(decode.end()));
    }
    DOPPLER_ASSIGN(std::vector<KernelCheck> checks, gpu::check_kernels(*context_.device, pieces));
    if (context_.self_check) {
      for (const std::string& refusal : context_.self_check->refusals())
        checks.push_back({.what = "refused at load",
                          .kernel = "",
                          .result = KernelCheck::Result::kWrong,
                          .difference = refusal});
    }
    if (runner_) {
      std::optional<TokenRunner> runner =
          std::exchange(runner_, std::nullopt);  // what is expected comes from the batch program
      const Result<std::vector<CheckedToken>> expected = check_tokens(*this);
      runner_.emplace(std::move(*runner));
      if (!expected) return std::unexpected(expected.error());
      DOPPLER_ASSIGN(std::string wrong, wrong_with_runner(*expected));
      const auto result = wrong.empty() ? KernelCheck::Result::kRight : KernelCheck::Result::kWrong;
      checks.push_back(
          {.what = "single tokens, whole", .kernel = "", .result = result, .difference = std::move(wrong)});
    }
    clear(0);
    return checks;
  }

  // --- what both programs run

  // The kernels of a token at that position that the backend generates by itself.
  Result<std::vector<Piece>> decode_pieces(std::uint64_t position) {
    std::vector<FixedDispatch> list;
    Recorder recorder(*context_.device, list);
    runner_->program().record_greedy(recorder, position, TokenFrom::kBefore);
    std::vector<Piece> pieces;
    for (FixedDispatch& recorded : list) {
      std::string what = fused_title(recorded.kernel.kernel().label());
      pieces.push_back({std::move(what), std::move(recorded)});
    }
    return pieces;
  }

  // Those of any position.
  Result<std::vector<Piece>> all_decode_pieces() {
    DOPPLER_ASSIGN(std::vector<Piece> pieces, decode_pieces(0));
    if (!runner_->program().varies_by_position()) return pieces;
    DOPPLER_ASSIGN(const std::vector<Piece> late, decode_pieces(UINT64_MAX));
    pieces.insert(pieces.end(), late.begin(), late.end());
    return pieces;
  }

  // The step of a long prompt, the logits of whose last token are wanted.
  StepShape prompt_step() const {
    StepInput one_sequence;
    for (std::uint32_t i = 0; i < step_tokens(options()); ++i) one_sequence.add(0, i, 0, false);
    return {.tokens = step_tokens(options()), .wanted = 1, .runs = has_runs(one_sequence)};
  }

  // The kernels of a step of so many sequences that continue together.
  Result<std::vector<Piece>> pieces_together(std::uint32_t sequences) {
    const std::uint32_t most = runner_ ? most_together() : 0;
    if (sequences > most) {
      return fail(ErrorCode::kUnsupported, "{} sequences of this model continue together at most, not {}.",
                  most, sequences);
    }
    DOPPLER_TRY(make_sequences());
    DOPPLER_ASSIGN(std::vector<Piece> pieces,
                   batch_pieces({.tokens = sequences, .wanted = sequences, .apart = true}));
    for (const FixedDispatch& each : sequences_->choice(sequences))
      pieces.push_back({fused_title(each.kernel.kernel().label()), each});
    return pieces;
  }

  // The kernels of a step of the batch program.
  Result<std::vector<Piece>> batch_pieces(const StepShape& shape) {
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < plan().ops.size(); ++i) {
      std::vector<FixedDispatch> list;
      Recorder recorder(*context_.device, list);
      DOPPLER_TRY(batch_->record(context_, recorder, i, i + 1, shape, nullptr));
      for (FixedDispatch& recorded : list)
        pieces.push_back({fmt::format("step of {}: {}", shape.tokens, op_title(plan(), plan().ops[i])),
                          std::move(recorded)});
    }
    return pieces;
  }

  bool is_guessing() const { return guesser_ && guesser_->is_continuing(); }
  bool is_continuing() const { return is_guessing() || (runner_ && runner_->is_continuing()); }

  GpuBackend(std::shared_ptr<Device> device, Plan plan, const Weights& weights, BackendOptions options)
      : context_(std::move(device), std::move(plan), weights, options),
        lengths_(context_.plan.kv_layers, options.context, options.slots, ring_reach(options),
                 context_.pages) {}

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
    const std::uint32_t tokens = step_tokens(options());
    if (tokens > most) {
      return fail(ErrorCode::kUsage, "A step of {} tokens exceeds what the GPU {} takes, {}.", tokens,
                  context_.device->adapter().name, most);
    }
    DOPPLER_TRY(context_.allocate());
    if (context_.has_fewer_positions) note(fewer_positions(options()));
    const std::uint64_t row_bytes = std::uint64_t{plan().vocab_size} * 4;
    const std::uint64_t rows = std::clamp<std::uint64_t>(
        std::min(kMostLogitBytes, context_.device->limits().binding_bytes) / row_bytes, 1, tokens);
    DOPPLER_ASSIGN(batch_, BatchProgram::create(context_, static_cast<std::uint32_t>(rows)));
    for (const auto& [ids, matrix] : context_.matrices)
      eight_bits_ = eight_bits_ || context_.eight_bits(matrix);
    DOPPLER_ASSIGN(BatchRunner steps, BatchRunner::create(context_, *batch_));
    steps_.emplace(std::move(steps));
    if (!context_.device->features().subgroups) {
      note({"Kernels sum without subgroups, which is slower.",
            fmt::format("The GPU {} has no subgroups that can be used.", context_.device->adapter().name)});
    }
    DOPPLER_TRY(prepare_runner());
    context_.device->release_staging();
    remember_checks();
    trace_loading();
    return {};
  }

  void trace_loading() const {
    if (!trace_wanted(Category::kLoader)) return;
    const Device::LoadSeconds& s = context_.device->loading;
    trace(Category::kLoader, -1,
          fmt::format("GPU: weights {:.2f} s ({}), {} kernels {:.2f} s, their check {:.2f} s, measuring "
                      "shapes {:.2f} s, "
                      "check of tokens {:.2f} s",
                      s.weights, human_bytes(context_.weight_bytes()), context_.kernels.size(), s.compiling,
                      s.checking, s.tuning, check_seconds_),
          -1,
          dump_json({{"weights_s", s.weights},
                     {"weight_bytes", context_.weight_bytes()},
                     {"kernels", context_.kernels.size()},
                     {"compiling_s", s.compiling},
                     {"checking_s", s.checking},
                     {"tuning_s", s.tuning},
                     {"token_check_s", check_seconds_}}));
  }

  // Stores the results of the kernels' self-checks, and notes those that were refused.
  void remember_checks() {
    if (!context_.self_check) return;
    context_.self_check->remember();
    for (const std::string& refusal : context_.self_check->refusals())
      note({"A slower kernel runs instead of the one made for it.", refusal});
  }

  // The program for single tokens: with the shapes that were measured, or with the next in rank where these
  // give other results than the batch program. The last refusal stays in why_no_runner_.
  Status prepare_runner() {
    if (options().fault != nullptr) {
      why_no_runner_ = "A fault is put in, which has to reach every stage.";
      return {};
    }
    if (context_.self_check) context_.kernels.expect([this] { return checked_kernels(); });
    for (const ShapeChoice choice : TokenRunner::choices(context_)) {
      auto runner = TokenRunner::create(context_, choice);
      if (!runner && runner.error().code != ErrorCode::kUnsupported)
        return std::unexpected(std::move(runner).error());
      if (!runner) {
        why_no_runner_ = std::move(runner).error().message;
        break;  // the reason is the plan or the device, not the shapes
      }
      DOPPLER_ASSIGN(const std::string wrong, check_runner(std::move(*runner)));
      if (wrong.empty()) {
        runner_->keep_shapes(choice);
        if (!why_no_runner_.empty())
          note({"The kernels for single tokens have other shapes than the fastest.", why_no_runner_});
        why_no_runner_.clear();
        for (const auto& [group, why] : runner_->program().declined()) {
          note({"Ops of single tokens that have a kernel together run one by one, which is slower.",
                fmt::format("The GPU {} does not take it: {}.", context_.device->adapter().name, why)});
        }
        return {};
      }
      why_no_runner_ = fmt::format("The GPU {} computes single tokens wrongly: the program for them {}.",
                                   context_.device->adapter().name, wrong);
      runner_->forget_shapes();
      runner_.reset();
    }
    context_.kernels.expect({});
    note({"Each token is computed as a batch of one and chosen on the CPU, which is several times slower.",
          why_no_runner_});
    return {};
  }

  // The kernels of the steps that check_runner() takes. They are compiled beside those that are measured: by
  // themselves they take half a second where the driver has compiled nothing yet.
  Result<std::vector<KernelSource>> checked_kernels() {
    const auto [prompt, token] = checked_steps(*this);
    const std::size_t select = batch_->first_wanted_op(), end = plan().ops.size();
    std::vector<KernelSource> sources;
    const auto add = [&](std::size_t first, std::size_t last, const StepShape& shape) -> Status {
      DOPPLER_ASSIGN(const std::vector<KernelSource> some,
                     batch_->missing(context_, first, last, shape, nullptr));
      sources.insert(sources.end(), some.begin(), some.end());
      return {};
    };
    const auto shape_of = [](const StepInput& input) {
      return StepShape{.tokens = static_cast<std::uint32_t>(input.size()), .runs = has_runs(input)};
    };
    if (prompt.size() > 0) {
      const bool ends_early = has_pass(plan(), kPassLateRows);
      DOPPLER_TRY(add(0, ends_early ? batch_->late().first : select, shape_of(prompt)));
    }
    StepShape shape = shape_of(token);
    DOPPLER_TRY(add(0, select, shape));
    shape.wanted = 1;
    DOPPLER_TRY(add(select, end, shape));
    return sources;
  }

  // Makes it the runner; returns what is wrong with it, or an empty text.
  Result<std::string> check_runner(TokenRunner runner) {
    const std::string name = runner.program().name();
    if (!context_.self_check || context_.self_check->has_passed(name)) {
      runner_.emplace(std::move(runner));
      context_.kernels.expect({});  // it is checked already
      return std::string();
    }
    const Stopwatch checking(check_seconds_);
    const Device::Counters before = context_.device->counters;
    if (expected_.empty()) {
      DOPPLER_ASSIGN(expected_, check_tokens(*this));
    }
    runner_.emplace(std::move(runner));
    DOPPLER_ASSIGN(std::string wrong, wrong_with_runner(expected_));
    if (wrong.empty()) context_.self_check->note(name, {});
    context_.device->counters = before;  // not part of any program
    return wrong;
  }

  // What is wrong with its tokens: with the kernels of early positions, and with those of late ones.
  Result<std::string> wrong_with_runner(const std::vector<CheckedToken>& expected) {
    DOPPLER_ASSIGN(std::string wrong, wrong_tokens(*this, expected));
    if (!wrong.empty() || !runner_->program().varies_by_position()) return wrong;
    runner_->use_kernels_from(UINT64_MAX);
    Result<std::string> late = wrong_tokens(*this, expected);
    runner_->use_kernels_from(0);
    return late;
  }

  Context context_;
  std::optional<BatchProgram> batch_;
  std::optional<BatchRunner> steps_;
  std::optional<TokenRunner> runner_;
  std::optional<SequencesRunner> sequences_;  // made when the first joins
  std::optional<GuessCheck> checker_;         // made for the first check of guesses
  std::optional<GuessRunner> guesser_;
  std::string why_no_runner_;
  std::vector<CheckedToken> expected_;  // of the check of single tokens
  double check_seconds_ = 0;            // that it took
  std::optional<ReadBandwidth> bandwidth_;
  std::vector<float> logits_;
  SlotLengths lengths_;
  GpuCache cache_{context_, lengths_};
  bool eight_bits_ = false;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_gpu_backend(const ModelSpec& spec, const Weights& weights,
                                                  const BackendOptions& options) {
  DOPPLER_TRY(check_backend_options(options));
  return GpuBackend::create(spec, weights, options);
}

}  // namespace doppler
