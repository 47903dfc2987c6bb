// The backend against the oracle, and against itself.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "diagnosis/compare/stage_rows.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/doctor_ops.h"

namespace doppler::diagnosis::doctor {
namespace {

constexpr std::size_t kPrompt = 16, kDecode = 4;

// Ids of a run: the recording's, or a text's, or ids from the whole vocabulary, both ends included, because
// those show tables that are cut short.
std::vector<std::int32_t> choose_ids(const Examination& e, std::size_t count) {
  std::vector<std::int32_t> ids;
  if (e.options.reference != nullptr) ids = e.options.reference->prompt_ids;
  const std::uint32_t vocab = e.subject.spec.vocab_size;
  std::erase_if(ids, [&](std::int32_t id) { return static_cast<std::uint32_t>(id) >= vocab; });
  if (ids.empty() && e.subject.tokenizer != nullptr) {
    if (const auto text = e.subject.prompt_ids("The color of the sky is")) ids = *text;
  }
  ids.resize(std::min(ids.size(), count / 2));
  if (ids.empty() && e.subject.spec.bos_id >= 0) ids.push_back(e.subject.spec.bos_id);
  for (std::uint64_t i = 0; ids.size() < count; ++i) {
    // Every other one from the end, the rest spread by a stride that is prime to any power of two.
    ids.push_back(static_cast<std::int32_t>(i % 2 == 0 ? vocab - 1 - i / 2 : (i * 40503 + 17) % vocab));
  }
  return ids;
}

// A machine that lacks a backend's requirements is no finding; a backend that fails by itself is.
Result<Outcome> without_backend(const Error& error) {
  if (error.code == ErrorCode::kInternal) return std::unexpected(error);
  return Outcome::skip(error.message);
}

const Outcome kExplained = Outcome::skip("what is wrong already explains other values");

// Whether the backend was found to compute wrongly: its consequences need not be reported again.
bool ops_are_wrong(const Examination& e) {
  return std::ranges::any_of(e.findings, [](const Finding& f) {
    const bool absurd = f.check == "weights" && f.cause != "truncated_weight";  // NaN, whatever its cause
    return f.check == "ops" || f.check == "again" || absurd;
  });
}

BackendOptions options_for(const Examination& e, std::size_t tokens, std::uint32_t slots) {
  BackendOptions options = e.subject.options;
  options.context = std::max<std::uint64_t>(64, tokens + 16);
  options.slots = slots;
  options.max_step_tokens = 64;
  options.cut_tokens = 0;  // rings turn as early as they can
  return options;
}

// A prompt in one piece, then tokens one at a time.
Result<std::vector<float>> run(Backend& backend, std::span<const std::int32_t> ids, std::size_t prompt,
                               Tap* tap) {
  backend.clear(0);
  std::vector<float> all;
  DOPPLER_ASSIGN(auto logits, feed(backend, 0, ids.first(prompt), 0, true, tap));
  all.insert(all.end(), logits.begin(), logits.end());
  for (std::size_t i = prompt; i < ids.size(); ++i) {
    DOPPLER_ASSIGN(
        logits, feed(backend, 0, ids.subspan(i, 1), 0, true, tap, static_cast<std::int64_t>(i - prompt) + 1));
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Share of the largest logit by which rows may differ that were computed in another order.
double slack(const Backend& backend) {
  switch (backend.rounding()) {
    case Rounding::kFloat:
      return 1e-3;
    case Rounding::kHalfCache:
      return 8e-3;
    case Rounding::kHalf:
      return 3e-2;
    case Rounding::kEightBits:
      return 0.2;
  }
  return 0.2;
}

struct Distance {
  double share = 0;
  std::size_t row = 0;
};
Distance distance(std::span<const float> a, std::span<const float> b, std::size_t width) {
  Distance worst;
  double largest = 1e-30;
  for (const float x : a) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]) / largest;
    if (!(d <= worst.share)) worst = {std::isnan(d) ? INFINITY : d, i / width};
  }
  return worst;
}

}  // namespace

