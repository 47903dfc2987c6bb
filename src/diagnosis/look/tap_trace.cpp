#include "diagnosis/look/tap_trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "backend/backend.h"
#include "diagnosis/look/magnitudes.h"
#include "diagnosis/look/probe.h"
#include "engine/logprobs.h"

namespace doppler::diagnosis {
namespace {

constexpr CategorySet kOurs = category_bit(Category::kEmbed) | category_bit(Category::kAttn) |
                              category_bit(Category::kFfn) | category_bit(Category::kLogits);

std::vector<float> first_values(std::span<const float> values) {
  return {values.begin(), values.begin() + std::min<std::ptrdiff_t>(8, std::ssize(values))};
}

// For people who look for a value they know from another engine.
std::string sample(std::span<const float> values) {
  return fmt::format("first8=[{:.4g}]", fmt::join(first_values(values), ", "));
}

}  // namespace

bool traces_taps() {
  return (traced_categories() & kOurs) != 0;
}

TraceTap::TraceTap(const ModelSpec& spec, const Plan& plan, TokenText text)
    : spec_(spec), plan_(plan), text_(std::move(text)) {}

bool TraceTap::wants(Stage stage, int layer) const {
  // Scores are large, and to show them a GPU needs other kernels than those that users run.
  return stage != Stage::kAttnScores && trace_wanted(category_of(stage), layer, newest_step_);
}

std::int64_t TraceTap::step_of(const TapEvent& event) const {
  return std::max<std::int64_t>(0, event.input->positions.front() - prompt_tokens_ + 1);
}

void TraceTap::on_stage(const TapEvent& event) {
  const std::int64_t step = step_of(event);
  newest_step_ = std::max(newest_step_, step);
  if (!trace_wanted(category_of(event.stage), event.layer, step) || event.rows == 0) return;
  switch (event.stage) {
    case Stage::kEmbedOut:
      return embed(event, step);
    case Stage::kLogits:
      return head(event, step);
    case Stage::kLogitsFinal:
      return logits(event, step);
    case Stage::kAttnNormed:
      attention_geometry(event, step);
      break;
    default:
      break;
  }
  std::string text;
  if (event.stage == Stage::kLayerOut) text = "LAYER_OUT ";
  if (event.stage == Stage::kAttnOut) text = "ATTN_OUT ";
  if (event.stage == Stage::kPreFinalNorm)
    text = fmt::format("FINAL_HIDDEN[pos={}] ", event.input->positions.back());
  text += fmt::format("{} tokens={} width={} {}", stage_name(event.stage), event.rows, event.width,
                      describe_statistics(measure(event.data), event.width, event.input->positions.front()));
  const auto last = event.data.last(event.width);
  text += fmt::format(" last token {}", sample(last));
  trace(category_of(event.stage), event.layer, text, step);
}

void TraceTap::embed(const TapEvent& event, std::int64_t step) const {
  const auto say = [&](const std::string& text) { trace(Category::kEmbed, -1, text, step); };
  say(fmt::format("tokens={} hidden={} vocab={} scaleEmbeddings={} scale={:.6g}", event.rows, event.width,
                  plan_.vocab_size, spec_.embedding_scale != 1, spec_.embedding_scale));
  say(fmt::format("TOKEN_IDS [{}]", fmt::join(event.input->ids, ", ")));
  const auto first = event.data.first(event.width);
  const Statistics of_first = measure(first), all = measure(event.data);
  say(fmt::format("FIRST_TOKEN[{}] maxAbs={:.5g} mean={:.4g} std={:.4g} {}", event.input->ids.front(),
                  of_first.max_abs, of_first.mean, of_first.deviation(), sample(first)));
  say(fmt::format("RAW maxAbs={:.5g} SCALED maxAbs={:.5g} scale={:.6g} zeros={} NaN={} Inf={}",
                  all.max_abs / spec_.embedding_scale, all.max_abs, spec_.embedding_scale, all.zeros, all.nan,
                  all.inf));
}

void TraceTap::attention_geometry(const TapEvent& event, std::int64_t step) const {
  const AttentionSpec& a = spec_.layers[static_cast<std::size_t>(event.layer)].attention;
  const bool sliding = a.kind == AttentionKind::kSliding;
  std::string text = fmt::format(
      "heads={} kvHeads={} headDim={} scale={:.6g} rope={} theta={:.6g} layout={} scaling={} seqLen={} "
      "kvLen={}",
      a.heads, a.kv_heads, a.head_dim, a.scale, sliding ? "local" : "global", a.rope.theta,
      name_of(a.rope.layout), name_of(a.rope.scaling.kind), event.rows, event.input->positions.back() + 1);
  if (sliding) text += fmt::format(" window={}", a.window);
  if (a.softcap > 0) text += fmt::format(" softcap={:.6g}", a.softcap);
  trace(Category::kAttn, event.layer, text, step);
}

void TraceTap::head(const TapEvent& event, std::int64_t step) const {
  trace(Category::kLogits, -1,
        fmt::format("LM_HEAD_MATMUL M={} N={} K={} tied={} {}", event.rows, event.width, spec_.hidden,
                    spec_.tied_head,
                    describe_statistics(measure(event.data), event.width, event.input->positions.front())),
        step);
}

void TraceTap::logits(const TapEvent& event, std::int64_t step) const {
  const auto row = event.data.last(event.width);
  const Statistics s = measure(row);
  std::string text = fmt::format("pos={} top-5:", event.input->positions.back());
  for (const Likely& choice : likeliest(row, 5))
    text += fmt::format(" {} \"{}\" ({:.1f}%)", choice.id, text_ ? text_(choice.id) : "",
                        100 * choice.probability);
  trace(Category::kLogits, -1,
        fmt::format("{} min={:.5g} max={:.5g} NaN={} Inf={}", text, s.min, s.max, s.nan, s.inf), step);
}

}  // namespace doppler::diagnosis
