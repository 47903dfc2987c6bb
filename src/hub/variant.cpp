#include "hub/variant.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/text.h"
#include "formats/model_files.h"

namespace doppler::hub {
namespace {

// Types of GGUF files as names have them, from the best for running to the worst. Those of more than 8 bits
// stand below Q8_0: nobody measures a difference in what they say, and every token reads twice the bytes.
constexpr std::array<std::string_view, 43> kTypes = {
    "Q8_K_XL", "Q8_0",    "BF16",   "F16",    "FP16",  "F32",    "FP32",   "Q6_K_XL", "Q6_K_L",
    "Q6_K",    "Q5_K_XL", "Q5_K_L", "Q5_K_M", "Q5_K",  "Q5_1",   "Q5_K_S", "Q5_0",    "Q4_K_XL",
    "Q4_K_L",  "Q4_K_M",  "Q4_K",   "IQ4_NL", "Q4_1",  "Q4_K_S", "IQ4_XS", "MXFP4",   "Q4_0",
    "Q3_K_XL", "Q3_K_L",  "Q3_K_M", "Q3_K",   "IQ3_M", "IQ3_S",  "Q3_K_S", "IQ3_XS",  "IQ3_XXS",
    "Q2_K_XL", "Q2_K_L",  "Q2_K",   "IQ2_M",  "IQ2_S", "TQ2_0",  "TQ1_0"};
constexpr int kUnknownRank = 100;  // below all of them

// What belongs to safetensors weights and is read or may be asked for.
constexpr std::array<std::string_view, 12> kCompanions = {
    "config.json",     "generation_config.json",  "tokenizer.json",     "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json",  "vocab.json",
    "merges.txt",      "chat_template.jinja",     "chat_template.json", "model.safetensors.index.json"};

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Whether `word` stands in `text` at `at` by itself, and not as a part of a longer word.
bool stands_alone(std::string_view text, std::size_t at, std::size_t size) {
  constexpr std::string_view kEnds = "-._/ ";
  return (at == 0 || kEnds.find(text[at - 1]) != std::string_view::npos) &&
         (at + size == text.size() || kEnds.find(text[at + size]) != std::string_view::npos);
}

bool ends_with_any_case(std::string_view text, std::string_view ending) {
  return ascii_upper(text).ends_with(ascii_upper(ending));
}

// "NAME-00002-of-00003.gguf": the part before the numbers, and which of how many.
struct Split {
  std::string stem;
  std::string_view number, count;
};
std::optional<Split> split_of(std::string_view path) {
  constexpr std::string_view kPattern = "-00000-of-00000";
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos || dot < kPattern.size()) return std::nullopt;
  const std::string_view part = path.substr(dot - kPattern.size(), kPattern.size());
  for (std::size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = part[i] >= '0' && part[i] <= '9';
    if (kPattern[i] == '0' ? !digit : part[i] != kPattern[i]) return std::nullopt;
  }
  return Split{std::string(path.substr(0, dot - kPattern.size())), part.substr(1, 5), part.substr(10, 5)};
}

bool is_gguf_model(std::string_view path) {
  const std::string name = ascii_upper(file_name(path));
  return name.ends_with(".GGUF") && name.find("MMPROJ") == std::string::npos &&
         name.find("IMATRIX") == std::string::npos;
}

std::vector<Variant> gguf_variants(std::span<const RepoFile> files) {
  std::map<std::string, Variant> by_stem;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    if (!is_gguf_model(path)) continue;
    const std::optional<Split> split = split_of(path);
    Variant& variant = by_stem[split ? split->stem + "-of-" + std::string(split->count) : path];
    variant.kind = VariantKind::kGguf;
    if (variant.files.empty()) variant.path = path;
    if (split) variant.parts = static_cast<std::size_t>(std::stoul(std::string(split->count)));
    variant.files.push_back(i);
    variant.bytes += files[i].size.value_or(0);
  }
  std::vector<Variant> variants;
  for (auto& [stem, variant] : by_stem) {
    variant.label = type_in_name(variant.path);
    const auto known = std::ranges::find(kTypes, variant.label);
    variant.rank = known == kTypes.end() ? kUnknownRank : static_cast<int>(known - kTypes.begin());
    if (variant.label.empty()) variant.label = "gguf";
    variants.push_back(std::move(variant));
  }
  std::ranges::sort(variants, [](const Variant& a, const Variant& b) {
    if (a.rank != b.rank) return a.rank < b.rank;
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.path < b.path;
  });
  return variants;
}

// Safetensors that are a model's weights as transformers names them: not an adapter's, not Mistral's own
// layout, and none in folders below, which hold other things.
bool is_weights(std::string_view path) {
  return path.ends_with(".safetensors") && path.find('/') == std::string_view::npos &&
         !path.starts_with("adapter_") && !path.starts_with("consolidated");
}

void add_companions(Variant& variant, std::span<const RepoFile> files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool has = std::ranges::find(variant.files, i) != variant.files.end();
    if (has || std::ranges::find(kCompanions, files[i].path) == kCompanions.end()) continue;
    variant.files.push_back(i);
    variant.bytes += files[i].size.value_or(0);
  }
}

