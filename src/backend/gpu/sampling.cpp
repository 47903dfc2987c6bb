#include "backend/gpu/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

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
constexpr std::uint32_t kHistogramWords = 3 * 1024 + 2, kStateWords = 16, kPartialWords = 6;
constexpr std::uint32_t kRow = 11;  // as in shaders/sampling_parameters.wgsl

Status write_vector(Device& device, const Buffer& buffer, const std::vector<std::uint32_t>& words) {
  if (words.empty()) return {};
  return device.write(buffer, 0, std::as_bytes(std::span(words)));
}

}  // namespace

Sampling::Words Sampling::words_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
}

Sampling::Words Sampling::words_of(double value) {
  if (std::fpclassify(value) == FP_SUBNORMAL) value = 0;  // the kernels' doubles have none
  return words_of(std::bit_cast<std::uint64_t>(value));
}

bool Sampling::takes(std::uint32_t vocab, const GenerateOptions& options) {
  return vocab > 0 && vocab <= kMostVocab && options.penalty_window <= kMostWindow;
}

Result<Sampling> Sampling::create(Device& device, KernelCache& kernels, std::uint32_t vocab,
                                  const Buffer& logits, const Buffer& chosen,
                                  std::optional<Guesses> guesses) {
  if (vocab == 0 || vocab > kMostVocab) {
    return fail(ErrorCode::kUnsupported,
                "The vocabulary has {} tokens, but the GPU chooses among 1 to {}. Choose them on the CPU.",
                vocab, kMostVocab);
  }
  Sampling sampling(device);
  sampling.vocab_ = vocab;
  sampling.logits_ = logits;
  sampling.chosen_ = chosen;
  sampling.guesses_ = std::move(guesses);
  constexpr std::uint32_t kLoad = kSamplingThreads * 4;  // a vector for each thread
  sampling.groups_ = std::min((vocab + kLoad - 1) / kLoad, kMostGroups);
  const std::uint32_t rounds = (vocab + sampling.groups_ * kLoad - 1) / (sampling.groups_ * kLoad);
  sampling.chunk_ = rounds * kLoad;
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
    if (k == kPick || k == kDraw) values["GUESSED"] = guesses_ ? 1 : 0;
    if ((k == kPick || k == kDraw) && guesses_) values["IDS"] = guesses_->ids;
    DOPPLER_ASSIGN(kernels_[k], kernels.get(kFiles[k], values));
  }
  return {};
}

Status Sampling::make_buffers() {
  const struct {
    Buffer* buffer;
    const char* label;
    std::uint64_t bytes;
  } all[] = {
      {&parameters_, "sampling parameters", sizeof(Parameters)},
      {&state_, "sampling state", kStateWords * 4},
      {&marks_, "sampling marks", std::uint64_t{vocab_} * 8},
      {&keys_, "sampling keys", std::uint64_t{vocab_} * 8},
      {&partials_, "sampling partials", std::uint64_t{groups_} * kPartialWords * 4},
      {&histogram_, "sampling histogram", kHistogramWords * 4},
      {&candidates_, "sampling candidates", std::uint64_t{vocab_} * 16},
      {&window_, "sampling window", 16},
      {&bias_ids_, "sampling bias ids", 16},
      {&biases_, "sampling biases", 16},
      {&first_row_, "sampling first row", 4},
  };
  for (const auto& one : all) {
    DOPPLER_ASSIGN(*one.buffer, device_->make_buffer(one.label, one.bytes));
  }
  return {};
}