Result<Outcome> check_ops(const Examination& e) {
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, kPrompt + kDecode);
  auto made = e.subject.make(options_for(e, ids.size(), 1));
  if (!made) return without_backend(made.error());
  Backend& backend = **made;
  CapturedRows rows;
  DOPPLER_TRY(run(backend, ids, kPrompt, &rows));
  DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(backend.options().context));
  FilledRows filled(rows);  // steps without a name are judged with those that read them
  DOPPLER_TRY(filled.fill(plan, e.subject.weights));
  OpExperiment experiment(plan, e.subject.weights, filled);
  OpJudge judge(e, experiment);
  judge.arithmetic = arithmetic_of(backend);
  judge.finer_weights = false;
  judge.filled = &filled;
  judge.skip = [&](std::size_t op) { return filled.filled(op); };
  judge.hints.prompt_tokens = kPrompt;
  judge.who = std::string(backend.name());
  DOPPLER_TRY(judge.measure());
  judge.tell_ops();
  CapturedRows again;
  if (!judge.wrong().empty()) {
    DOPPLER_TRY(run(backend, ids, kPrompt, &again));
    judge.hints.again = &again;
  }
  DOPPLER_TRY(judge.explain_wrong());
  return Outcome::ok(fmt::format("{}: {}", backend.name(), judge.summary()));
}

// A second sequence in the same slot, after clear(): no key or value of the first may remain.
Result<Outcome> check_again(const Examination& e) {
  if (ops_are_wrong(e)) return kExplained;
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  std::vector<std::int32_t> ids = choose_ids(e, 8);
  auto made = e.subject.make(options_for(e, ids.size(), 1));
  if (!made) return without_backend(made.error());
  Backend& backend = **made;
  DOPPLER_TRY(run(backend, ids, ids.size(), nullptr));
  std::ranges::reverse(ids);
  CapturedRows rows;
  DOPPLER_TRY(run(backend, ids, ids.size(), &rows));
  DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(backend.options().context));
  OpExperiment experiment(plan, e.subject.weights, rows);
  OpJudge judge(e, experiment);
  judge.arithmetic = arithmetic_of(backend);
  judge.finer_weights = false;
  judge.who = std::string(backend.name());
  judge.most = 0;
  DOPPLER_TRY(judge.measure());
  if (judge.wrong().empty())
    return Outcome::ok(fmt::format("{}: {} ops judged, none wrong", backend.name(), judge.judged()));
  const WrongOp& first = judge.wrong().front();
  const bool position =
      first.stage == Stage::kQRope || first.stage == Stage::kKRope || first.stage == Stage::kAttnOut;
  const bool state = keeps_state(plan.ops[first.op].kind);
  e.find(
      {.cause = state      ? "state_not_reset"
                : position ? "kv_counter"
                           : "stale_buffer",
       .stage = std::string(stage_name(first.stage)),
       .layer = first.layer,
       .explanation = fmt::format(
           "On the backend {}, a second sequence goes wrong at {} after clear(), though the first is right: "
           "something of the first is left.",
           backend.name(), stage_key(first.stage, first.layer)),
       .repair = state ? "" : "Let clear() begin the slot's positions and its cache anew.",
       .confidence = 0.9});
  return Outcome::found({});
}

Result<Outcome> check_decode(const Examination& e) {
  if (ops_are_wrong(e)) return kExplained;
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, kPrompt);
  auto made = e.subject.make(options_for(e, ids.size(), 1));
  if (!made) return without_backend(made.error());
  DOPPLER_ASSIGN(const auto together, run(**made, ids, ids.size(), nullptr));
  DOPPLER_ASSIGN(const auto apart, run(**made, ids, 1, nullptr));
  const Distance d = distance(together, apart, e.subject.spec.vocab_size);
  if (d.share > slack(**made)) {
    e.find(
        {.cause = "decode_unlike_prefill",
         .stage = "logits_final",
         .explanation = fmt::format(
             "On the backend {} the logits of token {} differ by {:.2g} of the largest between a prompt at "
             "once and one token at a time.",
             (*made)->name(), d.row, d.share),
         .confidence = 0.9});
  }
  return Outcome::ok(fmt::format("{}: logits differ by {:.1e} of the largest", (*made)->name(), d.share));
}

