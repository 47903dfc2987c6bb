#include "backend/gpu/kernel_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "backend/gpu/self_check.h"
#include "backend/gpu/timing.h"
#include "backend/gpu/weights.h"

namespace doppler::gpu {
namespace {

// Template values that were chosen; the others follow from the model's shape.
constexpr auto kChoices = std::to_array<std::string_view>(
    {"ACT",  "R",       "LANES",      "UNITS",       "AT_ONCE", "THREADS",      "TM",      "TN",
     "RM",   "RN",      "KB",         "GM",          "GN",      "COOP",         "UK",      "SPLITS",
     "SETS", "COLUMNS", "UNROLLED",   "BQ",          "RT",      "NS",           "KC",      "LP",
     "PG",   "ROUNDS",  "HEADS_EACH", "MOST_SPLITS", "GROUPS",  "QUANTISE_OUT", "KV_HALF", "STREAM"});

// By CodeForm.
constexpr std::string_view kForms[] = {"f32",     "f16",    "bf16",   "signed bytes",     "signed nibbles",
                                       "nibbles", "5 bits", "6 bits", "floats of 4 bits", "bf16 in 13 bits"};

// Titles of the decode program's kernels: matched by file and, for gemv.wgsl, by what it fuses; for
// joined.wgsl `pro` says whether a product waits for another one, and `epi` is that of the one that waits.
struct FusedTitle {
  std::string_view file;
  int pro, epi;  // -1: any
  std::string_view title;
};
constexpr auto kFused = std::to_array<FusedTitle>({
    {"embed.wgsl", -1, -1, "embed"},
    {"gemv.wgsl", 1, 0, "norm, q, k, v"},
    {"attention_decode.wgsl", -1, -1, "norms, rope, append, attention"},
    {"attention_combine.wgsl", -1, -1, "attention's splits"},
    {"delta_prepare.wgsl", -1, -1, "convolution, norms, steps and decays"},
    {"delta_rule.wgsl", -1, -1, "delta rule"},
    {"gated_norm.wgsl", -1, -1, "norm, gate"},
    {"gemv.wgsl", 2, 0, "attention's splits, output"},
    {"gemv.wgsl", 1, 1, "norm, gate, up, activation"},
    {"joined.wgsl", 0, 0, "norm, q, k, v in several formats"},
    {"joined.wgsl", 1, 0, "output or down, then norm, q, k, v"},
    {"joined.wgsl", 1, 1, "output or down, then norm, gate, up, activation"},
    {"quantise.wgsl", -1, -1, "activations to 8 bits"},
    {"gemv.wgsl", 0, 0, "down, or output of splits put together"},
    {"gemv.wgsl", 0, 1, "gate, up, activation"},
    {"norm.wgsl", -1, -1, "norm"},
    {"rope.wgsl", -1, -1, "rope"},
    {"kv_append.wgsl", -1, -1, "append"},
    {"attention.wgsl", -1, -1, "attention"},
    {"combine.wgsl", -1, -1, "sums and activations by themselves"},
    {"route.wgsl", -1, -1, "choice of experts, and their weights"},
    {"experts.wgsl", -1, -1, "chosen experts"},
    {"expert_in.wgsl", -1, -1, "chosen experts: gate, up, activation"},
    {"expert_out.wgsl", -1, -1, "chosen experts: down, and their sum"},
    {"expert_parts.wgsl", -1, -1, "sum of experts"},
    {"likeliest.wgsl", -1, -1, "likeliest token"},
    {"head.wgsl", -1, -1, "norm, head"},
    {"next_token.wgsl", -1, -1, "next token"},
    {"next_tokens.wgsl", -1, -1, "next token of each sequence"},
    {"guess_tokens.wgsl", -1, -1, "tokens that were right, and the next guesses"},
});

constexpr std::string_view kInHalves =
    ", they and activations are multiplied as halves on tensor cores, with sums in floats";

std::string why_weights(const KernelLabel& label) {
  const auto form = static_cast<std::size_t>(label.get("FORM"));
  std::string why =
      fmt::format("weights are {}", form < std::size(kForms) ? kForms[form] : "of another form");
  if (label.has("ACT") || label.file.starts_with("gemm"))
    why += label.file == "gemm_half.wgsl"                       ? kInHalves
           : label.get("ACT") == 1 || label.file == "gemm.wgsl" ? ", activations are rounded to 8 bits"
                                                                : ", activations stay floats";
  return why;
}

std::string why_attention(const KernelLabel& label) {
  return fmt::format("heads of {}, keys and values in {}{}, {}", label.get("DIM"),
                     label.get("KV_HALF") == 1 ? "f16" : "f32",
                     label.file == "attention_half.wgsl"
                         ? ", they, queries and shares are multiplied as halves on tensor cores"
                         : "",
                     label.get("WINDOW") == 0
                         ? std::string("every position is seen")
                         : fmt::format("a {} of {} positions is seen",
                                       label.get("CHUNKED") == 1 ? "chunk" : "window", label.get("WINDOW")));
}

}  // namespace

KernelLabel::KernelLabel(std::string_view label) : file(label.substr(0, label.find(' '))) {
  for (std::size_t at = file.size(); at < label.size();) {
    const std::size_t end = std::min(label.find(' ', at + 1), label.size());
    const std::string_view item = label.substr(at + 1, end - at - 1);
    const std::size_t equals = std::min(item.find('='), item.size());
    std::int64_t value = 0;
    if (equals < item.size()) std::from_chars(item.data() + equals + 1, item.data() + item.size(), value);
    values.emplace(item.substr(0, equals), value);
    at = end;
  }
}

std::int64_t KernelLabel::get(std::string_view name, std::int64_t otherwise) const {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : found->second;
}

std::string KernelLabel::variant() const {
  std::string text = file;
  for (const std::string_view name : kChoices) {
    if (has(name)) text += fmt::format(" {}={}", name, get(name));
  }
  return text;
}

std::string KernelLabel::why(const Features& features) const {
  if (has("FORM")) return why_weights(*this);
  if (file.starts_with("attention")) return why_attention(*this);
  if (file == "norm.wgsl") {
    return features.subgroups ? fmt::format("sums by subgroups of {}", features.subgroup_size)
                              : "sums in workgroup memory, because the adapter's subgroups are of no use";
  }
  return "the only one";
}

// Those of one module of joined.wgsl.
KernelLabel KernelLabel::module(std::string_view name) const {
  KernelLabel label("gemv.wgsl");
  for (const auto& [key, value] : values) {
    if (key.starts_with(name) && key.substr(name.size()).starts_with('.'))
      label.values.emplace(key.substr(name.size() + 1), value);
  }
  if (name == "first" && get("FIRST_SUMS") == 1) label.file = "expert_out.wgsl";
  return label;
}

std::uint64_t KernelLabel::bytes(std::uint64_t length) const {
  const auto value = [&](std::string_view name) { return static_cast<std::uint64_t>(get(name)); };
  if (file == "joined.wgsl")
    return module("first").bytes(length) + module("second").bytes(length) + module("third").bytes(length);
  if (has("FORM")) {
    const WeightFormat format{static_cast<CodeForm>(get("FORM")), static_cast<ScaleForm>(get("SCALES"))};
    const std::uint64_t row = format.row_bytes(static_cast<std::uint32_t>(value("UNITS_K")));
    if (file == "embed.wgsl" || file == "next_token.wgsl") return row;
    return row * value("ROWS") * (get("EPI") == 1 ? 2 : 1);  // gate and up have ROWS rows each
  }
  if (file.starts_with("attention")) {
    const std::uint64_t seen = get("WINDOW") == 0 ? length : std::min(value("WINDOW"), length);
    return 2 * seen * value("KV_HEADS") * value("DIM") * (get("KV_HALF") == 1 ? 2 : 4);
  }
  return 0;
}

std::string fused_title(std::string_view text) {
  const KernelLabel label(text);
  const bool joined = label.file == "joined.wgsl";
  const std::int64_t epi = label.get(joined ? "second.EPI" : "EPI");
  const std::int64_t pro = joined ? std::min<std::int64_t>(label.get("FIRST"), 1) : label.get("PRO");
  for (const FusedTitle& t : kFused) {
    const bool same = t.file == label.file && (t.pro < 0 || t.pro == pro) && (t.epi < 0 || t.epi == epi);
    if (same) return fmt::format("decode: {}", t.title);
  }
  return fmt::format("decode: {}", label.file);
}

std::vector<VariantRow> variant_rows(const Features& features, const std::vector<Piece>& pieces) {
  std::vector<VariantRow> rows;
  for (const Piece& piece : pieces) {
    const KernelLabel label(piece.dispatch.kernel.kernel().label());
    VariantRow row{.what = piece.what, .variant = label.variant(), .why = label.why(features)};
    const bool known = std::ranges::any_of(rows, [&](const VariantRow& r) {
      return r.what == row.what && r.variant == row.variant && r.why == row.why;
    });
    if (!known) rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<KernelCheck>> check_kernels(Device& device, const std::vector<Piece>& pieces) {
  std::vector<KernelCheck> checks;
  std::set<std::string> seen;
  for (const Piece& piece : pieces) {
    const Kernel& kernel = piece.dispatch.kernel.kernel();
    if (!seen.insert(kernel.label()).second) continue;
    const KernelLabel label(kernel.label());
    KernelCheck check{.what = piece.what, .kernel = label.variant()};
    if (!can_check(label.file, label.values)) {
      check.result = KernelCheck::Result::kNoCheck;
    } else {
      DOPPLER_ASSIGN(const std::shared_ptr<const Kernel> again,
                     Kernel::create(device, label.file, label.values));
      DOPPLER_ASSIGN(check.difference, difference_from_cpu(device, again, label.values));
      if (!check.difference.empty()) check.result = KernelCheck::Result::kWrong;
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

Result<std::vector<KernelTime>> time_pieces(Device& device, const std::vector<Piece>& pieces,
                                            std::uint64_t length) {
  std::vector<KernelTime> times;
  std::vector<std::vector<const Piece*>> groups;  // parallel to `times`
  for (const Piece& piece : pieces) {
    const KernelLabel label(piece.dispatch.kernel.kernel().label());
    std::size_t g = 0;
    while (g < times.size() && (times[g].what != piece.what || times[g].kernel != label.file)) ++g;
    if (g == times.size()) {
      times.push_back({.what = piece.what, .kernel = label.file, .calls = 0, .seconds = 0, .bytes = 0});
      groups.emplace_back();
    }
    groups[g].push_back(&piece);
    ++times[g].calls;
    // A workgroup along z for each sequence, each of which has a cache of its own.
    times[g].bytes += label.bytes(length) * (label.get("MANY") == 1 ? piece.dispatch.groups.z : 1);
  }
  // In order: next_token.wgsl, which changes what the others read, comes last.
  for (std::size_t g = 0; g < groups.size(); ++g) {
    DOPPLER_ASSIGN(times[g].seconds, time_on_device(device, groups[g].size(), [&](Recorder& recorder) {
                     for (const Piece* piece : groups[g]) recorder.dispatch(piece->dispatch);
                   }));
  }
  return times;
}

}  // namespace doppler::gpu
