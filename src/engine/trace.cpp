#include "engine/trace.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "backend/cache_extent.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/loaded.h"
#include "engine/logprobs.h"
#include "plan/fuse.h"
#include "system/memory.h"

namespace doppler {
namespace {

// The layer in a tensor's name, "model.layers.3.…" or "blk.3.…"; -1 if it has none.
int layer_of(std::string_view name) {
  for (const std::string_view mark : {"layers.", "blk.", "h."}) {
    const std::size_t at = name.find(mark);
    if (at == std::string_view::npos || (at > 0 && name[at - 1] != '.')) continue;
    int layer = 0;
    std::size_t i = at + mark.size();
    const std::size_t first = i;
    for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && layer < 100000; ++i)
      layer = layer * 10 + (name[i] - '0');
    if (i > first) return layer;
  }
  return -1;
}

std::string rate(std::uint64_t bytes, double seconds) {
  return seconds > 0 ? human_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds)) + "/s"
                     : "-";
}

// --- loader

void trace_tensors(const TensorStore& store) {
  for (const auto& [name, tensor] : store.tensors()) {
    const int layer = layer_of(name);
    if (!trace_wanted(Category::kLoader, layer)) continue;
    const Json data = {{"name", printable(name, 200)},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes()}};
    trace(Category::kLoader, layer,
          fmt::format("{} {} {} {}", printable(name, 200), dtype_name(tensor.dtype),
                      describe_shape(tensor.shape), human_bytes(tensor.bytes())),
          -1, data.dump());
  }
}

void trace_loader(const Loaded& loaded, const LoadSeconds& seconds) {
  const TensorStore& store = loaded.model->files.tensors;
  const auto say = [](const std::string& text, const Json& data) {
    trace(Category::kLoader, -1, text, -1, dump_json(data));
  };
  for (const MappedFile& file : store.files()) {
    const std::string path = printable(file.path().string(), 200);
    say(fmt::format("File: {} ({})", path, human_bytes(file.bytes().size())),
        {{"file", path}, {"bytes", file.bytes().size()}});
  }
  trace_tensors(store);
  struct Total {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::map<std::string_view, Total> totals;
  for (const auto& [name, tensor] : store.tensors()) {
    Total& total = totals[dtype_name(tensor.dtype)];
    ++total.tensors;
    total.bytes += tensor.bytes();
  }
  for (const auto& [type, total] : totals)
    say(fmt::format("Type {}: {} tensors, {}", type, total.tensors, human_bytes(total.bytes)),
        {{"type", type}, {"tensors", total.tensors}, {"bytes", total.bytes}});
  say(fmt::format("Seconds: weights {:.3f}, tokenizer and template {:.3f}, backend {:.3f}", seconds.weights,
                  seconds.texts, seconds.backend),
      {{"weights_seconds", seconds.weights},
       {"texts_seconds", seconds.texts},
       {"backend_seconds", seconds.backend}});
  say(fmt::format("Complete: {} tensors, {} in {:.2f}s ({})", store.tensors().size(),
                  human_bytes(store.total_bytes()), seconds.total(),
                  rate(store.total_bytes(), seconds.total())),
      {{"tensors", store.tensors().size()}, {"bytes", store.total_bytes()}, {"seconds", seconds.total()}});
}

void log_loaded(const Loaded& loaded, const LoadSeconds& seconds) {
  const TensorStore& store = loaded.model->files.tensors;
  for (const MappedFile& file : store.files())
    log(Level::kVerbose, "Loader", "File: {} ({})", printable(file.path().string(), 200),
        human_bytes(file.bytes().size()));
  log(Level::kVerbose, "Loader", "Layers: 0-{}", loaded.model->spec.layers.size() - 1);
  log(Level::kInfo, "Loader", "Complete: {} in {:.2f}s ({})", human_bytes(store.total_bytes()),
      seconds.total(), rate(store.total_bytes(), seconds.total()));
  if (!loaded.choice.empty()) log(Level::kVerbose, "Backend", loaded.choice);
}

// --- kernels

void trace_kernels(const Loaded& loaded) {
  const auto say = [](const std::string& text, const Json& data) {
    trace(Category::kKernels, -1, text, -1, dump_json(data));
  };
  Backend& backend = *loaded.backend;
  const Plan& plan = backend.plan();
  say(fmt::format("backend {}{}", backend.name(), loaded.choice.empty() ? "" : ": " + loaded.choice),
      {{"backend", backend.name()}, {"choice", loaded.choice}});
  const auto has = [](const auto& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const FusionPass& pass : all_fusion_passes()) {
    const std::string_view state = has(plan.passes, pass.name) ? "on"
                                   : has(backend.options().disabled_passes, pass.name)
                                       ? "off: switched off"
                                       : "off: not for this backend";
    say(fmt::format("pass {} ({}): {}", pass.name, pass.does, state),
        {{"pass", pass.name}, {"does", pass.does}, {"state", state}});
  }
  auto rows = backend.describe();
  if (!rows) {
    return say(fmt::format("The kernels cannot be described: {}", rows.error().message),
               {{"error", rows.error().message}});
  }
  for (const VariantRow& row : *rows) {
    say(fmt::format("{}: {}{}", row.what, row.variant, row.why.empty() ? "" : fmt::format(" ({})", row.why)),
        {{"what", row.what}, {"variant", row.variant}, {"why", row.why}});
  }
}

// --- buffers

void trace_cache(const Backend& backend) {
  const BackendOptions& options = backend.options();
  const KvType type = options.kv_type.value_or(KvType::kF32);
  std::uint64_t all = 0;
  const std::vector<KvLayer>& layers = backend.plan().kv_layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const KvLayer& layer = layers[i];
    const CacheExtent extent = cache_extent(options);
    const bool paged = is_paged(layer, options.slots);
    const std::uint64_t rows = extent.rows(layer).value_or(0),
                        positions = paged ? rows : rows / options.slots;
    const std::uint64_t bytes = 2 * rows * layer.kv_heads * kv_row_bytes(type, layer.head_dim);
    const std::uint64_t state_bytes = layer.recurrent_values() * sizeof(float) * options.slots;
    all += bytes + state_bytes;
    if (state_bytes > 0) {
      trace(
          Category::kBuffers, static_cast<int>(i),
          fmt::format("State: {} inputs of {} channels and {} values in f32, {} slot(s): {}", layer.conv_rows,
                      layer.conv_channels, layer.state, options.slots, human_bytes(state_bytes)),
          -1, Json{{"state_bytes", state_bytes}}.dump());
    }
    if (layer.kv_heads == 0) continue;
    const Json data = {{"positions", positions},     {"heads", layer.kv_heads},
                       {"head_dim", layer.head_dim}, {"kv_type", kv_type_name(type)},
                       {"slots", options.slots},     {"bytes", bytes}};
    trace(Category::kBuffers, static_cast<int>(i),
          fmt::format("KV cache: {} positions x {} heads x {} x keys and values in {}, {}{} slot(s): {}",
                      positions, layer.kv_heads, layer.head_dim, kv_type_name(type),
                      paged ? "shared by " : "", options.slots, human_bytes(bytes)),
          -1, data.dump());
  }
  const Json data = {{"bytes", all},
                     {"layers", layers.size()},
                     {"kv_type", kv_type_name(type)},
                     {"context", options.context}};
  trace(Category::kBuffers, -1,
        fmt::format("KV cache: {} in {} layers, {}, context of {}", human_bytes(all), layers.size(),
                    kv_type_name(type), options.context),
        -1, data.dump());
}