Result<Outcome> check_batch(const Examination& e) {
  if (ops_are_wrong(e)) return kExplained;
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, 8);
  auto made = e.subject.make(options_for(e, ids.size(), 2));
  if (!made) return without_backend(made.error());
  Backend& backend = **made;
  const std::vector<std::int32_t> others(ids.rbegin(), ids.rend());
  const std::size_t vocab = e.subject.spec.vocab_size;
  DOPPLER_ASSIGN(const auto alone, run(backend, ids, ids.size(), nullptr));
  double worst = 0;
  for (const std::uint32_t first : {0u, 1u}) {  // which of the two slots comes first in a step
    backend.clear(0);
    backend.clear(1);
    StepInput both;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      for (const std::uint32_t slot : {first, 1 - first})
        both.add(slot == 0 ? ids[i] : others[i], i, slot, true);
    }
    CapturedRows rows;
    DOPPLER_ASSIGN(const auto logits, backend.step(both, &rows));
    std::vector<float> beside;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto row = logits.subspan((2 * i + first) * vocab, vocab);
      beside.insert(beside.end(), row.begin(), row.end());
    }
    const Distance d = distance(alone, beside, vocab);
    worst = std::max(worst, d.share);
    if (d.share <= slack(backend)) continue;
    DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(backend.options().context));
    OpExperiment experiment(plan, e.subject.weights, rows);
    OpJudge judge(e, experiment);
    judge.arithmetic = arithmetic_of(backend);
    judge.finer_weights = false;
    DOPPLER_TRY(judge.measure());
    const bool located = !judge.wrong().empty();
    e.find(
        {.cause = "batch_unlike_single",
         .stage = std::string(stage_name(located ? judge.wrong()[0].stage : Stage::kLogitsFinal)),
         .layer = located ? judge.wrong()[0].layer : -1,
         .explanation = fmt::format(
             "On the backend {}, a sequence gets other values beside another than alone{}; the logits of "
             "token {} "
             "differ by {:.2g} of the largest.",
             backend.name(),
             located ? fmt::format(", first at {}", stage_key(judge.wrong()[0].stage, judge.wrong()[0].layer))
                     : "",
             d.row, d.share),
         .confidence = 0.9});
    return Outcome::found({});
  }
  return Outcome::ok(fmt::format("{}: logits differ by {:.1e} of the largest", backend.name(), worst));
}

namespace {

// Tokens and the logits that each was chosen from.
struct Choices {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
};

class LogitsTap final : public Tap {
 public:
  explicit LogitsTap(std::vector<float>& logits) : logits_(logits) {}
  bool wants(Stage stage, int) const override { return stage == Stage::kLogitsFinal; }
  void on_stage(const TapEvent& event) override {
    logits_.insert(logits_.end(), event.data.begin(), event.data.end());
  }

 private:
  std::vector<float>& logits_;
};

// With a tap, or without, as the sampler's own way is.
Result<Choices> continue_greedily(Backend& backend, std::span<const std::int32_t> ids, std::size_t count,
                                  const GenerateOptions& greedy, bool tapped) {
  backend.clear(0);
  Choices made;
  DOPPLER_ASSIGN(const auto logits, feed(backend, 0, ids, 0, false, nullptr));
  std::vector<TokenId> history(ids.begin(), ids.end());
  history.push_back(argmax(logits.last(backend.plan().vocab_size)));
  LogitsTap tap(made.logits);
  Continuation continuation{.id = history.back(), .most = count, .sampling = &greedy, .history = history};
  if (tapped) continuation.tap = &tap;
  Continuer& continuer = *backend.continuer();
  DOPPLER_TRY(continuer.continue_sequence(continuation));
  made.tokens = {history.back()};
  while (made.tokens.size() < count) {
    DOPPLER_ASSIGN(const auto some, continuer.next_tokens());
    if (some.empty()) break;
    made.tokens.insert(made.tokens.end(), some.begin(), some.end());
  }
  DOPPLER_TRY(continuer.stop_sequence(ids.size() + made.tokens.size() - 1));
  made.tokens.resize(std::min(made.tokens.size(), count));
  return made;
}

// Greedy tokens, each from a step of its own.
Result<Choices> choose_by_steps(Backend& backend, std::span<const std::int32_t> ids, std::size_t count) {
  backend.clear(0);
  Choices made;
  DOPPLER_ASSIGN(auto logits, feed(backend, 0, ids, 0, false, nullptr));
  while (true) {
    made.tokens.push_back(argmax(logits.last(backend.plan().vocab_size)));
    if (made.tokens.size() == count) return made;
    DOPPLER_ASSIGN(logits, feed(backend, 0, std::span(&made.tokens.back(), 1), 0, true, nullptr,
                                static_cast<std::int64_t>(made.tokens.size())));
    made.logits.insert(made.logits.end(), logits.begin(), logits.end());
  }
}

}  // namespace

