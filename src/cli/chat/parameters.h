// Parameters: how answers are drawn, as /set changes it: the settings of the configuration, by their names
// and in their ranges.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/settings.h"

namespace doppler::cli {

class Parameters {
 public:
  // `model`: what holds where no setting is given.
  Parameters(Settings settings, GenerateOptions model);

  const GenerateOptions& options() const { return options_; }
  // Whether `name` is one of them: "temperature", "top-k", "topK", "top_k", or the setting's path.
  static bool has(std::string_view name);
  // All short names, for suggestions.
  static std::vector<std::string> names();

  // Sets one; "default" gives it back what it had at the start. Returns "temperature is 0.7". Errors: kUsage
  // for values that it does not take.
  Result<std::string> set(std::string_view name, std::string_view value);
  // "temperature is 0.7: <what it means> (a number of at least 0)".
  std::string describe(std::string_view name) const;
  // A line for each.
  std::string table() const;

 private:
  void apply();
  Settings settings_;
  GenerateOptions model_, options_;
  std::vector<std::pair<std::string_view, Json>> changed_;  // by path, in order
  config::Config first_;
};

}  // namespace doppler::cli
