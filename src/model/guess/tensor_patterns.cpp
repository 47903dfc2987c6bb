#include "model/guess/tensor_patterns.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/text.h"
#include "model/weights.h"

namespace doppler {
namespace {

// No model has more layers, or experts in one; the bounds keep a lying name from allocating.
constexpr int kMostLayers = 4096, kMostExperts = 1 << 16;

struct Numbered {
  std::string_view before;  // "model.layers."
  int number;
  std::string_view after;  // "mlp.up_proj.weight"
};

// The first part of a dotted name that is a number, if one is.
std::optional<Numbered> split_at_number(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    int number = 0;
    const auto [stopped, error] = std::from_chars(name.data() + begin, name.data() + end, number);
    if (error == std::errc() && stopped == name.data() + end && number >= 0 && end < name.size())
      return Numbered{name.substr(0, begin), number, name.substr(end + 1)};
    begin = end + 1;
  }
  return std::nullopt;
}

std::string_view commonest_beginning(const TensorStore& tensors) {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (is_known_surplus(name)) continue;
    if (const auto split = split_at_number(name)) ++counts[split->before];
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
  return most == counts.end() ? std::string_view() : most->first;
}

TensorPattern make_pattern(std::string name, std::string_view inside) {
  const std::size_t dot = inside.rfind('.');
  const bool named = dot != std::string_view::npos;
  return {.name = std::move(name),
          .module = std::string(named ? inside.substr(0, dot) : inside),
          .kind = std::string(named ? inside.substr(dot + 1) : std::string_view()),
          .layers = {},
          .tensors = {}};
}

// "mlp.experts.3.up_proj.weight" has a second number; that of "mlp.2.weight" is a place in a list of modules.
std::optional<Numbered> split_at_expert(std::string_view inside) {
  const auto split = split_at_number(inside);
  return split && split->before.ends_with("experts.") ? split : std::nullopt;
}

Status check_numbers(const TensorPatterns& found) {
  std::vector<bool> seen(static_cast<std::size_t>(found.layers));
  for (const TensorPattern& pattern : found.patterns) {
    for (const int layer : pattern.layers) seen[static_cast<std::size_t>(layer)] = true;
  }
  const auto gap = std::ranges::find(seen, false);
  if (gap == seen.end()) return {};
  return fail(
      ErrorCode::kMismatch,
      "The weights have tensors {}{} and up, but none of layer {}. Check that all weight files are there.",
      printable(found.layer_prefix), found.layers - 1, gap - seen.begin());
}

}  // namespace

Result<TensorPatterns> find_patterns(const TensorStore& tensors) {
  TensorPatterns found;
  found.layer_prefix = commonest_beginning(tensors);
  std::map<std::string, TensorPattern, std::less<>> by_name;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (is_known_surplus(name)) continue;
    const auto split = split_at_number(name);
    if (!split || split->before != found.layer_prefix) {
      by_name.emplace(name, make_pattern(name, name)).first->second.tensors.push_back(&tensor);
      continue;
    }
    if (split->number >= kMostLayers) {
      return fail(ErrorCode::kCorrupt, "The tensor {} is of layer {}, but no model has more than {} layers.",
                  printable(name), split->number, kMostLayers);
    }
    const auto expert = split_at_expert(split->after);
    if (expert && expert->number >= kMostExperts) {
      return fail(ErrorCode::kCorrupt,
                  "The tensor {} is of expert {}, but no layer has more than {} experts.", printable(name),
                  expert->number, kMostExperts);
    }
    std::string inside(split->after), pattern = fmt::format("{}{{}}.{}", split->before, inside);
    if (expert) {
      inside = fmt::format("{}{}", expert->before, expert->after);
      pattern = fmt::format("{}{{}}.{}{{}}.{}", split->before, expert->before, expert->after);
    }
    auto entry = by_name.find(pattern);
    if (entry == by_name.end()) entry = by_name.emplace(pattern, make_pattern(pattern, inside)).first;
    TensorPattern& of = entry->second;
    if (of.layers.empty() || of.layers.back() != split->number) of.layers.push_back(split->number);
    of.tensors.push_back(&tensor);
    if (expert) of.experts = std::max(of.experts, expert->number + 1);
    found.layers = std::max(found.layers, split->number + 1);
  }
  for (auto& [name, pattern] : by_name) {
    found.patterns.push_back(std::move(pattern));
  }
  DOPPLER_TRY(check_numbers(found));
  return found;
}

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  bool was_lower = false;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool separates = c == '.' || c == '_' || c == '-';
    if ((separates || (upper && was_lower)) && !words.back().empty()) words.emplace_back();
    if (!separates) words.back() += ascii_lower(c);
    was_lower = c >= 'a' && c <= 'z';
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

}  // namespace doppler
