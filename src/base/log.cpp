#include "base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>

#include "base/json.h"
#include "base/screen.h"
#include "base/text.h"
#include "system/files.h"
#include "system/threads.h"

namespace doppler {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"debug", "verbose", "info",
                                                         "warn",  "error",   "silent"};

constexpr std::array<CategoryInfo, static_cast<std::size_t>(Category::kCount)> kCategories = {{
    {Category::kLoader, "loader", "files, tensors and their types, bytes, seconds"},
    {Category::kKernels, "kernels", "what computes each op, and why that"},
    {Category::kEmbed, "embed", "token ids and their embeddings"},
    {Category::kAttn, "attn", "attention's stages"},
    {Category::kFfn, "ffn", "the feed-forward's stages"},
    {Category::kLogits, "logits", "final norm and logits with the likeliest tokens"},
    {Category::kKv, "kv", "the cache at every step: slot, lengths, room of each layer"},
    {Category::kSample, "sample", "the token chosen at every step, and what else was likely"},
    {Category::kBuffers, "buffers", "memory that is allocated, and for what"},
    {Category::kPerf, "perf", "time of prompt and decode, counters of the device"},
}};

// A file of JSON lines; remembers the first failure for close_log(), since writing a line returns no error.
class LineFile {
 public:
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, bool append) {
    if (path.empty()) return std::unique_ptr<LineFile>();
    const auto file = system::open_output(path, append);
    if (!file) {
      return fail(ErrorCode::kIo, "The log file {} cannot be opened: {}.", printable(path, 200),
                  file.error().message());
    }
    return std::unique_ptr<LineFile>(new LineFile(path, *file));
  }
  ~LineFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  void write(std::string_view line) {
    if (error_ != 0) return;
    if (std::fwrite(line.data(), 1, line.size(), file_) != line.size()) error_ = errno;
  }
  Status close() {
    if (std::fflush(file_) != 0 && error_ == 0) error_ = errno;
    if (std::fclose(file_) != 0 && error_ == 0) error_ = errno;
    file_ = nullptr;
    if (error_ == 0) return {};
    return fail(ErrorCode::kIo, "The log file {} is not complete: {}.", printable(path_, 200),
                std::strerror(error_));
  }

 private:
  LineFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  std::FILE* file_;
  int error_ = 0;
};

struct State {
  system::Mutex mutex;
  LogOptions options;
  std::unique_ptr<LineFile> file, trace_file;
  std::deque<LogRecord> ring;
};

// Never destroyed: threads may log until the very end.
State& state() {
  static State* const state = new State;
  return *state;
}

const auto g_start = std::chrono::steady_clock::now();

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - g_start).count();
}

bool module_passes(std::span<const std::string> rules, std::string_view module) {
  bool pass = rules.empty() || rules[0].starts_with('-');
  for (const std::string& rule : rules) {
    const bool out = rule.starts_with('-');
    const std::string_view name = std::string_view(rule).substr(out ? 1 : 0);
    if (name == module || name == "all") pass = !out;
  }
  return pass;
}

bool layer_passes(const LogOptions& options, int layer) {
  return layer < 0 || options.trace_layers.empty() ||
         std::find(options.trace_layers.begin(), options.trace_layers.end(), layer) !=
             options.trace_layers.end();
}

bool step_passes(const LogOptions& options, std::int64_t step) {
  return step < 0 || options.trace_steps == 0 || static_cast<std::uint64_t>(step) <= options.trace_steps;
}

// With the mutex held.
void emit(State& to, LogRecord record) {
  // What passed the filter of the log is shown; warnings and errors in their colours.
  const bool plain = record.is_trace || record.level < Level::kWarn;
  const Said kind = plain ? Said::kAsked : record.level == Level::kWarn ? Said::kWarning : Said::kError;
  if (to.options.screen) say(kind, format_line(record));
  if (to.file || (to.trace_file && record.is_trace)) {
    const std::string line = format_json_line(record) + "\n";
    if (to.file) to.file->write(line);
    if (to.trace_file && record.is_trace) to.trace_file->write(line);
  }
  if (to.options.history == 0) return;
  if (to.ring.size() >= to.options.history) to.ring.pop_front();
  to.ring.push_back(std::move(record));
}

Status close_files(State& of) {
  Status status;
  for (std::unique_ptr<LineFile>* file : {&of.file, &of.trace_file}) {
    if (*file && status) status = (*file)->close();
    file->reset();
  }
  return status;
}

void publish(const LogOptions& options) {
  log_internal::g_level.store(static_cast<std::uint8_t>(options.level), std::memory_order_relaxed);
  log_internal::g_categories.store(options.categories, std::memory_order_relaxed);
}

}  // namespace

namespace log_internal {

constinit std::atomic<std::uint8_t> g_level{static_cast<std::uint8_t>(Level::kWarn)};
constinit std::atomic<CategorySet> g_categories{0};

bool passes(int layer, std::int64_t step) {
  State& current = state();
  const system::Lock lock(current.mutex);
  return layer_passes(current.options, layer) && step_passes(current.options, step);
}

}  // namespace log_internal

