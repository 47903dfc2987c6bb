#include "diagnosis/doctor/load_repaired.h"

#include <algorithm>
#include <iterator>

namespace doppler::diagnosis {
namespace {

constexpr std::size_t kMostRepairs = 4;  // one flag each: tied head, biases of two kinds, layers

bool changes_config_alone(const std::vector<Fix>& fixes) {
  return !fixes.empty() && std::ranges::all_of(fixes, [](const Fix& fix) {
    return fix.kind == Fix::Kind::kSetting && fix.file == "config.json";
  });
}

}  // namespace

bool is_about_files(const Error& error) {
  return error.code == ErrorCode::kCorrupt || error.code == ErrorCode::kMismatch ||
         error.code == ErrorCode::kUnsupported;
}

Result<Loaded> load_repaired(const std::filesystem::path& model, Diagnosis& refused,
                             const std::function<Result<Loaded>(const std::vector<Fix>& settings)>& load) {
  std::vector<Fix> settings;
  for (;;) {
    Result<Loaded> loaded = load(settings);
    if (loaded || !is_about_files(loaded.error())) return loaded;
    Diagnosis found = diagnose_refusal(model, loaded.error());
    const std::vector<Fix> fixes = found.findings.empty() ? std::vector<Fix>() : found.findings[0].fixes;
    std::ranges::move(found.findings, std::back_inserter(refused.findings));
    std::ranges::move(found.checks, std::back_inserter(refused.checks));
    const bool again = std::ranges::any_of(
        settings, [&](const Fix& fix) { return !fixes.empty() && fix.target == fixes[0].target; });
    if (!changes_config_alone(fixes) || again || settings.size() >= kMostRepairs) return loaded;
    settings.insert(settings.end(), fixes.begin(), fixes.end());
  }
}

}  // namespace doppler::diagnosis
