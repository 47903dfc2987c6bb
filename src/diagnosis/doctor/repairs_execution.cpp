#include "diagnosis/doctor/repairs_execution.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace doppler::diagnosis {
namespace {

bool is_bad(const OpCase& c, std::size_t at) {
  if (c.output()[at] == c.target()[at] || (std::isnan(c.output()[at]) && std::isnan(c.target()[at])))
    return false;
  const double difference = std::abs(static_cast<double>(c.output()[at]) - c.target()[at]);
  return !(difference <= c.allowed_at(at / c.width(), at % c.width()));
}

// Whether the predicate holds for all wrong values.
template <typename Predicate>
bool all_bad(const OpCase& c, Predicate predicate) {
  bool any = false;
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    if (!is_bad(c, i)) continue;
    any = true;
    if (!predicate(i)) return false;
  }
  return any;
}

bool together(const std::vector<std::size_t>& places) {
  return !places.empty() && places.back() - places.front() + 1 == places.size();
}

Explanation found(std::string cause, std::string says, double confidence) {
  return {{.cause = std::move(cause), .says = std::move(says), .ratio = 0.5}, confidence, {}};
}

// The largest finite float16.
constexpr float kLargestHalf = 65504;

bool explain_overflow(const OpCase& c, Explanation& explanation) {
  std::size_t infinite = 0, nan = 0, clamped = 0, bad = 0;
  float least = INFINITY;
  for (std::size_t i = 0; i < c.target().size(); ++i) {
    if (!is_bad(c, i)) continue;
    ++bad;
    const float x = c.target()[i];
    infinite += std::isinf(x), nan += std::isnan(x);
    clamped += std::abs(x) >= 65472 && std::abs(x) <= kLargestHalf && std::abs(c.output()[i]) > kLargestHalf;
    if (!std::isfinite(x)) least = std::min(least, std::abs(c.output()[i]));
  }
  if (bad == 0) return false;
  if (infinite > 0 || clamped == bad) {
    explanation = found("f16_overflow", fmt::format("values from {:.4g} on become infinite", least), 0.95);
    return true;
  }
  const auto large = [](std::span<const float> values) {
    return std::ranges::any_of(values, [](float x) { return std::abs(x) > kLargestHalf; });
  };
  bool input_large = large(c.output());
  for (const OpSetup::Rows& in : c.setup().inputs) input_large |= large(in.data);
  if (nan == bad && input_large) {
    explanation = found("f16_overflow", "values beyond 65504 are lost on the way", 0.8);
    return true;
  }
  if (nan != bad) return false;
  explanation = found("kernel_writes_nothing",
                      "the values are never written: they are NaN, as poisoned memory is", 0.8);
  return true;
}

// The cause if an op's wrong columns are its last ones, else null. A tail is the rest of a block; a limit
// loses a large part of the rows.
const char* cause_of_wrong_end(const OpCase& c, const BadPlaces& places) {
  const auto& columns = places.columns;
  if (columns.empty() || !together(columns) || columns.back() + 1 != c.width() || columns.front() == 0)
    return nullptr;
  const bool vocabulary = c.stage() == Stage::kLogits || c.stage() == Stage::kLogitsFinal;
  const bool limit = vocabulary || columns.size() >= 256 || columns.size() * 4 >= c.width();
  return limit ? "rows_beyond_limit" : "tail_missing";
}

bool explain_zeros(const OpCase& c, const BadPlaces& places, Explanation& explanation) {
  if (!all_bad(c, [&](std::size_t i) { return c.target()[i] == 0; })) return false;
  const auto& columns = places.columns;
  if (columns.size() * 10 >= c.width() * 9) {  // single zeros of the oracle are no contradiction
    if (places.tokens.size() == c.tokens() || c.op().kind != OpKind::kEmbed) {
      explanation = found("kernel_writes_nothing", "nothing is written, and zeros stay", 0.95);
      return true;
    }
    explanation = found("rows_beyond_limit", "rows of the table beyond a limit are not read", 0.9);
    return true;
  }
  const char* cause = cause_of_wrong_end(c, places);
  if (cause == nullptr) return false;
  explanation = found(cause, fmt::format("columns from {} on stay zero", columns.front()), 0.95);
  return true;
}

