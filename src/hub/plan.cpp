#include "hub/plan.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace doppler::hub {
namespace {

constexpr std::size_t kColumns = 80;

bool fits(const Variant& variant, const Machine& machine) {
  return !machine.memory || memory_to_run(variant.bytes) <= *machine.memory;
}

std::string labels_of(std::span<const Variant> variants) {
  std::vector<std::string> labels;
  for (const Variant& variant : variants) {
    const bool twice = std::ranges::count(variants, variant.label, &Variant::label) > 1;
    labels.push_back(twice || variant.label == "gguf" ? variant.path : variant.label);
  }
  return printable(join(labels, ", "), 400);
}

Status choose_named(PullPlan& plan, std::string_view pick) {
  std::vector<Variant> found = pick_variants(plan.info.files, pick);
  if (found.empty()) {
    if (plan.variants.empty())
      return std::unexpected(no_variant(plan.info.files, "The repository " + plan.info.repo));
    return fail(ErrorCode::kNotFound, "The repository {} has no file or type {}. It has {}.", plan.info.repo,
                printable(pick), labels_of(plan.variants));
  }
  if (found.size() > 1) {
    std::vector<std::string> paths;
    for (const Variant& variant : found) paths.push_back(variant.path);
    return fail(ErrorCode::kUsage, "Of the repository {}, {} may be {}. Name the file after the colon.",
                plan.info.repo, printable(pick), printable(join(paths, " or "), 400));
  }
  plan.chosen = std::move(found[0]);
  plan.why = "as named";
  return {};
}

void choose_best(PullPlan& plan) {
  const std::vector<Variant>& all = plan.variants;
  const auto best = std::ranges::find_if(all, [&](const Variant& v) { return fits(v, plan.machine); });
  const bool known = plan.machine.memory.has_value();
  if (all.size() == 1) {
    plan.chosen = all[0];
    plan.why = "the only one there is";
  } else if (best == all.end()) {
    plan.chosen = *std::ranges::min_element(all, {}, &Variant::bytes);
    plan.why = fmt::format("the smallest of {}", all.size());
  } else {
    plan.chosen = *best;
    plan.why = fmt::format("the best of {}{}", all.size(), known ? " that fits the memory" : "");
  }
}

// Cuts a path in its middle, where what is left out matters least.
std::string shortened(const std::string& path, std::size_t columns) {
  const std::string text = printable(path, 512);
  if (text.size() <= columns || columns < 8) return text;
  const std::size_t tail = (columns - 1) / 2, head = columns - 1 - tail;
  return text.substr(0, head) + "…" + text.substr(text.size() - tail);
}

std::string variant_line(const PullPlan& plan, const Variant& variant) {
  const bool chosen = variant.path == plan.chosen.path && variant.kind == plan.chosen.kind;
  const std::string fit = plan.machine.memory && !fits(variant, plan.machine) ? "too big" : "";
  const std::string line = fmt::format("{} {:11} {:>9}  {:7}  ", chosen ? ">" : " ", variant.label,
                                       human_bytes(variant.bytes), fit);
  return line + shortened(variant.path, kColumns - line.size()) + "\n";
}

}  // namespace

std::uint64_t memory_to_run(std::uint64_t weight_bytes) {
  constexpr std::uint64_t kLeast = 128 << 20;  // the program, its tables and a small model's activations
  return weight_bytes + std::max(weight_bytes / 8, kLeast);
}

bool PullPlan::fits_memory() const {
  return chosen.kind == VariantKind::kFile || fits(chosen, machine);
}

bool PullPlan::fits_disk() const {
  return !machine.disk || bytes_to_get() <= *machine.disk;
}

Result<PullPlan> make_plan(RepoInfo info, std::string_view revision, std::string_view pick,
                           const Machine& machine,
                           const std::function<std::uint64_t(const RepoFile&)>& bytes_here) {
  PullPlan plan;
  plan.info = std::move(info);
  plan.revision = revision;
  plan.machine = machine;
  plan.variants = find_variants(plan.info.files);
  if (!pick.empty()) {
    DOPPLER_TRY(choose_named(plan, pick));
  } else {
    if (plan.variants.empty())
      return std::unexpected(no_variant(plan.info.files, "The repository " + plan.info.repo));
    choose_best(plan);
  }
  for (const std::size_t i : plan.chosen.files) {
    const RepoFile& file = plan.info.files[i];
    plan.bytes_here += std::min(bytes_here(file), file.size.value_or(0));
  }
  return plan;
}

std::string describe(const PullPlan& plan) {
  std::string text = fmt::format("{} at {}{}\n", plan.info.repo, plan.info.commit.substr(0, 7),
                                 plan.revision == "main" ? "" : " (" + plan.revision + ")");
  if (plan.variants.size() > 1) {
    for (const Variant& variant : plan.variants) text += variant_line(plan, variant);
  }
  text += fmt::format("takes {}, {}: {}, {}", plan.chosen.label, plan.why,
                      counted(plan.chosen.files.size(), "file"), human_bytes(plan.chosen.bytes));
  if (plan.bytes_here > 0)
    text += plan.bytes_to_get() == 0 ? ", all of it here"
                                     : fmt::format(", {} of it here", human_bytes(plan.bytes_here));
  text += "\n";
  if (plan.chosen.kind != VariantKind::kFile) {
    text += fmt::format("memory to run it about {}, ", human_bytes(memory_to_run(plan.chosen.bytes)));
    text += plan.machine.memory ? fmt::format("{} available\n", human_bytes(*plan.machine.memory))
                                : "available unknown\n";
  }
  if (plan.machine.disk)
    text += fmt::format("disk to take {}, {} free\n", human_bytes(plan.bytes_to_get()),
                        human_bytes(*plan.machine.disk));
  if (plan.info.unsafe_names > 0) {
    text += fmt::format("{} of its files have names that would leave the folder; they are left out\n",
                        plan.info.unsafe_names);
  }
  return text;
}

Json plan_json(const PullPlan& plan) {
  Json variants = Json::array(), files = Json::array();
  for (const Variant& variant : plan.variants) {
    variants.push_back({{"label", variant.label},
                        {"kind", kind_name(variant.kind)},
                        {"path", variant.path},
                        {"bytes", variant.bytes},
                        {"memory_bytes", memory_to_run(variant.bytes)},
                        {"fits_memory", fits(variant, plan.machine)}});
  }
  for (const std::size_t i : plan.chosen.files) {
    const RepoFile& file = plan.info.files[i];
    files.push_back(
        {{"path", file.path}, {"bytes", file.size ? Json(*file.size) : Json(nullptr)}, {"hash", file.hash}});
  }
  const auto number = [](const std::optional<std::uint64_t>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"repo", plan.info.repo},
          {"revision", plan.revision},
          {"commit", plan.info.commit},
          {"model_type", plan.info.model_type},
          {"gated", plan.info.gated},
          {"variants", variants},
          {"chosen", plan.chosen.label},
          {"why", plan.why},
          {"files", files},
          {"bytes", plan.chosen.bytes},
          {"bytes_here", plan.bytes_here},
          {"bytes_to_get", plan.bytes_to_get()},
          {"memory_bytes", memory_to_run(plan.chosen.bytes)},
          {"memory_available", number(plan.machine.memory)},
          {"disk_free", number(plan.machine.disk)},
          {"fits_memory", plan.fits_memory()},
          {"fits_disk", plan.fits_disk()}};
}

}  // namespace doppler::hub