std::optional<Variant> safetensors_variant(std::span<const RepoFile> files) {
  const bool whole =
      std::ranges::any_of(files, [](const RepoFile& f) { return f.path == "model.safetensors"; });
  const bool shards = std::ranges::any_of(files, [](const RepoFile& f) {
    return is_weights(f.path) && f.path.starts_with("model-") && split_of(f.path);
  });
  Variant variant{.kind = VariantKind::kSafetensors, .label = "safetensors"};
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string& path = files[i].path;
    if (!is_weights(path)) continue;
    // transformers' order: a whole model.safetensors counts before shards, and shards before other names.
    if (whole ? path != "model.safetensors" : shards && !(path.starts_with("model-") && split_of(path)))
      continue;
    if (variant.files.empty()) variant.path = path;
    variant.files.push_back(i);
    variant.bytes += files[i].size.value_or(0);
  }
  if (variant.files.empty()) return std::nullopt;
  add_companions(variant, files);
  return variant;
}

bool has_file(std::span<const RepoFile> files, std::string_view path) {
  return std::ranges::any_of(files, [&](const RepoFile& file) { return file.path == path; });
}

}  // namespace

std::string_view kind_name(VariantKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"gguf", "safetensors", "file"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string type_in_name(std::string_view path) {
  std::string text = ascii_upper(path);
  if (text.ends_with(".GGUF")) text.resize(text.size() - 5);
  std::string best;
  std::size_t best_end = 0;
  for (const std::string_view type : kTypes) {
    for (std::size_t at = text.find(type); at != std::string::npos; at = text.find(type, at + 1)) {
      if (!stands_alone(text, at, type.size())) continue;
      const std::size_t end = at + type.size();
      // The last in the name; of those that end there or overlap, the longest.
      if (end > best_end || (end == best_end && type.size() > best.size())) {
        best = type;
        best_end = end;
      }
    }
  }
  return best;
}

std::vector<Variant> find_variants(std::span<const RepoFile> files) {
  std::vector<Variant> variants = gguf_variants(files);
  if (auto safetensors = safetensors_variant(files))
    variants.insert(variants.begin(), std::move(*safetensors));
  return variants;
}

std::vector<Variant> pick_variants(std::span<const RepoFile> files, std::string_view pick) {
  const std::vector<Variant> all = find_variants(files);
  const std::string wanted = ascii_upper(pick);
  const auto take = [&](const auto& matches) {
    std::vector<Variant> taken;
    std::ranges::copy_if(all, std::back_inserter(taken), matches);
    return taken;
  };
  const auto any_file = [&](const Variant& v, const auto& matches) {
    return v.kind == VariantKind::kGguf && std::ranges::any_of(v.files, [&](std::size_t i) {
             return matches(std::string_view(files[i].path));
           });
  };
  // From the most exact to the loosest way to name one.
  auto found = take(
      [&](const Variant& v) { return any_file(v, [&](auto path) { return ascii_upper(path) == wanted; }); });
  if (found.empty()) found = take([&](const Variant& v) { return ascii_upper(v.label) == wanted; });
  if (found.empty()) {
    found = take([&](const Variant& v) {
      return any_file(v, [&](auto path) { return ascii_upper(file_name(path)) == wanted; });
    });
  }
  if (found.empty()) {
    found = take([&](const Variant& v) {
      return any_file(v, [&](std::string_view path) {
        const std::optional<Split> split = split_of(path);
        const std::string stem = split ? split->stem : std::string(path.substr(0, path.rfind('.')));
        return ends_with_any_case(stem, wanted) &&
               stands_alone(stem, stem.size() - wanted.size(), wanted.size());
      });
    });
  }
  if (!found.empty()) return found;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].path != pick) continue;
    Variant one{.label = files[i].path, .path = files[i].path, .files = {i}};
    one.bytes = files[i].size.value_or(0);
    if (pick.ends_with(".safetensors")) {
      one.kind = VariantKind::kSafetensors;
      add_companions(one, files);
    }
    return {one};
  }
  return {};
}

Error no_variant(std::span<const RepoFile> files, std::string_view where) {
  constexpr std::string_view kReads = "Doppler reads safetensors and GGUF";
  if (has_file(files, "adapter_config.json")) {
    return {ErrorCode::kUnsupported, fmt::format("{} holds a LoRA adapter (adapter_config.json) and not a "
                                                 "whole model. Merge it into its base model, "
                                                 "as peft's merge_and_unload does, and give the result.",
                                                 where)};
  }
  for (const RepoFile& file : files) {
    if (file.path.starts_with("consolidated") && file.path.ends_with(".safetensors")) {
      return {ErrorCode::kUnsupported, fmt::format("{} holds {} in Mistral's own layout and no "
                                                   "model.safetensors. Look for the repository of the same "
                                                   "model in transformers' layout, or as GGUF.",
                                                   where, printable(file.path))};
    }
  }
  for (const RepoFile& file : files) {
    const std::string_view what = other_weights(file.path);
    if (what.empty()) continue;
    return {ErrorCode::kUnsupported, fmt::format("{} holds {} ({}), but neither safetensors nor GGUF. {}: "
                                                 "look for a repository of the same model in "
                                                 "one of these, or convert it.",
                                                 where, printable(file.path), what, kReads)};
  }
  return {ErrorCode::kNotFound, fmt::format("{} holds no weights: {}. Check the name.", where, kReads)};
}

}  // namespace doppler::hub
