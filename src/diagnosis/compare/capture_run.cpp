// capture_run(): a run kept in memory as a recording.
#include "diagnosis/compare/compare_recordings.h"

namespace doppler::diagnosis {
namespace {

// The memory that a captured recording's tensors view.
struct CapturedRun {
  CapturedRows rows;
  std::vector<std::int32_t> prompt_ids, greedy_ids;
  std::vector<float> decode_logits;
};

template <typename T>
TensorView view_of(std::string name, DType dtype, Shape shape, const std::vector<T>& data) {
  return {std::move(name), dtype, std::move(shape), std::as_bytes(std::span(data))};
}

Status decode(Backend& backend, const CaptureOptions& options, std::span<const float> logits,
              CapturedRun& run) {
  const std::size_t vocab = backend.plan().vocab_size;
  run.greedy_ids = options.greedy_ids;
  const bool forced = !run.greedy_ids.empty();
  const std::size_t steps = forced ? run.greedy_ids.size() - 1 : options.decode_steps;
  if (!forced && steps > 0) run.greedy_ids.push_back(argmax(logits.last(vocab)));
  for (std::size_t step = 0; step < steps; ++step) {
    if (run.greedy_ids[step] < 0) {
      return fail(ErrorCode::kMismatch, "The logits of decode step {} are all NaN. Check the weights.", step);
    }
    DOPPLER_ASSIGN(logits, feed(backend, 0, std::span(&run.greedy_ids[step], 1), 0, true, nullptr,
                                static_cast<std::int64_t>(step) + 1));
    run.decode_logits.insert(run.decode_logits.end(), logits.begin(), logits.end());
    if (!forced) run.greedy_ids.push_back(argmax(logits.last(vocab)));
  }
  return {};
}

}  // namespace

Result<Recording> capture_run(Backend& backend, const CaptureOptions& options) {
  if (!can_keep(backend.plan(), options.prompt_ids.size())) {
    return fail(
        ErrorCode::kLimit,
        "The stages of a prompt of {} tokens are too many to keep in memory. Record one run to a file "
        "and give that as --reference.",
        options.prompt_ids.size());
  }
  auto run = std::make_shared<CapturedRun>();
  run->prompt_ids = options.prompt_ids;
  backend.clear(0);
  DOPPLER_ASSIGN(const std::span<const float> logits, feed(backend, 0, run->prompt_ids, 0, true, &run->rows));
  DOPPLER_TRY(decode(backend, options, logits, *run));
  Recording recording;
  recording.prompt_ids = run->prompt_ids, recording.greedy_ids = run->greedy_ids;
  for (const TensorView& view : run->rows.views()) DOPPLER_TRY(recording.tensors.add(view));
  DOPPLER_TRY(
      recording.tensors.add(view_of("prompt_ids", DType::kI32, {run->prompt_ids.size()}, run->prompt_ids)));
  if (!run->greedy_ids.empty()) {
    DOPPLER_TRY(
        recording.tensors.add(view_of("greedy_ids", DType::kI32, {run->greedy_ids.size()}, run->greedy_ids)));
    DOPPLER_TRY(recording.tensors.add(view_of("decode_logits", DType::kF32,
                                              {run->greedy_ids.size() - 1, backend.plan().vocab_size},
                                              run->decode_logits)));
  }
  for (const auto& [key, value] : options.metadata) recording.tensors.add_metadata(key, value);
  for (const auto& [key, value] : run_metadata(backend)) recording.tensors.add_metadata(key, value);
  recording.memory = std::move(run);
  return recording;
}

}  // namespace doppler::diagnosis
