// What the loss of a paragraph tells: a model that reads plain English badly is repaired in memory, one
// suspect after the other, and what makes the text clearly likelier names the cause.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "base/thread_pool.h"
#include "diagnosis/doctor/doctor_checks.h"
#include "diagnosis/doctor/text_loss.h"
#include "diagnosis/doctor/trial.h"

namespace doppler::diagnosis::doctor {
namespace {

using Clock = std::chrono::steady_clock;

// A repair must lower the loss by so many nats a token. Healthy models lose by every change of their values;
// wrong values that change the loss by less than this do not change what a model says.
constexpr double kLeastGain = 0.05;
// And by so many standard errors of the paired difference: of some 300 repairs none does so by chance.
constexpr double kLeastErrors = 4;
// Beside leaving half a layer out, which is one rival and not hundreds, fewer of them are enough.
constexpr double kMoreErrors = 3;
// And by this share of the loss: where something is broken, whatever makes a model doubt more (a cap, a
// smaller scale) saves an eighth of its loss, and cures nothing.
constexpr double kLeastShare = 0.25;
// Unless the loss is less than this share of guessing's already, so that little is left to gain.
constexpr double kSmallLoss = 0.1;
// Of all tokens' loss by guessing: at or above this a model has not learned to read, or no longer can.
constexpr double kLikeGuessing = 0.85;
// A model that reads English needs less than this share of guessing's loss: published models of 100 million
// weights and more need a quarter, the demo a twentieth. Where no repair comes so far, the text may as well
// be in a language that the model has never read, and what makes it a little likelier names no fault.
constexpr double kReads = 0.4;
constexpr int kMostRounds = 4;  // faults that are found one after the other
// The halves of layers that matter least are suspected, and more of them where leaving them out even helps:
// trying everything everywhere would take longer than most readers wait.
constexpr std::size_t kLeastUseful = 2, kHarmful = 6;
// What two cores multiply and add in a second, prompts of quantised weights, roughly.
constexpr double kProductsASecond = 3e10;

struct Judged {
  Suspect suspect;
  Gain gain;
  std::vector<float> losses;
};

bool is_certain(const Gain& gain) {
  return gain.mean >= kLeastGain && gain.mean >= kLeastErrors * gain.error;
}

class LossExamination {
 public:
  LossExamination(const Examination& e, LossMeter& meter, std::vector<float> losses, double seconds)
      : e_(e),
        meter_(meter),
        trial_(e.subject),
        losses_(std::move(losses)),
        reached_(mean_of(losses_)),
        chance_(std::log(static_cast<double>(e.subject.spec.vocab_size))),
        pool_(meter.is_small() ? e.subject.options.threads : 1),
        deadline_(Clock::now() +
                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  // Finds one fault after the other. What was found counts only if the model reads in the end.
  void run() {
    for (int round = 0; round < kMostRounds; ++round) {
      results_.clear();
      const Subject& now = trial_.subject();
      // First what is likely or shows where to look, then many values of one thing, then the least likely
      // places.
      std::vector<Suspect> likely = description_suspects(now);
      std::ranges::move(order_suspects(now), std::back_inserter(likely));
      const auto later = std::ranges::stable_partition(likely, [](const Suspect& s) { return s.turn == 0; });
      std::vector<Suspect> rest(std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
      likely.erase(later.begin(), later.end());
      attempt(std::move(likely));
      // What is wrong on every layer makes each of them look bad.
      if (!has_repair()) attempt_harmful(now);
      if (!has_repair()) attempt(std::move(rest));
      if (!has_repair()) attempt_least_useful(now);
      if (!conclude()) break;
    }
    if (reached_ >= kReads * chance_) return;
    for (Finding& finding : found_) {
      const bool told =
          finding.cause == "unknown" && std::ranges::any_of(e_.findings, [&](const Finding& other) {
            return other.layer == finding.layer && other.check != e_.check;
          });
      if (!told) e_.find(std::move(finding));  // else another check knows what is wrong with that layer
    }
  }

  std::size_t tried() const { return tried_; }
  std::size_t left_out() const { return left_out_; }
  double seconds_a_trial() const { return tried_ == 0 ? 0 : spent_ / static_cast<double>(tried_); }
  double loss() const { return reached_; }
  std::string nearest() const { return nearest_; }

 private:
  void attempt(std::vector<Suspect> suspects) {
    std::vector<std::optional<Judged>> judged(suspects.size());
    std::vector<char> late(suspects.size(), 0);
    const auto start = Clock::now();
    pool_.parallel_for(suspects.size(), 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        if (Clock::now() > deadline_)
          late[i] = 1;
        else
          judged[i] = judge(std::move(suspects[i]));
      }
    });
    spent_ += std::chrono::duration<double>(Clock::now() - start).count();
    left_out_ += static_cast<std::size_t>(std::ranges::count(late, 1));
    for (auto& one : judged) {
      if (!one) continue;
      ++tried_;
      results_.push_back(std::move(*one));
    }
  }

