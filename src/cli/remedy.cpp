#include "cli/remedy.h"

#include <fmt/format.h>

#include <string_view>

#include "diagnosis/doctor/causes.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

// Files of a tokenizer, which a faulty one is replaced by as a whole.
constexpr std::string_view kTextFiles[] = {
    "tokenizer.json",    "tokenizer.model",     "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "generation_config.json"};

}  // namespace

Remedy find_remedy(const diagnosis::Diagnosis& diagnosis, const std::filesystem::path& source) {
  Remedy remedy;
  for (const diagnosis::Finding& finding : diagnosis.findings) {
    const diagnosis::Cause* cause = diagnosis::find_cause(finding.cause);
    const std::string name =
        finding.layer < 0 ? finding.cause
                          : fmt::format("{} ({} of layer {})", finding.cause, finding.stage, finding.layer);
    if (cause != nullptr && cause->kind == diagnosis::CauseKind::kText && system::is_folder(source)) {
      for (const std::string_view file : kTextFiles) {
        if (const auto path = source / file; system::exists(path)) remedy.changes.files.push_back(path);
      }
      remedy.done.push_back(fmt::format("{}: the tokenizer's files are the source's", name));
      continue;
    }
    if (finding.fixes.empty()) {
      remedy.left.push_back(fmt::format("{}: no value of a file or order of a tensor repairs it", name));
      continue;
    }
    for (const diagnosis::Fix& fix : finding.fixes) {
      if (fix.kind == diagnosis::Fix::Kind::kSetting) {
        remedy.changes.values.push_back({fix.file, fix.target, fix.value});
        remedy.done.push_back(fmt::format("{}: {} of {} is {}", name, fix.target, fix.file, fix.value));
      } else {
        remedy.changes.tensors.push_back({fix.target, fix.read, fix.type});
        // A long list of columns says nothing to people.
        const std::string what = fix.value.size() > 100 ? fix.value.substr(0, 60) + " …" : fix.value;
        remedy.done.push_back(fmt::format("{}: {}: {}", name, fix.target, what));
      }
    }
  }
  return remedy;
}

}  // namespace doppler::cli
