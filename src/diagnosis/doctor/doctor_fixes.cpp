#include "diagnosis/doctor/doctor_fixes.h"

#include <algorithm>

#include "base/text.h"

namespace doppler::diagnosis::doctor {
namespace {

// The source of a path; of "layers[3].attention.kind" that of any layer's, with the layer as the last part of
// the key.
const SpecSource* source_of(const ModelSpec& spec, std::string_view path) {
  const auto exact = std::ranges::find(spec.sources, path, &SpecSource::path);
  if (exact != spec.sources.end()) return &*exact;
  if (!path.starts_with("layers[")) return nullptr;
  const std::string_view rest = path.substr(path.find(']'));
  const auto like = std::ranges::find_if(spec.sources, [&](const SpecSource& s) {
    return s.path.starts_with("layers[") && s.path.ends_with(rest);
  });
  return like == spec.sources.end() ? nullptr : &*like;
}

}  // namespace

void name_keys(const ModelSpec& spec, Finding& finding) {
  std::vector<Fix> named;
  for (Fix& fix : finding.fixes) {
    if (fix.kind != Fix::Kind::kSetting) {
      named.push_back(std::move(fix));
      continue;
    }
    const SpecSource* source = source_of(spec, fix.target);
    if (source == nullptr) continue;
    const std::size_t colon = source->source.find(": ");
    const std::string file = source->source.substr(0, colon);
    if (colon == std::string::npos || (!file.ends_with(".json") && file != "gguf")) continue;
    const std::string key = source->source.substr(colon + 2);
    if (key.find(' ') != std::string::npos) continue;  // "tensor x", "no tensor y"
    const std::string layer = fix.target.starts_with("layers[")
                                  ? "." + fix.target.substr(7, fix.target.find(']') - 7)
                                  : std::string();
    fix.file = file;
    fix.target = key + layer;
    const std::string in_file =
        fmt::format("Set {} in {} to {}", fix.target, file == "gguf" ? "the GGUF file" : file, fix.value);
    if (std::ranges::none_of(named, [&](const Fix& f) { return f.kind == Fix::Kind::kSetting; }))
      finding.repair = fmt::format("{} (it is {}).", in_file, source->value);
    named.push_back(std::move(fix));
  }
  finding.fixes = std::move(named);
}

}  // namespace doppler::diagnosis::doctor