  // Nothing for a change that does not apply to the model.
  std::optional<Judged> judge(Suspect suspect) {
    Trial changed = trial_;
    if (!suspect.change(changed)) return std::nullopt;
    auto losses = suspect.late ? meter_.measure(changed.subject()) : screened(changed.subject());
    if (!losses) return std::nullopt;
    const Gain gain = gain_of(losses_, *losses);
    return Judged{std::move(suspect), gain, std::move(*losses)};
  }

  // Most repairs are dropped after the beginning, where they gain less than half of what they must.
  Result<std::vector<float>> screened(const Subject& changed) {
    DOPPLER_ASSIGN(std::vector<float> losses, meter_.measure_beginning(changed));
    if (gain_of(losses_, losses).mean < kLeastGain / 2) return losses;
    return meter_.measure(changed);
  }

  bool has_repair() const {
    return std::ranges::any_of(results_,
                               [&](const Judged& r) { return !r.suspect.control && is_clear(r.gain); });
  }

  static Half half_of(const Suspect& control) {
    return control.stage == Stage::kOProj ? Half::kAttention : Half::kFeedForward;
  }

  // What each half of a layer is good for, and what may be wrong in those that do harm.
  void attempt_harmful(const Subject& now) {
    const std::size_t before = results_.size();
    std::vector<Suspect> controls;
    for (int layer = 0; layer < static_cast<int>(now.spec.layers.size()); ++layer) {
      for (const Half half : {Half::kAttention, Half::kFeedForward}) {
        const WeightRole last = half == Half::kAttention ? WeightRole::kO : WeightRole::kDown;
        if (now.weights.find(last, layer) != kNoWeight) controls.push_back(without(now, layer, half));
      }
    }
    attempt(std::move(controls));
    useless_.clear();
    for (std::size_t i = before; i < results_.size(); ++i) useless_.push_back(results_[i]);
    std::ranges::sort(useless_, std::greater(), [](const Judged& r) { return r.gain.mean; });
    if (useless_.empty()) return;
    const bool one_is_clear = is_clear(useless_[0].gain);
    const auto repaired = [&] {
      return one_is_clear && std::ranges::any_of(results_, [&](const Judged& r) {
               return !r.suspect.control && beats(r, useless_[0]);
             });
    };
    for (std::size_t i = 0; i < std::min(useless_.size(), kHarmful) && useless_[i].gain.mean > 0; ++i) {
      attempt(layer_suspects(now, useless_[i].suspect.layer, half_of(useless_[i].suspect)));
      if (repaired()) return;
    }
    if (one_is_clear) attempt(layer_searches(now, useless_[0].suspect.layer, half_of(useless_[0].suspect)));
  }

  void attempt_least_useful(const Subject& now) {
    for (std::size_t i = 0; i < std::min(useless_.size(), kLeastUseful); ++i) {
      if (useless_[i].gain.mean > 0) continue;  // was tried
      attempt(layer_suspects(now, useless_[i].suspect.layer, half_of(useless_[i].suspect)));
    }
  }

