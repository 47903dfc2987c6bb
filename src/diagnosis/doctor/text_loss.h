// The loss of a built-in paragraph: how badly a model predicts plain English, which needs nothing but the
// model itself.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis {

// Plain stories, of words and turns that every model of English knows, the demo's tables included. The first
// is longer than the demo's window.
std::span<const std::string_view> loss_texts();

class LossMeter {
 public:
  // `texts`: each as a prompt, a sequence of its own. Computes on the cpu backend whatever backend is
  // examined: the question is the model, not the backend.
  LossMeter(const Subject& subject, std::vector<std::vector<TokenId>> texts);

  // -log of the probability of each token but the texts' first, in nats; infinite where the model gives NaN.
  // After the first call of any thread, those of small models may come from several at once. Errors: those of
  // the backend, as for a changed model that cannot be computed.
  Result<std::vector<float>> measure(const Subject& subject);
  // Only the beginning, 64 tokens: the same losses as those that measure() gives first.
  Result<std::vector<float>> measure_beginning(const Subject& subject);
  // From now on the beginning is all there is, and its own beginning half of it.
  void shorten();
  std::size_t tokens() const;  // of all texts
  // What a token is multiplied with, in the whole model. A small model is computed by one thread, so that
  // several threads may measure at once; of a larger one the texts' beginning should do.
  double values() const { return values_; }
  bool is_small() const;

 private:
  Result<std::vector<float>> measure(const Subject& subject, std::span<const std::vector<TokenId>> texts);

  BackendOptions options_;
  std::vector<std::vector<TokenId>> texts_, beginning_;
  std::size_t layers_;  // of the model as it was
  double values_ = 0;
  std::unique_ptr<Backend> keeper_;  // keeps the weights as a backend lays them out
};

// What a change brings: the mean of paired differences, and the standard error of that mean.
struct Gain {
  double mean = 0, error = 0;
};
Gain gain_of(std::span<const float> before, std::span<const float> after);
double mean_of(std::span<const float> losses);

}  // namespace doppler::diagnosis
