#include "backend/gpu/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace doppler::gpu {
namespace {

// WebGPU promises workgroups of 256 threads, and the kernels that end a choice take a thread per workgroup of
// those that read the vocabulary. So many workgroups also fill the largest GPUs there are.
constexpr std::uint32_t kSamplingThreads = 256, kMostGroups = 256;
// Ids share a word with a bucket's number, and 2^22 weights of 2^42 fit 64 bits.
constexpr std::uint32_t kMostVocab = (1u << 22) - 1;
constexpr std::uint64_t kMostWindow = 1u << 24;  // 64 MiB
// A token 42 halvings below the likeliest weighs less than the unit of the masses.
constexpr double kHalvings = 42;
// Below any distance between two floats, so that smaller temperatures choose as this one does, and quotients
// by it stay finite.
constexpr double kLeastTemperature = 1e-200;
constexpr std::uint32_t kHistogramWords = 3 * 1024 + 2, kPartialWords = 6;
constexpr std::uint32_t kRow = 11;  // as in shaders/sampling_parameters.wgsl

}  // namespace

Sampling::Words Sampling::words_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
}

Sampling::Words Sampling::words_of(double value) {
  if (std::fpclassify(value) == FP_SUBNORMAL) value = 0;  // the kernels' doubles have none
  return words_of(std::bit_cast<std::uint64_t>(value));
}

bool Sampling::remembers(const GenerateOptions& o) {
  return o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
}

bool Sampling::takes(std::uint32_t vocab, const GenerateOptions& options) {
  return vocab > 0 && vocab <= kMostVocab && options.penalty_window <= kMostWindow;
}

Result<Sampling> Sampling::create(Device& device, KernelCache& kernels, const Rows& rows,
                                  const Buffer& logits, const Buffer& chosen,
                                  std::optional<Guesses> guesses) {
  const std::uint32_t vocab = rows.vocab;
  if (vocab == 0 || vocab > kMostVocab) {
    return fail(ErrorCode::kUnsupported,
                "The vocabulary has {} tokens, but the GPU chooses among 1 to {}. Choose them on the CPU.",
                vocab, kMostVocab);
  }
  Sampling sampling(device);
  sampling.rows_ = rows;
  sampling.logits_ = logits;
  sampling.chosen_ = chosen;
  sampling.guesses_ = std::move(guesses);
  constexpr std::uint32_t kLoad = kSamplingThreads * 4;  // a vector for each thread
  sampling.groups_ = std::min((vocab + kLoad - 1) / kLoad, kMostGroups);
  const std::uint32_t rounds = (vocab + sampling.groups_ * kLoad - 1) / (sampling.groups_ * kLoad);
  sampling.chunk_ = rounds * kLoad;
  sampling.values_.resize(rows.count);
  DOPPLER_TRY(sampling.make_kernels(kernels));
  DOPPLER_TRY(sampling.make_buffers());
  DOPPLER_TRY(sampling.bind());
  return sampling;
}

Status Sampling::make_kernels(KernelCache& kernels) {
  // One text for every vocabulary, whose size is a value in a buffer: there are no loops to unroll.
  constexpr const char* kFiles[kKernels] = {
      "sampling_clear.wgsl",     "sampling_count.wgsl",   "sampling_scan.wgsl", "sampling_pick.wgsl",
      "sampling_histogram.wgsl", "sampling_collect.wgsl", "sampling_draw.wgsl"};
  for (std::size_t k = 0; k < kKernels; ++k) {
    ShaderValues values = {{"THREADS", kSamplingThreads}};
    if (k == kScan || k == kHistogram || k == kCollect)
      values["FOURS"] = rows_.of_logits == 1 || rows_.vocab % 4 == 0;
    if (k == kPick || k == kDraw) values["GUESSED"] = guesses_ ? 1 : 0;
    if ((k == kPick || k == kDraw) && guesses_) values["IDS"] = guesses_->ids;
    DOPPLER_ASSIGN(kernels_[k], kernels.get(kFiles[k], values));
  }
  return {};
}

Status Sampling::make_buffers() {
  const std::uint64_t count = rows_.count, tokens = count * rows_.vocab;
  const struct {
    Buffer* buffer;
    const char* label;
    std::uint64_t bytes;
  } all[] = {
      {&parameters_, "sampling parameters", count * sizeof(Parameters)},
      {&state_, "sampling state", count * kStateWords * 4},
      {&marks_, "sampling marks", tokens * 8},
      {&keys_, "sampling keys", tokens * 8},
      {&partials_, "sampling partials", count * groups_ * kPartialWords * 4},
      {&histogram_, "sampling histogram", count * kHistogramWords * 4},
      {&candidates_, "sampling candidates", count * row_bytes(rows_.vocab)},
      {&bias_ids_, "sampling bias ids", 16},
      {&first_row_, "sampling first row", 4},
  };
  for (const auto& one : all) {
    DOPPLER_ASSIGN(*one.buffer, device_->make_buffer(one.label, one.bytes));
  }
  DOPPLER_TRY(widen(window_, "sampling window", 1));
  return widen(biases_, "sampling biases", 2);
}

