#include "diagnosis/look/debug_run.h"

#include <algorithm>
#include <cmath>

#include "backend/row_tokens.h"
#include "backend/tap_list.h"
#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/recording.h"

namespace doppler::diagnosis {
namespace {

// Logits are computed for this many of the prompt's last tokens: enough to see whether they follow the
// tokens; each costs a product with the whole head.
constexpr std::size_t kLogitTokens = 32;
// Of decoded tokens, 128 MiB of stages are kept for the comparison with prefill: sixteen tokens of a 1B model
// take 60.
constexpr std::uint64_t kKeptFloats = 32 << 20;

// Pearson's: 1 for logits that differ in scale and offset only.
double correlation(std::span<const float> a, std::span<const float> b) {
  double mean_a = 0, mean_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) mean_a += a[i], mean_b += b[i];
  mean_a /= static_cast<double>(a.size()), mean_b /= static_cast<double>(b.size());
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    ab += x * y, aa += x * x, bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1;  // constant rows agree
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - expected[i]);
    // NaN in both counts as agreement; it has a check of its own.
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    if (std::isfinite(expected[i])) largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
  }
  return worst == 0 ? 0 : worst / largest;
}

// Compares the rows of decoded tokens, when the same tokens run as a prompt.
class DecodeComparer final : public Tap {
 public:
  DecodeComparer(const StageRecorder& decoded, std::size_t prompt_tokens, double tolerance)
      : decoded_(decoded), prompt_tokens_(static_cast<std::int64_t>(prompt_tokens)), tolerance_(tolerance) {
    for (std::size_t i = 0; i < decoded.records().size(); ++i)
      index_[{decoded.records()[i].stage, decoded.records()[i].layer}] = i;
  }
  bool wants(Stage stage, int layer) const override { return index_.contains({stage, layer}); }
  void on_stage(const TapEvent& event) override {
    const std::size_t record = index_.at({event.stage, event.layer});
    const std::vector<std::size_t> tokens = row_tokens(event);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const std::int64_t token = event.input->positions[tokens[row]];
      const auto then = decoded_.kept(record, token);
      if (token < prompt_tokens_ || then.size() != event.width) continue;
      const double error = relative_error(then, event.data.subspan(row * event.width, event.width));
      if (error > tolerance_) first_.try_emplace(token, decoded_.records()[record].key(), error);
    }
  }
  // Where a token's stages first differ; null: nowhere.
  const std::pair<std::string, double>* first(std::int64_t token) const {
    const auto found = first_.find(token);
    return found == first_.end() ? nullptr : &found->second;
  }

 private:
  const StageRecorder& decoded_;
  const std::int64_t prompt_tokens_;
  const double tolerance_;
  std::map<std::pair<Stage, int>, std::size_t> index_;
  std::map<std::int64_t, std::pair<std::string, double>> first_;
};

class Debugger {
 public:
  Debugger(Backend& backend, const ModelSpec& spec, const Weights& weights, const DebugOptions& options)
      : backend_(backend),
        spec_(spec),
        weights_(weights),
        options_(options),
        vocab_(backend.plan().vocab_size),
        recorder_(options.prompt_ids.size(), kKeptFloats),
        attention_(options.attention, backend.plan()) {}

  Status check() const {
    const std::uint64_t context = backend_.options().context;
    if (options_.prompt_ids.empty())
      return fail(ErrorCode::kUsage, "The prompt to debug has no tokens. Give at least one.");
    if (options_.prompt_ids.size() > context) {
      return fail(ErrorCode::kLimit,
                  "The prompt has {} tokens, but the context holds {}. Shorten it or raise --context.",
                  options_.prompt_ids.size(), context);
    }
    for (const TokenId id : options_.watched_ids) {
      if (id < 0 || static_cast<std::size_t>(id) >= vocab_)
        return fail(ErrorCode::kUsage, "There is no token {} to watch; ids are 0 to {}.", id, vocab_ - 1);
    }
    for (const AttentionQuery& query : options_.attention)
      DOPPLER_TRY(check_attention_query(query, backend_.plan()));
    return {};
  }

