// The loss of a built-in paragraph: how badly a model predicts plain English, which needs nothing but the
// model itself.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "diagnosis/doctor/doctor.h"

namespace doppler::diagnosis {

// A plain story, of words and turns that every model of English knows, the demo's tables included.
std::string_view loss_paragraph();

class LossMeter {
 public:
  // `ids`: the text, as a prompt. Computes on the cpu backend whatever backend is examined: the question is
  // the model, not the backend.
  LossMeter(const Subject& subject, std::vector<TokenId> ids);

  // -log of the probability of each token but the first, in nats; infinite where the model gives NaN.
  // Errors: those of the backend, as for a changed model that cannot be computed.
  // `tokens`: only of the beginning; 0: all.
  Result<std::vector<float>> measure(const Subject& subject, std::size_t tokens = 0);
  // From now on only the first ones.
  void shorten(std::size_t tokens) { ids_.resize(std::min(ids_.size(), tokens)); }
  std::size_t tokens() const { return ids_.size(); }
  void use(std::vector<TokenId> ids) { ids_ = std::move(ids); }

 private:
  BackendOptions options_;
  std::vector<TokenId> ids_;
  std::size_t layers_;               // of the model as it was
  std::unique_ptr<Backend> keeper_;  // keeps the weights as a backend lays them out
};

// What a change brings: the mean of paired differences, and the standard error of that mean.
struct Gain {
  double mean = 0, error = 0;
};
Gain gain_of(std::span<const float> before, std::span<const float> after);
double mean_of(std::span<const float> losses);

}  // namespace doppler::diagnosis
