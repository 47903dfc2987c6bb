#include "bench/kernel_checks.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "bench/measure.h"
#include "bench/report.h"
#include "bench/same_tokens.h"

namespace doppler::bench {
namespace {

// Tokens of the prompt that is compared: more than a chunk of positions and than a group of columns of any
// kernel.
constexpr std::size_t kPrompt = 70;
// What may differ, as rms over the rms of the logits: the sums of float kernels, and activations of 8 bits,
// which add about a hundredth in each product of random weights.
constexpr double kFloatError = 1e-3, kHalfError = 1e-2, kEightBitError = 0.1;

Result<std::vector<float>> prompt_logits(Backend& backend) {
  backend.clear(0);
  StepInput input;
  for (std::size_t i = 0; i < kPrompt; ++i)
    input.add(bench_token(i, backend.plan().vocab_size), i, 0, i + 1 == kPrompt);
  DOPPLER_ASSIGN(const auto logits, backend.step(input, nullptr));
  std::vector<float> kept(logits.begin(), logits.end());
  backend.clear(0);
  return kept;
}

double rms_error(std::span<const float> got, std::span<const float> expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - static_cast<double>(expected[i]);
    error += difference * difference;
    size += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return std::sqrt(error / size);
}

Result<KernelCheck> whole(Loaded& loaded) {
  Backend& backend = *loaded.backend;
  BackendOptions options;
  options.context = kPrompt + 1;
  DOPPLER_ASSIGN(const std::unique_ptr<Backend> reference,
                 make_backend("reference", loaded.model->spec, loaded.model->weights, options));
  DOPPLER_ASSIGN(const std::vector<float> expected, prompt_logits(*reference));
  DOPPLER_ASSIGN(const std::vector<float> got, prompt_logits(backend));
  const double error = rms_error(got, expected);
  const double allowed = backend.rounding() == Rounding::kEightBits ? kEightBitError
                         : backend.rounding() == Rounding::kHalf    ? kHalfError
                                                                    : kFloatError;
  KernelCheck check{.what = "the whole model", .kernel = fmt::format("a prompt of {} tokens", kPrompt)};
  if (!(error <= allowed)) {
    check.result = KernelCheck::Result::kWrong;
    check.difference = fmt::format(
        "its logits differ from the reference backend's by {:.3g} of their size; {:.3g} is allowed", error,
        allowed);
  }
  return check;
}

constexpr const char* kResultNames[] = {"right", "WRONG", "no check"};

}  // namespace

std::size_t KernelChecks::count(KernelCheck::Result result) const {
  return static_cast<std::size_t>(std::ranges::count(rows, result, &KernelCheck::result));
}

Result<KernelChecks> check_kernels(Loaded& loaded, const std::string& name) {
  KernelChecks checks{.model = name, .device = std::nullopt, .rows = {}};
  if (DeviceView* device = loaded.backend->device(); device != nullptr) {
    checks.device = device->info();
    DOPPLER_ASSIGN(checks.rows, device->check_kernels());
  }
  DOPPLER_ASSIGN(checks.rows.emplace_back(), whole(loaded));
  DOPPLER_ASSIGN(std::vector<KernelCheck> same, check_same_tokens(loaded));
  std::ranges::move(same, std::back_inserter(checks.rows));
  return checks;
}

Json to_json(const KernelChecks& checks) {
  Json rows = Json::array();
  for (const KernelCheck& row : checks.rows) {
    rows.push_back({{"what", row.what},
                    {"kernel", row.kernel},
                    {"result", kResultNames[static_cast<std::size_t>(row.result)]},
                    {"difference", row.difference}});
  }
  return {{"model", checks.model},
          {"device", checks.device ? to_json(*checks.device) : Json(nullptr)},
          {"right", checks.right()},
          {"kernels", std::move(rows)}};
}

// What is wrong has a line of its own; what is right is a number, so that the one cannot be missed among the
// other.
std::string to_text(const KernelChecks& checks) {
  std::string out;
  for (const KernelCheck& row : checks.rows) {
    if (row.result == KernelCheck::Result::kWrong)
      out += fmt::format("  WRONG {} {}: {}\n", row.what, row.kernel, row.difference);
  }
  const std::size_t wrong = checks.count(KernelCheck::Result::kWrong),
                    none = checks.count(KernelCheck::Result::kNoCheck);
  std::string line = fmt::format("{:<26} {} right", checks.model, checks.count(KernelCheck::Result::kRight));
  if (wrong > 0) line += fmt::format(", {} WRONG", wrong);
  if (none > 0) line += fmt::format(", {} checked only as parts of the whole", none);
  return line + "\n" + out;
}

}  // namespace doppler::bench