void trace_buffers(const Loaded& loaded) {
  const TensorStore& store = loaded.model->files.tensors;
  std::uint64_t mapped = 0;
  for (const MappedFile& file : store.files()) mapped += file.bytes().size();
  const Json weights = {
      {"mapped_bytes", mapped}, {"files", store.files().size()}, {"copied_bytes", store.copied_bytes()}};
  trace(Category::kBuffers, -1,
        fmt::format("weights: {} mapped from {} file(s), {} copied at load", human_bytes(mapped),
                    store.files().size(), human_bytes(store.copied_bytes())),
        -1, weights.dump());
  trace_cache(*loaded.backend);
  const MemoryUse memory = loaded.backend->memory();
  const std::uint64_t bytes = memory.cache + memory.activations + memory.weights;
  const Json data = {
      {"backend_bytes", bytes}, {"mapped_bytes", mapped}, {"available_bytes", system::available_memory()}};
  trace(Category::kBuffers, -1,
        fmt::format(
            "backend {}: {} allocated for cache, activations and re-laid weights; {} left on the machine",
            loaded.backend->name(), human_bytes(bytes), human_bytes(system::available_memory())),
        -1, data.dump());
}

// --- sample

std::string text_of(TokenId id, const tokenizer::Tokenizer* tokenizer) {
  const auto piece = tokenizer != nullptr ? tokenizer->piece(id) : Result<std::string>("");
  return printable(piece.value_or(""));
}

bool adjusts_logits(const GenerateOptions& o) {
  return o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0 ||
         !o.logit_bias.empty();
}

// --- perf

std::optional<DeviceCounters> counters_of(const Backend& backend) {
  const DeviceView* device = backend.device();
  return device == nullptr ? std::nullopt : std::optional(device->counters());
}

// Of sorted values; the nearest rank.
double percentile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

void trace_loaded(const Loaded& loaded, const LoadSeconds& seconds) {
  log_loaded(loaded, seconds);
  if (trace_wanted(Category::kLoader)) trace_loader(loaded, seconds);
  if (trace_wanted(Category::kKernels)) trace_kernels(loaded);
  if (trace_wanted(Category::kBuffers)) trace_buffers(loaded);
}