  Result<DebugRun> run() {
    DOPPLER_TRY(check());
    run_.prompt_ids = options_.prompt_ids;
    run_.tolerance = stage_tolerance(backend_, spec_);
    backend_.clear(0);
    TapList taps;
    taps.add(&recorder_).add(options_.attention.empty() ? nullptr : &attention_).add(options_.besides);
    DOPPLER_TRY(prompt(taps.get()));
    attention_.stop();
    DOPPLER_TRY(decode(taps.get()));
    DOPPLER_TRY(decode_as_prompt());
    DOPPLER_TRY(embedding());
    backend_.clear(0);
    run_.stages = recorder_.records();
    run_.attention = attention_.patterns();
    return std::move(run_);
  }

 private:
  // Feeds ids, with the logits of those from `first_logits` on handed to `see` (row, index into ids).
  template <typename See>
  Status feed_all(std::span<const TokenId> ids, std::size_t first_logits, Tap* tap, const See& see) {
    const std::size_t most = step_tokens(backend_.options());
    trace_step_ = backend_.length(0) == 0 ? 0 : trace_step_ + 1;
    for (std::size_t begin = 0; begin < ids.size(); begin += most) {
      StepInput input;
      input.trace_step = trace_step_;
      const std::size_t end = std::min(begin + most, ids.size());
      for (std::size_t i = begin; i < end; ++i)
        input.add(ids[i], backend_.length(0) + i - begin, 0, i >= first_logits);
      DOPPLER_ASSIGN(const std::span<const float> logits, backend_.step(input, tap));
      const std::size_t rows = logits.size() / vocab_;
      for (std::size_t row = 0; row < rows; ++row)
        see(logits.subspan(row * vocab_, vocab_), end - rows + row);
    }
    return {};
  }

  void keep(std::span<const float> row, std::size_t token, bool decoded) {
    PositionLogits kept{.token = static_cast<std::int64_t>(token), .decode = decoded, .all = measure(row)};
    kept.top = likeliest(row, 5);
    kept.entropy = entropy(row);
    for (const TokenId id : options_.watched_ids) kept.watched.push_back(rank_of(row, id));
    if (!decoded && token + 1 < run_.prompt_ids.size())
      kept.loss = -std::log(std::max(1e-300, rank_of(row, run_.prompt_ids[token + 1]).probability));
    if (!last_.empty()) kept.likeness = correlation(last_, row);
    last_.assign(row.begin(), row.end());
    run_.logits.push_back(std::move(kept));
  }

  Status prompt(Tap* tap) {
    const std::size_t tokens = run_.prompt_ids.size();
    const std::size_t first = options_.all_logits ? 0 : tokens - std::min(tokens, kLogitTokens);
    DOPPLER_TRY(
        feed_all(run_.prompt_ids, first, tap, [&](auto row, std::size_t token) { keep(row, token, false); }));
    run_.last_prompt_logits = last_;
    return {};
  }

  Status decode(Tap* tap) {
    std::vector<TokenId> history = run_.prompt_ids;
    for (std::size_t drawn = 0; drawn < options_.decode_steps; ++drawn) {
      Result<TokenId> id =
          options_.choose ? options_.choose(last_, history, drawn) : Result<TokenId>(argmax(last_));
      if (id && *id < 0) id = fail(ErrorCode::kMismatch, "The logits are all NaN.");
      if (!id) {
        run_.stopped = id.error().message;
        return {};
      }
      run_.ids.push_back(*id);
      history.push_back(*id);
      if (std::find(spec_.eos_ids.begin(), spec_.eos_ids.end(), *id) != spec_.eos_ids.end()) {
        run_.stopped = "an end-of-sequence token";
        return {};
      }
      if (drawn + 1 == options_.decode_steps) return {};
      if (backend_.length(0) == backend_.options().context) {
        run_.stopped = "the context is full";
        return {};
      }
      const std::size_t token = backend_.length(0);
      DOPPLER_TRY(feed_all(std::span(&history.back(), 1), 0, tap,
                           [&](auto row, std::size_t) { keep(row, token, true); }));
      decoded_logits_.push_back(last_);
    }
    return {};
  }