std::span<const std::string_view> all_levels() {
  return kLevelNames;
}

std::string_view level_name(Level level) {
  return kLevelNames[static_cast<std::size_t>(level)];
}

std::optional<Level> level_from_name(std::string_view name) {
  const auto at = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (at == kLevelNames.end()) return std::nullopt;
  return static_cast<Level>(at - kLevelNames.begin());
}

std::span<const CategoryInfo> all_categories() {
  return kCategories;
}

std::string_view category_name(Category category) {
  return kCategories[static_cast<std::size_t>(category)].name;
}

Result<CategorySet> parse_categories(std::span<const std::string> words) {
  CategorySet set = !words.empty() && words[0].starts_with('-') ? kAllCategories : 0;
  for (const std::string& word : words) {
    const bool out = word.starts_with('-');
    const std::string_view name = std::string_view(word).substr(out ? 1 : 0);
    CategorySet bits = name == "all" ? kAllCategories : 0;
    std::vector<std::string> known = {"all"};
    for (const CategoryInfo& info : kCategories) {
      known.emplace_back(info.name);
      if (info.name == name) bits = category_bit(info.category);
    }
    if (bits == 0) {
      const std::string nearest = nearest_name(name, known);
      return fail(ErrorCode::kUsage, "There is no trace category {}. {}", printable(name),
                  nearest.empty() ? fmt::format("Categories are {}; -NAME leaves one out.", join(known, ", "))
                                  : fmt::format("Did you mean {}?", nearest));
    }
    set = out ? set & ~bits : set | bits;
  }
  return set;
}

Status configure_log(const LogOptions& options) {
  DOPPLER_ASSIGN(auto file, LineFile::open(options.file, options.append));
  DOPPLER_ASSIGN(auto trace_file, LineFile::open(options.trace_file, /*append=*/false));
  State& current = state();
  const system::Lock lock(current.mutex);
  const Status closed = close_files(current);
  current.options = options;
  current.file = std::move(file);
  current.trace_file = std::move(trace_file);
  while (current.ring.size() > options.history) current.ring.pop_front();
  publish(options);
  return closed;
}

Status close_log() {
  State& current = state();
  const system::Lock lock(current.mutex);
  current.options = LogOptions();
  current.ring.clear();
  publish(current.options);
  return close_files(current);
}

std::string format_line(const LogRecord& record) {
  const std::string text = printable(record.text, SIZE_MAX);
  if (record.is_trace) {
    const std::string_view category = category_name(record.category);
    return record.layer < 0
               ? fmt::format("[{:.1f}ms][TRACE:{}] {}", record.ms, category, text)
               : fmt::format("[{:.1f}ms][TRACE:{}] L{}: {}", record.ms, category, record.layer, text);
  }
  // Errors and warnings begin with their level; the module tells where a line comes from.
  const std::string_view mark = record.level == Level::kError  ? "ERROR "
                                : record.level == Level::kWarn ? "WARN "
                                                               : "";
  return fmt::format("[{:.1f}ms][{}] {}{}", record.ms, record.module, mark, text);
}

std::string format_json_line(const LogRecord& record) {
  Json line = {{"ms", std::round(record.ms * 1000) / 1000}, {"text", record.text}};
  if (record.is_trace) {
    line["category"] = category_name(record.category);
    if (record.layer >= 0) line["layer"] = record.layer;
    if (record.step >= 0) line["step"] = record.step;
  } else {
    line["level"] = level_name(record.level);
    line["module"] = record.module;
  }
  if (!record.data.empty()) {
    Json data = Json::parse(record.data, nullptr, /*allow_exceptions=*/false);
    if (!data.is_discarded()) line["data"] = std::move(data);
  }
  return dump_json(line);
}

std::vector<LogRecord> log_history(std::size_t most, Level level) {
  State& current = state();
  const system::Lock lock(current.mutex);
  std::vector<LogRecord> newest;
  for (auto record = current.ring.rbegin(); record != current.ring.rend() && newest.size() < most; ++record) {
    if (record->is_trace || record->level >= level) newest.push_back(*record);
  }
  std::reverse(newest.begin(), newest.end());
  return newest;
}

void log(Level level, std::string_view module, std::string_view text) {
  if (!log_wanted(level) || level == Level::kSilent) return;
  State& current = state();
  const system::Lock lock(current.mutex);
  if (level < Level::kWarn && !module_passes(current.options.modules, module)) return;
  LogRecord record;
  record.ms = now_ms();
  record.level = level;
  record.module = module;
  record.text = text;
  emit(current, std::move(record));
}

void trace(Category category, int layer, std::string_view text, std::int64_t step, std::string_view data) {
  if ((traced_categories() & category_bit(category)) == 0) return;
  State& current = state();
  const system::Lock lock(current.mutex);
  if (!layer_passes(current.options, layer) || !step_passes(current.options, step)) return;
  LogRecord record;
  record.ms = now_ms();
  record.is_trace = true;
  record.category = category;
  record.layer = layer;
  record.step = step;
  record.text = text;
  record.data = data;
  emit(current, std::move(record));
}

}  // namespace doppler