Status Sampling::bind() {
  std::vector<Bound> every = {
      // Buffers are whole vectors.
      {"logits", logits_, 0, (std::uint64_t{rows_.vocab} * rows_.of_logits + 3) / 4 * 16},
      {"chosen", chosen_},
      {"parameters", parameters_},
      {"state", state_},
      {"marks", marks_},
      {"keys", keys_},
      {"partials", partials_},
      {"histogram", histogram_},
      {"candidates", candidates_},
      {"window", window_.buffer},
      {"bias_ids", bias_ids_},
      {"biases", biases_.buffer},
  };
  if (guesses_) every.push_back({"step", guesses_->step});
  for (std::size_t k = 0; k < kKernels; ++k) {
    std::vector<Bound> used;
    for (const Binding& binding : kernels_[k]->bindings()) {
      for (const Bound& bound : every)
        if (bound.name == binding.name) used.push_back(bound);
    }
    DOPPLER_ASSIGN(bound_[k], BoundKernel::create(*device_, kernels_[k], used));
  }
  rebind_ = false;
  return {};
}

Status Sampling::widen(Parts& parts, std::string_view label, std::uint64_t words) {
  if (words <= parts.words) return {};
  const auto wider = static_cast<std::uint32_t>(std::bit_ceil(words));
  DOPPLER_ASSIGN(Buffer buffer, device_->make_buffer(label, std::uint64_t{rows_.count} * wider * 4));
  if (parts.words > 0) {
    Recorder recorder(*device_);
    for (std::uint64_t row = 0; row < rows_.count; ++row)
      recorder.copy(parts.buffer, row * parts.words * 4, buffer, row * wider * 4, parts.words * 4);
    DOPPLER_TRY(recorder.submit());
  }
  parts = {std::move(buffer), wider};
  rebind_ = true;
  return {};
}

Status Sampling::write_part(const Parts& parts, std::uint32_t row, const std::vector<std::uint32_t>& words) {
  if (words.empty()) return {};
  return device_->write(parts.buffer, std::uint64_t{row} * parts.words * 4, std::as_bytes(std::span(words)));
}

// The tokens that the penalties look back to: all of them, or as a ring those of the window.
Status Sampling::write_history(std::uint32_t row, const GenerateOptions& o,
                               std::span<const TokenId> history) {
  Parameters& values = values_[row];
  values.penalises = remembers(o);
  if (values.penalises == 0) return {};
  values.has_repeat = o.repeat_penalty != 1;
  values.repeat = words_of(o.repeat_penalty);
  values.presence = words_of(o.presence_penalty);
  values.frequency = words_of(o.frequency_penalty);
  const std::uint64_t window = o.penalty_window;
  // A window that the sequence cannot outgrow is as good as none.
  const bool outgrown = window < std::uint64_t{history.size()} + o.max_tokens;
  const bool slides = window != 0 && window < rows_.tokens && (window <= kMostWindow || outgrown);
  if (slides && window > kMostWindow) {
    return fail(ErrorCode::kUnsupported,
                "The penalty window of {} tokens is larger than the GPU's, {}. Make it smaller, or use "
                "--backend cpu.",
                window, kMostWindow);
  }
  std::vector<std::uint32_t> words(slides ? std::min<std::size_t>(history.size(), window) : history.size());
  const std::size_t first = history.size() - words.size();
  for (std::size_t i = first; i < history.size(); ++i)
    words[slides ? i % window : i] = static_cast<std::uint32_t>(history[i]);
  values.window = slides ? o.penalty_window : 0;
  values.history = static_cast<std::uint32_t>(words.size());
  DOPPLER_TRY(widen(window_, "sampling window", slides ? window : words.size()));
  return write_part(window_, row, words);
}

Status Sampling::write_biases(std::uint32_t row, std::uint32_t alike, const GenerateOptions& options,
                              TokenId pad_id) {
  std::vector<std::uint32_t> ids, biases;
  const auto add = [&](TokenId id, double bias) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= rows_.vocab) return;
    ids.push_back(static_cast<std::uint32_t>(id));
    const Words words = words_of(bias);
    biases.insert(biases.end(), {words.high, words.low});
  };
  for (const auto& [id, bias] : options.logit_bias)
    if (id != pad_id) add(id, bias);
  add(pad_id, -std::numeric_limits<double>::infinity());
  DOPPLER_TRY(widen(biases_, "sampling biases", biases.size()));
  for (std::uint32_t i = row; i < row + alike; ++i) {
    values_[i].biases = static_cast<std::uint32_t>(ids.size());
    DOPPLER_TRY(write_part(biases_, i, biases));
  }
  if (ids.size() * 4 > bias_ids_.bytes()) {
    DOPPLER_ASSIGN(bias_ids_, device_->make_buffer("sampling bias ids", std::bit_ceil(ids.size() * 4)));
    rebind_ = true;
  }
  return ids.empty() ? Status() : device_->write(bias_ids_, 0, std::as_bytes(std::span(ids)));
}

