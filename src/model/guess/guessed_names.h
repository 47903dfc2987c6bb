// What each kind of tensor is for, guessed from its name, its neighbours and its shape.
#pragma once

#include <string>
#include <vector>

#include "model/guess/tensor_patterns.h"
#include "model/weight_table.h"

namespace doppler {

struct GuessedName {
  WeightRole role;
  const TensorPattern* pattern;  // of the TensorPatterns
  std::string reason;            // where the name alone does not say it
};

class GuessedNames {
 public:
  // Null if no tensor has the role.
  const TensorPattern* find(WeightRole role) const;
  bool has(WeightRole role) const { return find(role) != nullptr; }
  std::span<const GuessedName> all() const { return names_; }
  // Patterns without a role.
  std::span<const TensorPattern* const> unplaced() const { return unplaced_; }
  // Names for binding; they refer to the patterns.
  std::vector<WeightName> weight_names() const;

 private:
  friend GuessedNames guess_names(const TensorPatterns& patterns);
  std::vector<GuessedName> names_;
  std::vector<const TensorPattern*> unplaced_;
};

// `patterns` must outlive the result.
GuessedNames guess_names(const TensorPatterns& patterns);

}  // namespace doppler