Result<Outcome> check_submit(const Examination& e) {
  if (ops_are_wrong(e)) return kExplained;
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, 6);
  constexpr std::size_t kTokens = 12;
  const GenerateOptions greedy;
  Choices one_by_one;
  for (const std::uint32_t submit : {1u, 8u}) {
    BackendOptions options = options_for(e, ids.size() + kTokens, 1);
    options.gpu.submit_tokens = submit;
    auto made = e.subject.make(options);
    if (!made) return without_backend(made.error());
    if (!(*made)->can_continue(greedy))
      return Outcome::skip(fmt::format("the backend {} takes one token a step", (*made)->name()));
    if (one_by_one.tokens.empty()) {
      DOPPLER_ASSIGN(one_by_one, choose_by_steps(**made, ids, kTokens));
    }
    for (const bool tapped : {false, true}) {
      DOPPLER_ASSIGN(const Choices many, continue_greedily(**made, ids, kTokens, greedy, tapped));
      // Chosen tokens may be equal by chance; logits are not.
      const std::size_t common = std::min(many.logits.size(), one_by_one.logits.size());
      const Distance d = distance(std::span(one_by_one.logits).first(common),
                                  std::span(many.logits).first(common), e.subject.spec.vocab_size);
      if (many.tokens == one_by_one.tokens && d.share <= slack(**made)) continue;
      const auto [expected, found] = std::ranges::mismatch(one_by_one.tokens, many.tokens);
      const auto place = expected != one_by_one.tokens.end()
                             ? static_cast<std::size_t>(expected - one_by_one.tokens.begin())
                             : d.row + 1;
      e.find({.cause = "submit_unlike_single",
              .stage = "logits_final",
              .explanation = fmt::format("On the backend {}, submissions of {} tokens give other logits or "
                                         "tokens than single steps, first at place {}.",
                                         (*made)->name(), submit, place)});
      return Outcome::found({});
    }
  }
  return Outcome::ok(fmt::format("{} tokens are the same", one_by_one.tokens.size()));
}

// Runs a prompt and some tokens as a generation does: after that all fallbacks are known.
Result<Outcome> check_fallbacks(const Examination& e) {
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, 8);
  auto made = e.subject.make(options_for(e, ids.size(), 1));
  if (!made) return without_backend(made.error());
  Backend& backend = **made;
  DOPPLER_TRY(run(backend, ids, 6, nullptr));
  backend.can_continue(GenerateOptions());
  e.fallbacks = backend.fallbacks();
  if (e.fallbacks.empty()) return Outcome::ok(fmt::format("{}: nothing falls back", backend.name()));
  std::string text = fmt::format("{} is slower than it could be:", backend.name());
  for (const Fallback& fallback : e.fallbacks) text += fmt::format(" {} {}", fallback.what, fallback.why);
  return Outcome::ok(std::move(text));
}

Result<Outcome> check_determinism(const Examination& e) {
  if (ops_are_wrong(e)) return kExplained;
  if (e.seconds_left() < 0.05 * e.options.seconds) return Outcome::skip("no time is left: raise --seconds");
  const std::vector<std::int32_t> ids = choose_ids(e, 8);
  auto made = e.subject.make(options_for(e, ids.size(), 1));
  if (!made) return without_backend(made.error());
  Backend& backend = **made;
  DOPPLER_ASSIGN(const auto first, run(backend, ids, 6, nullptr));
  bool same = true;
  for (int i = 0; i < 2 && same; ++i) {
    DOPPLER_ASSIGN(const auto again, run(backend, ids, 6, nullptr));
    same = first.size() == again.size() &&
           std::memcmp(first.data(), again.data(), first.size() * sizeof(float)) == 0;
  }
  if (same) return Outcome::ok(fmt::format("{}: three runs give the same bits", backend.name()));
  // Which stage is the first to change?
  CapturedRows one, two;
  DOPPLER_TRY(run(backend, ids, 6, &one));
  DOPPLER_TRY(run(backend, ids, 6, &two));
  DOPPLER_ASSIGN(const Plan plan, e.subject.make_plan(backend.options().context));
  for (const Op& op : plan.ops) {
    const Value& out = plan.values[op.outputs[0]];
    const auto a = one.read(plan, out.stage, out.layer), b = two.read(plan, out.stage, out.layer);
    if (!a || !b || std::memcmp(a->data(), b->data(), std::min(a->size(), b->size()) * sizeof(float)) == 0)
      continue;
    const Distance d = distance(*a, *b, out.width);
    e.find({.cause = d.share < 1e-5 ? "not_deterministic"
                                    : "missing_barrier",  // last bits: only the order of sums
            .stage = std::string(stage_name(out.stage)),
            .layer = out.layer,
            .explanation =
                fmt::format("On the backend {} {} is the first stage that changes when a run is repeated.",
                            backend.name(), stage_key(out.stage, out.layer)),
            .confidence = 0.85});
    return Outcome::found({});
  }
  e.find({.cause = "not_deterministic",
          .stage = "logits_final",
          .explanation =
              fmt::format("On the backend {} the logits change when a run is repeated.", backend.name())});
  return Outcome::found({});
}

}  // namespace doppler::diagnosis::doctor
