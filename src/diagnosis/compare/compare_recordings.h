// Comparison of two finished runs: recordings of any origin, or runs kept in memory.
#pragma once

#include "diagnosis/compare/compare.h"
#include "diagnosis/compare/op_errors.h"

namespace doppler::diagnosis {

// A run as a recording in memory. `greedy_ids` is fed after the prompt except its last entry; if it is empty,
// the run chooses `decode_steps` tokens itself. Errors: kLimit for a run too large to keep; those of step().
struct CaptureOptions {
  std::vector<std::int32_t> prompt_ids;
  std::uint32_t decode_steps = 0;
  std::vector<std::int32_t> greedy_ids;
  std::map<std::string, std::string> metadata;
};
Result<Recording> capture_run(Backend& backend, const CaptureOptions& options);

// The model that `found` is a run of; lets every op be judged by itself.
struct ComparedModel {
  const ModelSpec& spec;
  const Weights& weights;
  std::uint64_t context = 4096;  // as it was run with: some rope scalings depend on it
  std::size_t threads = 0;
};

// `model` (may be null): see ComparedModel. Decode steps are compared up to the first at which the two were
// fed different tokens. Errors: kMismatch for recordings of different prompts or widths, or that share no
// stage.
Result<Comparison> compare_recordings(const Recording& found, const Recording& expected,
                                      const ComparedModel* model, const CompareOptions& options);

// "transformers 5.17.0", "doppler cpu": the program that made the recording, as far as its header says.
std::string describe_origin(const Recording& recording);

}  // namespace doppler::diagnosis