Status Sampling::bind() {
  std::vector<Bound> every = {
      {"logits", logits_, 0, (std::uint64_t{vocab_} + 3) / 4 * 16},  // buffers are whole vectors
      {"chosen", chosen_},
      {"parameters", parameters_},
      {"state", state_},
      {"marks", marks_},
      {"keys", keys_},
      {"partials", partials_},
      {"histogram", histogram_},
      {"candidates", candidates_},
      {"window", window_},
      {"bias_ids", bias_ids_},
      {"biases", biases_},
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

Status Sampling::grow(Buffer& buffer, std::string_view label, std::uint64_t bytes) {
  if (bytes <= buffer.bytes()) return {};
  DOPPLER_ASSIGN(buffer, device_->make_buffer(label, std::bit_ceil(bytes)));
  rebind_ = true;
  return {};
}

// The tokens that the penalties look back to: all of them, or as a ring those of the window.
Status Sampling::write_history(const GenerateOptions& o, std::span<const TokenId> history) {
  values_.penalises = o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0;
  if (values_.penalises == 0) return {};
  values_.has_repeat = o.repeat_penalty != 1;
  values_.repeat = words_of(o.repeat_penalty);
  values_.presence = words_of(o.presence_penalty);
  values_.frequency = words_of(o.frequency_penalty);
  const std::uint64_t window = o.penalty_window;
  // A window that the sequence cannot outgrow is as good as none.
  const bool outgrown = window < std::uint64_t{history.size()} + o.max_tokens;
  const bool slides = window != 0 && (window <= kMostWindow || outgrown);
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
  values_.window = slides ? o.penalty_window : 0;
  values_.history = static_cast<std::uint32_t>(words.size());
  DOPPLER_TRY(grow(window_, "sampling window", slides ? window * 4 : words.size() * 4));
  return write_vector(*device_, window_, words);
}

Status Sampling::write_biases(const GenerateOptions& options, TokenId pad_id) {
  std::vector<std::uint32_t> ids, biases;
  const auto add = [&](TokenId id, double bias) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= vocab_) return;
    ids.push_back(static_cast<std::uint32_t>(id));
    const Words words = words_of(bias);
    biases.insert(biases.end(), {words.high, words.low});
  };
  for (const auto& [id, bias] : options.logit_bias)
    if (id != pad_id) add(id, bias);
  add(pad_id, -std::numeric_limits<double>::infinity());
  values_.biases = static_cast<std::uint32_t>(ids.size());
  DOPPLER_TRY(grow(bias_ids_, "sampling bias ids", ids.size() * 4));
  DOPPLER_TRY(grow(biases_, "sampling biases", biases.size() * 4));
  DOPPLER_TRY(write_vector(*device_, bias_ids_, ids));
  return write_vector(*device_, biases_, biases);
}

void Sampling::set_filters(const GenerateOptions& o) {
  greedy_ = o.temperature == 0;
  const double temperature = std::max(o.temperature, kLeastTemperature);
  values_.top_k = o.top_k < vocab_ ? o.top_k : 0;
  values_.has_top_p = o.top_p < 1;
  if (o.top_p < 1) values_.top_p = words_of(static_cast<std::uint64_t>(std::ldexp(o.top_p, 64)));
  // A share of the likeliest's probability is a distance from its score. Where only top-p's sum needs the
  // tokens beyond it, the sum over the nearer ones is kept apart.
  const double negligible = kHalvings * std::numbers::ln2 * temperature;
  const double keep = o.min_p > 0 ? -std::log(o.min_p) * temperature + 0.0 : negligible;
  values_.has_keep = o.top_p < 1 && keep < negligible;
  values_.keep = words_of(keep);
  values_.cut = words_of(o.top_p < 1 ? negligible : std::min(keep, negligible));
  values_.rate = words_of(std::numbers::log2e / temperature);
  values_.seed = words_of(o.seed);
}

Status Sampling::count_history() {
  Recorder recorder(*device_);
  recorder.dispatch(bound_[kClear], {groups_});
  const std::uint32_t entries = std::max(values_.history, values_.biases);
  recorder.dispatch(bound_[kCount], {std::min((entries + kSamplingThreads - 1) / kSamplingThreads, groups_)});
  DOPPLER_TRY(recorder.submit());
  return {};
}

Status Sampling::begin(const GenerateOptions& options, TokenId pad_id, std::span<const TokenId> history,
                       std::uint64_t first_draw) {
  values_ = {};
  values_.vocab = vocab_;
  values_.groups = groups_;
  values_.chunk = chunk_;
  DOPPLER_TRY(write_history(options, history));
  DOPPLER_TRY(write_biases(options, pad_id));
  set_filters(options);
  values_.adjusts = values_.penalises != 0 || values_.biases != 0;
  DOPPLER_TRY(device_->write(parameters_, 0, std::as_bytes(std::span(&values_, 1))));
  // A length beyond the window only tells the place in it.
  std::uint64_t length = history.size();
  if (values_.window != 0 && length >= values_.window) length = values_.window + length % values_.window;
  const Words draw = words_of(first_draw);
  const std::uint32_t state[] = {draw.low, draw.high, static_cast<std::uint32_t>(length)};
  DOPPLER_TRY(device_->write(state_, 0, std::as_bytes(std::span(state))));
  if (rebind_) DOPPLER_TRY(bind());
  if (values_.adjusts == 0) return {};
  return count_history();
}

void Sampling::begin_rows(Recorder& recorder) const {
  recorder.copy(first_row_, 0, state_, kRow * 4, 4);
}

void Sampling::record(Recorder& recorder) const {
  recorder.dispatch(bound_[kScan], {groups_});
  if (greedy_) {
    recorder.dispatch(bound_[kPick], {});
    return;
  }
  recorder.dispatch(bound_[kHistogram], {groups_});
  recorder.dispatch(bound_[kCollect], {groups_});
  recorder.dispatch(bound_[kDraw], {});
}

}  // namespace doppler::gpu