  // Reports what lowers the loss most, and goes on with it in place. False if nothing does.
  bool conclude() {
    const Judged* best = nullptr;
    const Judged* control = nullptr;
    for (const Judged& r : results_) {
      const Judged*& slot = r.suspect.control ? control : best;
      if (slot == nullptr || r.gain.mean > slot->gain.mean) slot = &r;
    }
    if (best != nullptr && nearest_.empty())
      nearest_ = fmt::format("{} {:+.3f} nats", best->suspect.says, -best->gain.mean);
    if (best != nullptr && !is_clear(best->gain)) best = nullptr;
    if (control != nullptr && !is_clear(control->gain)) control = nullptr;
    if (best == nullptr && control == nullptr) return false;
    if (best == nullptr || (control != nullptr && !beats(*best, *control))) {
      reached_ = mean_of(control->losses);
      report_place(*control);
      return false;
    }
    const Judged* rival = rival_of(*best);
    reached_ = mean_of(best->losses);
    report(*best, rival);
    if (rival != nullptr) return false;
    const Judged chosen = *best;  // results_ go with the round
    const Trial before = trial_;
    if (!chosen.suspect.change(trial_)) return false;
    found_.back().fixes = trial_.fixes(before.subject());
    losses_ = chosen.losses;
    return true;
  }

  // Whether a repair makes the text clearly likelier than leaving the half of the layer out does.
  static bool beats(const Judged& repair, const Judged& without) {
    const Gain more = gain_of(without.losses, repair.losses);
    return more.mean >= kLeastGain && more.mean >= kMoreErrors * more.error;
  }

  bool is_clear(const Gain& gain) const {
    const double loss = mean_of(losses_);
    return is_certain(gain) && (gain.mean >= kLeastShare * loss || loss < kSmallLoss * chance_);
  }

  // Another cause that explains the text as well.
  const Judged* rival_of(const Judged& best) const {
    const Judged* rival = nullptr;
    for (const Judged& r : results_) {
      if (r.suspect.control || r.suspect.cause == best.suspect.cause || !is_clear(r.gain)) continue;
      // Both explain most of it, so the difference decides, which is small beside either.
      if (const Gain more = gain_of(r.losses, best.losses);
          more.mean >= kLeastGain / 2 && more.mean >= 2 * more.error)
        continue;
      if (rival == nullptr || r.gain.mean > rival->gain.mean) rival = &r;
    }
    return rival;
  }

  std::string falls(const Judged& r) const {
    return fmt::format("The loss of plain English falls from {:.2f} to {:.2f} nats a token", mean_of(losses_),
                       mean_of(r.losses));
  }

  void report(const Judged& best, const Judged* rival) {
    const Suspect& s = best.suspect;
    Finding finding{.cause = s.cause,
                    .stage = std::string(stage_name(s.stage)),
                    .layer = s.layer,
                    .explanation = fmt::format("{} when {}.", falls(best), s.says),
                    .repair = s.repair,
                    .confidence = 0.9};
    if (rival != nullptr) {
      finding.explanation = fmt::format("{} when {}, and nearly as far ({:.2f}) when {}.", falls(best),
                                        s.says, mean_of(rival->losses), rival->suspect.says);
      finding.cause = "unknown";
      finding.repair = "Record the model with transformers: doctor --reference tells the two apart.";
      finding.confidence = 0.5;
    }
    found_.push_back(std::move(finding));
  }

  void report_place(const Judged& r) {
    found_.push_back(
        {.cause = "unknown",
         .stage = std::string(stage_name(r.suspect.stage)),
         .layer = r.suspect.layer,
         .explanation =
             fmt::format("{} when {}: something in it is wrong, and no repair that was tried makes it right.",
                         falls(r), r.suspect.says),
         .repair = "Compare the layer's tensors with their source: doctor --source, or record the model with "
                   "transformers.",
         .confidence = 0.6});
  }

