#include "model/spec.h"

#include <array>

namespace doppler {

std::string_view name_of(AttentionKind kind) {
  static constexpr std::array<std::string_view, 3> kNames = {"full", "sliding", "chunked"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(RopeLayout layout) {
  static constexpr std::array<std::string_view, 3> kNames = {"half", "interleaved", "interleaved_to_half"};
  return kNames[static_cast<std::size_t>(layout)];
}

std::string_view name_of(RopeScalingKind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {"none", "linear",   "llama3",
                                                             "yarn", "longrope", "divisors"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Activation activation) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "silu", "gelu_tanh", "gelu", "relu", "relu_squared", "xielu", "sigmoid", "identity", "quick_gelu"};
  return kNames[static_cast<std::size_t>(activation)];
}

std::string_view name_of(NormKind kind) {
  return kind == NormKind::kRms ? "rms" : "layer";
}

std::string_view name_of(RouterScore score) {
  static constexpr std::array<std::string_view, 4> kNames = {"softmax", "sigmoid", "softmax_of_chosen",
                                                             "sparsemixer"};
  return kNames[static_cast<std::size_t>(score)];
}

std::string_view name_of(RecurrentKind kind) {
  static constexpr std::array<std::string_view, 5> kNames = {"none", "short_convolution", "delta_net",
                                                             "mamba2", "mamba1"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::uint32_t RecurrentSpec::channels() const {
  const bool values_alone = kind == RecurrentKind::kShortConvolution || kind == RecurrentKind::kMamba1;
  return values_alone ? inner() : inner() + 2 * keys();
}

std::uint32_t RecurrentSpec::in_width() const {
  switch (kind) {
    case RecurrentKind::kShortConvolution:
      return 3 * inner();
    case RecurrentKind::kMamba1:
      return 2 * inner();
    case RecurrentKind::kMamba2:
      return inner() + channels() + heads;
    case RecurrentKind::kDeltaNet:
      return channels() + inner();
    case RecurrentKind::kNone:
      break;
  }
  return 0;
}

std::uint64_t RecurrentSpec::state_size() const {
  return kind == RecurrentKind::kShortConvolution ? 0 : std::uint64_t{inner()} * state_dim;
}

std::string_view name_of(NormSpan span) {
  static constexpr std::array<std::string_view, 3> kNames = {"head", "own_head", "projection"};
  return kNames[static_cast<std::size_t>(span)];
}

}  // namespace doppler