void trace_sample(const Sampled& sampled, const GenerateOptions& options,
                  const tokenizer::Tokenizer* tokenizer) {
  const std::string text = text_of(sampled.id, tokenizer);
  Json data = {{"id", sampled.id}, {"text", text}};
  const std::string_view how = options.temperature == 0 ? "Greedy" : "Sampled";
  if (sampled.logits.empty()) {
    return trace(Category::kSample, -1,
                 fmt::format("{}: id={} \"{}\" chosen on the device", how, sampled.id, text), sampled.step,
                 data.dump());
  }
  constexpr std::size_t kShown = 5;
  const std::vector<Likely> best = likeliest(sampled.logits, kShown, options.temperature);
  const auto at = static_cast<std::size_t>(sampled.id);
  const double logit = at < sampled.logits.size() ? sampled.logits[at] : NAN;
  data["logit"] = std::isfinite(logit) ? Json(logit) : Json(nullptr);
  std::string line = fmt::format("{}: id={} \"{}\" logit={:.4f}", how, sampled.id, text, logit);
  if (best.size() > 1) line += fmt::format(" margin={:.4f}", best[0].logit - best[1].logit);
  if (adjusts_logits(options)) line += " (before penalties and biases)";
  std::vector<std::string> shown;
  for (const Likely& one : best) {
    shown.push_back(fmt::format("{} \"{}\" {:.4f} {:.1f}%", one.id, text_of(one.id, tokenizer), one.logit,
                                100 * one.probability));
    data["top"].push_back({{"id", one.id}, {"logit", one.logit}, {"probability", one.probability}});
  }
  trace(Category::kSample, -1, line, sampled.step, dump_json(data));
  const Json likely = {{"temperature", options.temperature},
                       {"top_k", options.top_k},
                       {"top_p", options.top_p},
                       {"top", data["top"]}};
  trace(Category::kSample, -1,
        fmt::format("Top-{} (temp={:g}, topK={}, topP={:g}): {}", best.size(), options.temperature,
                    options.top_k, options.top_p, fmt::join(shown, ", ")),
        sampled.step, likely.dump());
}

PerfTrace::PerfTrace(const Backend& backend)
    : backend_(backend), wanted_(trace_wanted(Category::kPerf)), before_(counters_of(backend)) {}

void PerfTrace::end(const Timings& timings) const {
  const std::string prefill = fmt::format("Prefill: {} tokens in {:.1f}ms ({:.1f}/s), {} more from the cache",
                                          timings.prompt_tokens - timings.cached_tokens, timings.prompt_ms,
                                          timings.prompt_tokens_per_second(), timings.cached_tokens);
  const std::string decode = fmt::format("Decode: {} tokens in {:.1f}ms ({:.1f}/s)", timings.generated_tokens,
                                         timings.decode_ms, timings.decode_tokens_per_second());
  log(Level::kInfo, "Engine", prefill);
  log(Level::kInfo, "Engine", decode);
  if (!wanted_) return;
  const auto say = [](const std::string& text, const Json& data) {
    trace(Category::kPerf, -1, text, -1, data.dump());
  };
  say(prefill, {{"tokens", timings.prompt_tokens - timings.cached_tokens},
                {"cached", timings.cached_tokens},
                {"ms", timings.prompt_ms},
                {"tokens_per_second", timings.prompt_tokens_per_second()}});
  std::vector<double> sorted = token_ms_;
  std::sort(sorted.begin(), sorted.end());
  Json decoded = {{"tokens", timings.generated_tokens},
                  {"ms", timings.decode_ms},
                  {"tokens_per_second", timings.decode_tokens_per_second()}};
  std::string line = decode;
  // A device gives several tokens at once, so that the times between tokens mean nothing there.
  if (!sorted.empty() && backend_.device() == nullptr) {
    const double p50 = percentile(sorted, 0.5), p90 = percentile(sorted, 0.9), p99 = percentile(sorted, 0.99);
    line += fmt::format(", ms a token p50={:.2f} p90={:.2f} p99={:.2f}", p50, p90, p99);
    decoded.update({{"p50_ms", p50}, {"p90_ms", p90}, {"p99_ms", p99}});
  }
  say(line, decoded);
  const std::optional<DeviceCounters> after = counters_of(backend_);
  if (!before_ || !after) {
    return say(fmt::format("Counters: the {} backend has no device that counts", backend_.name()),
               {{"backend", backend_.name()}, {"counters", nullptr}});
  }
  const std::uint64_t submits = after->submits - before_->submits,
                      dispatches = after->dispatches - before_->dispatches,
                      read_backs = after->read_backs - before_->read_backs,
                      read_bytes = after->read_back_bytes - before_->read_back_bytes,
                      written = after->written_bytes - before_->written_bytes;
  say(fmt::format("Counters: submits={} dispatches={} readBacks={} ({}) written={}", submits, dispatches,
                  read_backs, human_bytes(read_bytes), human_bytes(written)),
      {{"backend", backend_.name()},
       {"counters",
        {{"submits", submits},
         {"dispatches", dispatches},
         {"read_backs", read_backs},
         {"read_back_bytes", read_bytes},
         {"written_bytes", written}}}});
}

}  // namespace doppler