// Another stage's or another token's values in the wrong places.
bool explain_stale(const OpCase& c, const BadPlaces& places, Explanation& explanation) {
  const auto equal_there = [&](const std::vector<float>& rows, std::ptrdiff_t shift) {
    return all_bad(c, [&](std::size_t i) {
      const auto from = static_cast<std::ptrdiff_t>(i) + shift * static_cast<std::ptrdiff_t>(c.width());
      const auto size = static_cast<std::ptrdiff_t>(rows.size());
      return rows[static_cast<std::size_t>((from % size + size) % size)] == c.target()[i];
    });
  };
  if (places.bad < 4) return false;
  for (std::ptrdiff_t shift = 1; shift < static_cast<std::ptrdiff_t>(c.tokens()); ++shift) {
    // Judged on a backend's own values: exact where an op copies, near where it computes.
    if (!all_bad(c, [&](std::size_t i) {
          const std::size_t from = (i + static_cast<std::size_t>(shift) * c.width()) % c.output().size();
          return std::abs(c.output()[from] - c.target()[i]) <=
                 2 * c.allowed_at(from / c.width(), from % c.width());
        }))
      continue;
    if (c.op().kind == OpKind::kRope || c.op().kind == OpKind::kAttention) continue;  // positions, not places
    explanation =
        found("stale_buffer", fmt::format("tokens get the values of the token {} places on", shift), 0.9);
    return true;
  }
  std::set<ValueId> own(c.op().inputs.begin(), c.op().inputs.end());
  for (ValueId id = 0; id < c.plan().values.size(); ++id) {
    const Value& value = c.plan().values[id];
    const bool same = value.stage == c.stage() && value.layer == c.layer();
    if (value.width != c.width() || same || own.contains(id)) continue;
    const auto rows = c.other(value.stage, value.layer);
    if (!rows || rows->size() != c.target().size() || !equal_there(*rows, 0)) continue;
    explanation =
        found("stale_buffer", fmt::format("it still holds {}", stage_key(value.stage, value.layer)), 0.95);
    return true;
  }
  return false;
}

// The products leave the last columns of their input out.
bool explain_dropped_columns(OpCase& c, Explanation& explanation) {
  if (c.op().kind != OpKind::kMatmul) return false;
  const std::size_t width = c.setup().inputs[0].width;
  std::set<std::size_t> tails;
  for (const std::size_t block : {256, 192, 128, 96, 64, 48, 40, 32, 24, 20, 16, 12, 8, 4, 3, 2}) {
    if (block < width && width % block != 0) tails.insert(width % block);
    if (block < width) tails.insert(block);
  }
  for (std::size_t i = 1; i <= 8; ++i) tails.insert(i);
  for (const std::size_t tail : tails) {
    if (tail >= width) continue;
    const double ratio = c.ratio_with([&](OpSetup& s) {
      for (std::size_t t = 0; t < s.tokens(); ++t)
        std::fill_n(s.inputs[0].data.begin() + static_cast<std::ptrdiff_t>((t + 1) * width - tail), tail,
                    0.0f);
    });
    if (ratio > 1) continue;
    explanation =
        found("tail_missing",
              fmt::format("the last {} of the {} columns of its input are left out", tail, width), 0.95);
    return true;
  }
  return false;
}