void Sampling::set_filters(std::uint32_t row, const GenerateOptions& o) {
  Parameters& values = values_[row];
  const double temperature = std::max(o.temperature, kLeastTemperature);
  values.top_k = o.top_k < rows_.vocab ? o.top_k : 0;
  values.has_top_p = o.top_p < 1;
  if (o.top_p < 1) values.top_p = words_of(static_cast<std::uint64_t>(std::ldexp(o.top_p, 64)));
  // A share of the likeliest's probability is a distance from its score. Where only top-p's sum needs the
  // tokens beyond it, the sum over the nearer ones is kept apart.
  const double negligible = kHalvings * std::numbers::ln2 * temperature;
  const double keep = o.min_p > 0 ? -std::log(o.min_p) * temperature + 0.0 : negligible;
  values.has_keep = o.top_p < 1 && keep < negligible;
  values.keep = words_of(keep);
  values.cut = words_of(o.top_p < 1 ? negligible : std::min(keep, negligible));
  values.rate = words_of(o.temperature == 0 ? 0.0 : std::numbers::log2e / temperature);
  values.seed = words_of(o.seed);
}

Status Sampling::write_parameters() {
  for (std::uint32_t row = 0; row < rows_.count; ++row) {
    values_[row].window_at = row * window_.words;
    values_[row].biases_at = row * (biases_.words / 2);
  }
  return device_->write(parameters_, 0, std::as_bytes(std::span(values_)));
}

Status Sampling::count_history(std::uint32_t row, std::uint32_t alike) {
  Recorder recorder(*device_);
  recorder.dispatch(bound_[kClear], {groups_, alike, 1});
  const std::uint32_t entries = std::max(values_[row].history, values_[row].biases);
  recorder.dispatch(bound_[kCount],
                    {std::min((entries + kSamplingThreads - 1) / kSamplingThreads, groups_), alike, 1});
  DOPPLER_TRY(recorder.submit());
  return {};
}

Status Sampling::begin(std::uint32_t row, const GenerateOptions& options, TokenId pad_id,
                       std::span<const TokenId> history, std::uint64_t first_draw, std::uint32_t alike) {
  Parameters& first = values_[row];
  first = {.vocab = rows_.vocab,
           .groups = groups_,
           .chunk = chunk_,
           .logits_row = first.logits_row,
           .listed = first.listed,
           .drawn = first.drawn};
  DOPPLER_TRY(write_history(row, options, history));
  set_filters(row, options);
  for (std::uint32_t i = 1; i < alike; ++i) {
    Parameters& other = values_[row + i];
    const Parameters before = std::exchange(other, first);
    other.logits_row = before.logits_row;
    other.listed = before.listed;
  }
  DOPPLER_TRY(write_biases(row, alike, options, pad_id));
  for (std::uint32_t i = row; i < row + alike; ++i)
    values_[i].adjusts = values_[i].penalises != 0 || values_[i].biases != 0;
  values_[0].begun = row;
  DOPPLER_TRY(write_parameters());
  // A length beyond the window only tells the place in it.
  std::uint64_t length = history.size();
  if (first.window != 0 && length >= first.window) length = first.window + length % first.window;
  for (std::uint32_t i = 0; i < alike; ++i) {
    const Words draw = words_of(first_draw + i);
    const std::uint32_t state[] = {draw.low, draw.high, static_cast<std::uint32_t>(length)};
    const std::uint64_t at = std::uint64_t{row + i} * kStateWords * 4;
    DOPPLER_TRY(device_->write(state_, at, std::as_bytes(std::span(state))));
  }
  if (rebind_) DOPPLER_TRY(bind());
  if (first.adjusts == 0) return {};
  return count_history(row, alike);
}

Status Sampling::list(std::span<const Listed> rows) {
  listed_ = drawn_ = 0;
  for (const bool draws : {true, false}) {
    for (const Listed& each : rows) {
      if (values_[each.row].draws() != draws) continue;
      values_[listed_++].listed = each.row;
      values_[each.row].logits_row = each.of_logits;
    }
    if (draws) drawn_ = listed_;
  }
  values_[0].drawn = drawn_;
  return write_parameters();
}

Status Sampling::begin_alone(const GenerateOptions& options, TokenId pad_id, std::span<const TokenId> history,
                             std::uint64_t first_draw) {
  DOPPLER_TRY(begin(0, options, pad_id, history, first_draw));
  return list(std::array{Listed{}});
}

void Sampling::begin_guesses(Recorder& recorder) const {
  recorder.copy(first_row_, 0, state_, kRow * 4, 4);
}

void Sampling::record(Recorder& recorder) const {
  recorder.dispatch(bound_[kScan], {groups_, listed_, 1});
  recorder.dispatch(bound_[kPick], {1, listed_ - drawn_, 1});
  recorder.dispatch(bound_[kHistogram], {groups_, drawn_, 1});
  recorder.dispatch(bound_[kCollect], {groups_, drawn_, 1});
  recorder.dispatch(bound_[kDraw], {1, drawn_, 1});
}

std::uint32_t Sampling::dispatches() const {
  return (listed_ > 0 ? 1 : 0) + (listed_ > drawn_ ? 1 : 0) + (drawn_ > 0 ? 3 : 0);
}

}  // namespace doppler::gpu
