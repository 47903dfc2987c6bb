// A product judged on a sample of its rows, so that a repair of a large matrix costs as little as that of a
// small one.
#pragma once

#include <functional>
#include <vector>

#include "diagnosis/doctor/op_case.h"

namespace doppler::diagnosis {

class WeightProbe {
 public:
  explicit WeightProbe(const OpCase& opcase);

  const TensorView& weight() const { return case_.setup().weights[0]; }
  std::uint64_t rows() const { return weight().rows(); }
  std::uint64_t cols() const { return weight().cols(); }
  // Indices of all wrong outputs; and of a sample of wrong and right ones.
  const std::vector<std::size_t>& bad() const { return bad_; }
  const std::vector<std::size_t>& sample() const { return sample_; }

  // The misfit of the sampled outputs for a weight whose rows `read` gives; at most 1 agrees.
  using ReadRow = std::function<Status(std::uint64_t row, std::span<float> values)>;
  double ratio(const ReadRow& read) const;
  // The same with rows of a tensor of the same shape.
  double ratio(const TensorView& tensor) const;

  // Output minus bias, at a token and a place in its row; the same of the target.
  double output(std::size_t token, std::size_t place) const;
  double target(std::size_t token, std::size_t place) const;
  double bias(std::size_t place) const { return bias_.empty() ? 0 : bias_[place]; }

 private:
  const OpCase& case_;
  std::vector<std::size_t> bad_, sample_;
  std::vector<float> bias_;
};

// The name of another weight that holds the same bytes as the op's, which never happens in a trained model;
// empty: none.
std::string same_bytes_as(const OpCase& opcase);

}  // namespace doppler::diagnosis