// [tokens][heads] written as [heads][tokens].
bool explain_swapped_fields(const OpCase& c, Explanation& explanation) {
  const std::size_t heads = c.setup().heads, dim = c.width() / heads, tokens = c.tokens();
  if (heads < 2 || tokens < 2) return false;
  for (const bool by_dim : {false, true}) {
    std::vector<float> moved(c.output().size());
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t h = 0; h < heads; ++h) {
        for (std::size_t i = 0; i < dim; ++i) {
          const std::size_t to = by_dim ? t * c.width() + i * heads + h : (h * tokens + t) * dim + i;
          moved[to] = c.output()[(t * heads + h) * dim + i];
        }
      }
    }
    // Allowances move with the values; twice is enough room.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const double slack = 1e-3 * std::abs(moved[i]) + 4 * c.allowed_at(i / c.width(), i % c.width());
      wrong += std::abs(moved[i] - c.target()[i]) > slack;
    }
    if (wrong * 1000 > moved.size()) continue;
    explanation = found("uniform_fields_swapped",
                        by_dim ? "heads and dims are written in each other's order"
                               : "tokens and heads are written in each other's order",
                        0.95);
    return true;
  }
  return false;
}

// The same inputs gave other values when the run was repeated.
bool explain_race(const OpCase& c, const ExecutionHints& hints, Explanation& explanation) {
  if (hints.again == nullptr) return false;
  const auto& first = c.context().experiment.rows();
  const auto same = [&](Stage stage, int layer) {
    const auto a = first.read(c.plan(), stage, layer), b = hints.again->read(c.plan(), stage, layer);
    return a && b && a->size() == b->size() && std::ranges::equal(*a, *b, [](float x, float y) {
             return x == y || (std::isnan(x) && std::isnan(y));
           });
  };
  for (const ValueId id : c.op().inputs) {
    if (!same(c.plan().values[id].stage, c.plan().values[id].layer)) return false;
  }
  if (same(c.stage(), c.layer())) return false;
  const BadPlaces places = find_bad_places(c);
  if (const char* cause = cause_of_wrong_end(c, places); cause != nullptr) {
    explanation = found(cause,
                        fmt::format("columns from {} on are never written, and hold other values at each run",
                                    places.columns.front()),
                        0.9);
    return true;
  }
  explanation = found("missing_barrier", "it is other values at each run, from the same inputs", 0.95);
  return true;
}

}  // namespace

std::vector<std::size_t> rows_to_explain(const OpCase& c, const ExecutionHints& hints) {
  const BadPlaces places = find_bad_places(c);
  std::vector<std::size_t> prompt;
  bool bad_in_prompt = false;
  for (std::size_t t = 0; t < c.tokens(); ++t) {
    if (c.rows()[t] < hints.prompt_tokens) prompt.push_back(c.rows()[t]);
  }
  for (const std::size_t t : places.tokens) bad_in_prompt |= c.rows()[t] < hints.prompt_tokens;
  if (bad_in_prompt) return prompt;
  if (places.tokens.empty()) return {};
  return {c.rows()[places.tokens.front()]};
}

bool explain_execution(OpCase& c, const ExecutionHints& hints, Explanation& explanation) {
  const BadPlaces places = find_bad_places(c);
  // Attention reads its cache, too, whose empty places may differ from run to run.
  const bool repeats = c.op().kind != OpKind::kAttention && explain_race(c, hints, explanation);
  return repeats || explain_overflow(c, explanation) || explain_zeros(c, places, explanation) ||
         explain_stale(c, places, explanation) || explain_swapped_fields(c, explanation) ||
         explain_dropped_columns(c, explanation);
}

void explain_by_place(const OpCase& c, const ExecutionHints& hints, Explanation& explanation) {
  if (explanation.attempt.cause != "unknown" || explain_race(c, hints, explanation)) return;
  const BadPlaces places = find_bad_places(c);
  if (!c.rows().empty() && c.rows().front() >= hints.prompt_tokens && hints.prompt_tokens > 0) {
    explanation.attempt = {
        .cause = "decode_unlike_prefill", .says = "tokens come together, not one at a time", .ratio = 0.9};
    explanation.confidence = 0.7;
    return;
  }
  const char* cause = cause_of_wrong_end(c, places);
  if (cause == nullptr) return;
  explanation.attempt = {.cause = cause,
                         .says = fmt::format("columns from {} on are wrong", places.columns.front()),
                         .ratio = 0.9};
  explanation.confidence = 0.6;
}

}  // namespace doppler::diagnosis