  const Examination& e_;
  LossMeter& meter_;
  Trial trial_;  // with all repairs so far
  std::vector<float> losses_;
  double reached_, chance_;  // the least loss, and that of guessing
  std::vector<Finding> found_;
  ThreadPool pool_;  // for small models: a trial a thread
  Clock::time_point deadline_;
  std::vector<Judged> results_;
  std::vector<Judged> useless_;  // of each half of a layer: the loss without it, the least useful first
  std::size_t tried_ = 0, left_out_ = 0;
  double spent_ = 0;
  std::string nearest_;
};

// Tokens that are not those the model was trained with make any text unlikely.
bool text_is_wrong(const Examination& e) {
  static constexpr std::string_view kWrong[] = {
      "merges_dropped", "merges_order",         "token_ids",
      "piece_scores",   "tokenizer_round_trip", "vocabulary_mismatch"};
  return std::ranges::any_of(e.findings, [](const Finding& finding) {
    return std::ranges::find(kWrong, finding.cause) != std::end(kWrong);
  });
}

// What was tried, and what was not.
std::string account_of(const LossExamination& examination, bool found) {
  std::string text = fmt::format(
      "{} repairs tried, {}", examination.tried(),
      found ? fmt::format("with those found {:.2f}", examination.loss()) : "none lowers it clearly");
  if (!examination.nearest().empty()) text += fmt::format(" (nearest: {})", examination.nearest());
  if (examination.left_out() > 0) {
    text += fmt::format("; {} were left out for lack of time: some {:.0f} s more (--seconds)",
                        examination.left_out(),
                        static_cast<double>(examination.left_out()) * examination.seconds_a_trial());
  }
  return text;
}

}  // namespace

Result<Outcome> check_loss(const Examination& e) {
  if (e.options.reference != nullptr) return Outcome::skip("the recording tells more");
  if (e.options.source != nullptr) return Outcome::skip("the source tells more");
  if (e.subject.tokenizer == nullptr || !e.subject.prompt_ids)
    return Outcome::skip("the model has no tokenizer");
  if (e.subject.spec.layers.empty()) return Outcome::skip("the model has no layers");
  const auto vocab = static_cast<TokenId>(e.subject.spec.vocab_size);
  std::vector<std::vector<TokenId>> texts;
  for (const std::string_view text : loss_texts()) {
    DOPPLER_ASSIGN(texts.emplace_back(), e.subject.prompt_ids(text));
    if (std::ranges::any_of(texts.back(), [&](TokenId id) { return id < 0 || id >= vocab; }))
      return Outcome::skip("the tokenizer's ids exceed the embedding");
  }
  LossMeter meter(e.subject, std::move(texts));
  if (!meter.is_small()) meter.shorten();
  if (const double seconds = meter.values() * static_cast<double>(meter.tokens()) / kProductsASecond;
      seconds > 0.5 * e.seconds_left())
    return Outcome::skip(
        fmt::format("reading a text once would take some {:.0f} s: raise --seconds", seconds));
  auto losses = meter.measure(e.subject);
  if (!losses) return Outcome::skip(losses.error().message);
  if (std::ranges::any_of(*losses, [](float x) { return !std::isfinite(x); }))
    return Outcome::skip("the logits are not finite, which other checks explain");
  const double loss = mean_of(*losses), chance = std::log(static_cast<double>(vocab));
  const std::string measured = fmt::format(
      "{} tokens of plain English cost {:.2f} nats each (guessing: {:.2f})", meter.tokens(), loss, chance);
  const std::size_t before = e.findings.size();
  if (text_is_wrong(e)) return Outcome::ok(measured + "; what is wrong with the tokens comes first");
  // Many texts are read for this, which takes minutes of a large model.
  if (loss > kReads * chance && meter.is_small()) {
    constexpr double kShare = 0.3;  // of the time left; weights need the most
    TextTrials trials = try_texts(e, kShare * e.seconds_left());
    if (trials.finding) {
      e.find(std::move(*trials.finding));
      return Outcome::ok(fmt::format("{}; {} ways to make tokens of it tried", measured, trials.tried));
    }
  }
  LossExamination examination(e, meter, std::move(*losses), 0.5 * e.seconds_left());
  examination.run();
  const bool found = e.findings.size() > before;
  const std::string text = fmt::format("{}; {}", measured, account_of(examination, found));
  if (!found && before == 0 && loss > kReads * chance && loss <= kLikeGuessing * chance)
    return Outcome::ok("much for a model of English: something is wrong, or it reads another language; " +
                       text);
  if (found || loss <= kLikeGuessing * chance) return Outcome::ok(text);
  if (before > 0) return Outcome::ok(text + "; what was found before explains that");
  return Outcome::ok(
      fmt::format("the loss says nothing of this model, which reads as if it guessed: {}", text));
}

}  // namespace doppler::diagnosis::doctor