  // The tokens that were decoded one by one, now as the end of one prompt: with a correct cache the values
  // are the same.
  Status decode_as_prompt() {
    if (decoded_logits_.empty()) return {};
    const std::size_t prompt_tokens = run_.prompt_ids.size();
    std::vector<TokenId> all = run_.prompt_ids;
    all.insert(all.end(), run_.ids.begin(), run_.ids.begin() + std::ssize(decoded_logits_));
    backend_.clear(0);
    DecodeComparer comparer(recorder_, prompt_tokens, run_.tolerance);
    return feed_all(all, prompt_tokens, &comparer, [&](std::span<const float> row, std::size_t token) {
      const std::vector<float>& decoded = decoded_logits_[token - prompt_tokens];
      DecodeCheck check{.token = static_cast<std::int64_t>(token), .error = relative_error(decoded, row)};
      check.same_choice = argmax(decoded) == argmax(row);
      if (const auto* first = comparer.first(check.token))
        check.first_stage = first->first, check.stage_error = first->second;
      run_.decode.push_back(std::move(check));
    });
  }

  // Some ids from the whole vocabulary, the highest among them.
  std::vector<TokenId> spread_ids(std::size_t most) const {
    const std::size_t known =
        options_.known_ids == 0 ? vocab_ : std::min<std::size_t>(options_.known_ids, vocab_);
    const std::size_t count = std::min(most, known);
    std::vector<TokenId> ids;
    for (std::size_t i = 0; i < count; ++i)
      ids.push_back(static_cast<TokenId>(count == 1 ? known - 1 : i * (known - 1) / (count - 1)));
    return ids;
  }

  Status embedding() {
    EmbeddingCheck& check = run_.embedding;
    const TensorView& table = weights_[weights_.find(WeightRole::kTokenEmbedding)];
    std::vector<float> row(spec_.hidden);
    const auto read = [&](TokenId id) {
      return decode_f32(table, static_cast<std::uint64_t>(id) * row.size(), row);
    };
    const auto is_zero = [](std::span<const float> values) {
      return std::all_of(values.begin(), values.end(), [](float x) { return x == 0; });
    };
    for (const TokenId id : spread_ids(512)) {
      DOPPLER_TRY(read(id));
      ++check.file_rows;
      if (!is_zero(row)) continue;
      ++check.file_zero;
      if (!check.first_zero) check.first_zero = id;
    }
    // Thirty-two tokens cost about as much as the prompt did.
    const std::size_t most =
        std::min<std::uint64_t>({32, step_tokens(backend_.options()), backend_.options().context});
    const std::vector<TokenId> ids = spread_ids(most);
    EmbeddingTap tap;
    backend_.clear(0);
    DOPPLER_TRY(feed_all(ids, ids.size(), &tap, [](auto, std::size_t) {}));
    for (std::size_t i = 0; i < ids.size() && (i + 1) * row.size() <= tap.rows.size(); ++i) {
      const auto ran = std::span(tap.rows).subspan(i * row.size(), row.size());
      DOPPLER_TRY(read(ids[i]));
      ++check.ran;
      if (is_zero(row)) continue;
      for (float& x : row) x = static_cast<float>(x * spec_.embedding_scale);
      if (is_zero(ran)) {
        ++check.ran_zero;
        if (!check.first_ran_zero) check.first_ran_zero = ids[i];
      } else if (relative_error(ran, row) >
                 0.01) {  // f16 rounds to 5e-4, bf16 to 4e-3; another row differs by about 1
        ++check.ran_wrong;
        if (!check.first_ran_wrong) check.first_ran_wrong = ids[i];
      }
    }
    return {};
  }

  struct EmbeddingTap final : Tap {
    bool wants(Stage stage, int) const override { return stage == Stage::kEmbedOut; }
    void on_stage(const TapEvent& event) override {
      rows.insert(rows.end(), event.data.begin(), event.data.end());
    }
    std::vector<float> rows;
  };

  Backend& backend_;
  const ModelSpec& spec_;
  const Weights& weights_;
  const DebugOptions& options_;
  const std::size_t vocab_;
  StageRecorder recorder_;
  AttentionTap attention_;
  DebugRun run_;
  std::vector<float> last_;
  std::int64_t trace_step_ = 0;  // the prompt, then each step after it
  std::vector<std::vector<float>> decoded_logits_;
};

}  // namespace

Result<DebugRun> debug_run(Backend& backend, const ModelSpec& spec, const Weights& weights,
                           const DebugOptions& options) {
  return Debugger(backend, spec, weights, options).run();
}

}  // namespace doppler::diagnosis
