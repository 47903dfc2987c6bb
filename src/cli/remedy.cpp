#include "cli/remedy.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/files.h"
#include "diagnosis/doctor/causes.h"
#include "formats/model_files.h"
#include "system/files.h"

namespace doppler::cli {
namespace {

// Files of a tokenizer, which a faulty one is replaced by as a whole.
constexpr std::string_view kTextFiles[] = {
    "tokenizer.json",    "tokenizer.model",     "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "generation_config.json"};

// A GGUF file, or a folder that holds nothing else.
bool is_gguf_model(const std::filesystem::path& model) {
  if (!system::is_folder(model)) return is_gguf(model);
  const std::vector<std::filesystem::path> files = sorted_entries(model);
  return std::ranges::any_of(files, is_gguf) &&
         std::ranges::none_of(files, [](const auto& file) { return file.extension() == ".safetensors"; });
}

// Why nothing of the files is changed for a finding.
std::string why_left(const diagnosis::Finding& finding) {
  using enum diagnosis::CauseKind;
  if (!finding.unwritten.empty())
    return fmt::format("{}, so that no file holds it: what is wrong is the program that reads them",
                       finding.unwritten);
  if (finding.check == "load") return "no single value that the files contradict repairs it";
  const diagnosis::Cause* cause = diagnosis::find_cause(finding.cause);
  switch (cause == nullptr ? kOther : cause->kind) {
    case kDescription:
      return "this follows from the model's family and stands in no file: what is wrong is the program that "
             "reads them";
    case kData:
      return "the right values are not in the files; with --source they are copied from the model that this "
             "one was made of";
    case kText:
      return "with --source its tokenizer and template are replaced by those of the model that this one was "
             "made of";
    case kExecution:
      return "the files are right, and the program computes it wrongly";
    default:
      return "no repair is known for it";
  }
}

// The tokenizer as a whole, once for all findings about texts; an empty sentence where that is not possible.
std::string replace_texts(convert::Changes& changes, bool gguf, const std::filesystem::path& source) {
  if (gguf) {
    changes.tokenizer = source;
    return "the tokenizer's keys are the source's";
  }
  if (!system::is_folder(source) || is_gguf_model(source)) return {};
  if (!changes.files.empty()) return "the tokenizer's files are the source's";
  for (const std::string_view file : kTextFiles) {
    if (const auto path = source / file; system::exists(path)) changes.files.push_back(path);
  }
  return changes.files.empty() ? std::string() : "the tokenizer's files are the source's";
}

void add_fix(convert::Changes& changes, const diagnosis::Fix& fix) {
  switch (fix.kind) {
    case diagnosis::Fix::Kind::kSetting:
      changes.values.push_back({fix.file, fix.target, fix.value});
      return;
    case diagnosis::Fix::Kind::kDrop:
      changes.dropped.push_back(fix.target);
      return;
    default:
      changes.tensors.push_back({fix.target, fix.read, fix.type, fix.shape});
  }
}

// Whether what is to be changed is in the model's files.
bool is_stored(const TensorStore& store, const ModelSpec& spec, const diagnosis::Fix& fix) {
  return fix.kind == diagnosis::Fix::Kind::kSetting || !fix.shape.empty() ||
         convert::holds(store, spec, fix.target);
}

std::string done_by(const diagnosis::Fix& fix) {
  if (fix.kind == diagnosis::Fix::Kind::kSetting)
    return fmt::format("{} of {} is {}", fix.target, fix.file, fix.value);
  // A long list of columns says nothing to people.
  const std::string what = fix.value.size() > 100 ? fix.value.substr(0, 60) + " …" : fix.value;
  return fmt::format("{}: {}", fix.target, what);
}

}  // namespace

Remedy find_remedy(const diagnosis::Diagnosis& diagnosis, const ModelSpec& spec,
                   const std::filesystem::path& model, const std::filesystem::path& source) {
  Remedy remedy;
  const bool gguf = is_gguf_model(model);
  const Result<ModelFiles> files = open_model_files(model);
  for (const diagnosis::Finding& finding : diagnosis.findings) {
    const diagnosis::Cause* cause = diagnosis::find_cause(finding.cause);
    const std::string name =
        finding.layer < 0 ? finding.cause
                          : fmt::format("{} ({} of layer {})", finding.cause, finding.stage, finding.layer);
    if (cause != nullptr && cause->kind == diagnosis::CauseKind::kText && !source.empty()) {
      const std::string said = replace_texts(remedy.changes, gguf, source);
      if (said.empty())
        remedy.left.push_back(
            fmt::format("{}: the source {} has no tokenizer's files for a folder", name, source.string()));
      else
        remedy.done.push_back(fmt::format("{}: {}", name, said));
      continue;
    }
    if (finding.fixes.empty()) {
      remedy.left.push_back(fmt::format("{}: {}", name, why_left(finding)));
      continue;
    }
    if (!finding.unwritten.empty()) remedy.left.push_back(fmt::format("{}: {}", name, why_left(finding)));
    const auto packed = std::ranges::find_if(finding.fixes, [&](const diagnosis::Fix& fix) {
      return files && !is_stored(files->tensors, spec, fix);
    });
    if (packed != finding.fixes.end()) {
      remedy.left.push_back(
          fmt::format("{}: {} lies inside of another tensor, where it is not written", name, packed->target));
      continue;
    }
    for (const diagnosis::Fix& fix : finding.fixes) {
      add_fix(remedy.changes, fix);
      remedy.done.push_back(fmt::format("{}: {}", name, done_by(fix)));
    }
  }
  return remedy;
}

}  // namespace doppler::cli
