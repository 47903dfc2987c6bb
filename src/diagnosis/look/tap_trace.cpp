#include "diagnosis/look/tap_trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/backend.h"
#include "base/json.h"
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

// JSON has no NaN and no infinity: they are null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json data_of(const Statistics& s) {
  return {{"min", number(s.min)},
          {"max", number(s.max)},
          {"max_abs", number(s.max_abs)},
          {"max_abs_index", s.max_abs_index},
          {"mean", number(s.mean)},
          {"rms", number(s.rms)},
          {"zeros", s.zeros},
          {"nan", s.nan},
          {"inf", s.inf}};
}

Json data_of(const TapEvent& event) {
  Json data = data_of(measure(event.data));
  data.update({{"stage", stage_name(event.stage)},
               {"tokens", event.rows},
               {"width", event.width},
               {"position", event.input->positions.front()}});
  return data;
}

Json first_data(std::span<const float> values) {
  Json list = Json::array();
  for (const float value : first_values(values)) list.push_back(number(value));
  return list;
}

std::string text_of(const Json& data) {
  return dump_json(data);
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
  Json data = data_of(event);
  data["last_token"] = first_data(last);
  trace(category_of(event.stage), event.layer, text, step, text_of(data));
}

void TraceTap::embed(const TapEvent& event, std::int64_t step) const {
  const auto say = [&](const std::string& text, const Json& data) {
    trace(Category::kEmbed, -1, text, step, text_of(data));
  };
  say(fmt::format("tokens={} hidden={} vocab={} scaleEmbeddings={} scale={:.6g}", event.rows, event.width,
                  plan_.vocab_size, spec_.embedding_scale != 1, spec_.embedding_scale),
      {{"tokens", event.rows},
       {"hidden", event.width},
       {"vocab", plan_.vocab_size},
       {"scale", spec_.embedding_scale}});
  say(fmt::format("TOKEN_IDS [{}]", fmt::join(event.input->ids, ", ")), {{"ids", event.input->ids}});
  const auto first = event.data.first(event.width);
  const Statistics of_first = measure(first), all = measure(event.data);
  say(fmt::format("FIRST_TOKEN[{}] maxAbs={:.5g} mean={:.4g} std={:.4g} {}", event.input->ids.front(),
                  of_first.max_abs, of_first.mean, of_first.deviation(), sample(first)),
      {{"id", event.input->ids.front()},
       {"max_abs", number(of_first.max_abs)},
       {"mean", number(of_first.mean)},
       {"std", number(of_first.deviation())},
       {"first", first_data(first)}});
  say(fmt::format("RAW maxAbs={:.5g} SCALED maxAbs={:.5g} scale={:.6g} zeros={} NaN={} Inf={}",
                  all.max_abs / spec_.embedding_scale, all.max_abs, spec_.embedding_scale, all.zeros, all.nan,
                  all.inf),
      data_of(event));
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
  const Json data = {{"heads", a.heads},
                     {"kv_heads", a.kv_heads},
                     {"head_dim", a.head_dim},
                     {"scale", a.scale},
                     {"theta", a.rope.theta},
                     {"tokens", event.rows},
                     {"kv_length", event.input->positions.back() + 1},
                     {"window", sliding ? Json(a.window) : Json(nullptr)},
                     {"softcap", a.softcap}};
  trace(Category::kAttn, event.layer, text, step, text_of(data));
}

void TraceTap::head(const TapEvent& event, std::int64_t step) const {
  trace(Category::kLogits, -1,
        fmt::format("LM_HEAD_MATMUL M={} N={} K={} tied={} {}", event.rows, event.width, spec_.hidden,
                    spec_.tied_head,
                    describe_statistics(measure(event.data), event.width, event.input->positions.front())),
        step, text_of(data_of(event)));
}

void TraceTap::logits(const TapEvent& event, std::int64_t step) const {
  const auto row = event.data.last(event.width);
  const Statistics s = measure(row);
  std::string text = fmt::format("pos={} top-5:", event.input->positions.back());
  Json data = data_of(s);
  data.update({{"position", event.input->positions.back()}, {"top", Json::array()}});
  for (const Likely& choice : likeliest(row, 5)) {
    const std::string piece = text_ ? text_(choice.id) : "";
    text += fmt::format(" {} \"{}\" ({:.1f}%)", choice.id, piece, 100 * choice.probability);
    data["top"].push_back({{"id", choice.id},
                           {"text", piece},
                           {"logit", number(choice.logit)},
                           {"probability", number(choice.probability)}});
  }
  trace(Category::kLogits, -1,
        fmt::format("{} min={:.5g} max={:.5g} NaN={} Inf={}", text, s.min, s.max, s.nan, s.inf), step,
        text_of(data));
}

}  // namespace doppler::diagnosis
