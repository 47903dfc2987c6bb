// Log lines by level and module, trace lines by category and layer. Both go to stderr, to JSON-lines files,
// and into a ring of the newest lines that can be read back. Off, either costs one relaxed atomic load; all
// of it may be called from any thread.
//
//   [12.3ms][Loader] 11 tensors, 1.3 MB, 0.01 s
//   [12.3ms][TRACE:attn] L3: q_proj max 4.2
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace doppler {

// From the most to the least verbose; kSilent lets nothing through. info: totals of a phase; verbose: each
// file and layer; debug: only for developers of Doppler.
enum class Level : std::uint8_t { kDebug, kVerbose, kInfo, kWarn, kError, kSilent };
std::span<const std::string_view> all_levels();  // their names, in order
std::string_view level_name(Level level);
std::optional<Level> level_from_name(std::string_view name);

// The subjects of trace lines.
enum class Category : std::uint8_t {
  kLoader,
  kKernels,
  kEmbed,
  kAttn,
  kFfn,
  kLogits,
  kKv,
  kSample,
  kBuffers,
  kPerf,
  kCount,
};
struct CategoryInfo {
  Category category;
  std::string_view name;  // "attn"
  std::string_view what;  // one line for --help and the docs
};
std::span<const CategoryInfo> all_categories();
std::string_view category_name(Category category);

// One bit per Category.
using CategorySet = std::uint32_t;
constexpr CategorySet category_bit(Category category) {
  return CategorySet{1} << static_cast<unsigned>(category);
}
inline constexpr CategorySet kAllCategories = category_bit(Category::kCount) - 1;
// Read from left to right: "all", a name, or a name to leave out, as "-buffers". A list that begins with a
// name to leave out begins with all. Errors: kUsage for an unknown word, with the nearest.
Result<CategorySet> parse_categories(std::span<const std::string> words);

struct LogOptions {
  Level level = Level::kWarn;
  // Which modules may log: names, "-Name" to leave one out; empty: all. Warnings and errors always pass.
  std::vector<std::string> modules;
  CategorySet categories = 0;
  std::vector<int> trace_layers;  // empty: all
  std::uint64_t trace_steps = 0;  // trace the prompt and this many decode steps; 0: all
  bool screen = true;             // stderr
  std::string file;               // JSON lines of everything; empty: none
  bool append = false;            // to `file` instead of replacing it
  std::string trace_file;         // JSON lines of the trace lines alone; empty: none
  std::size_t history = 1000;     // lines the ring holds
};

// Replaces the options, and opens the files. Errors: kIo for a file that cannot be opened; then nothing
// changes.
Status configure_log(const LogOptions& options);
// Writes out and closes the files, and goes back to the options of a new program. Errors: kIo if any line
// could not be written (a full disk).
Status close_log();

// A line as the ring keeps it.
struct LogRecord {
  double ms = 0;  // since the program began
  Level level = Level::kInfo;
  bool is_trace = false;
  Category category = Category::kLoader;  // of trace lines
  int layer = -1;                         // of trace lines; -1: none
  std::int64_t step = -1;                 // of trace lines: 0 the prompt, then decode steps from 1; -1: none
  std::string module;                     // of log lines
  std::string text;
  std::string data;  // the line's values for programs, a JSON object; may be empty
};
std::string format_line(const LogRecord& record);       // as the screen shows it, without a newline
std::string format_json_line(const LogRecord& record);  // as files hold it, without a newline
// The newest of the ring, oldest first: at most `most`, at least as severe as `level`, trace lines included.
std::vector<LogRecord> log_history(std::size_t most, Level level = Level::kDebug);

namespace log_internal {
// The least severe level that passes, and the traced categories: all that callers look at when it is off.
extern constinit std::atomic<std::uint8_t> g_level;
extern constinit std::atomic<CategorySet> g_categories;
bool passes(int layer, std::int64_t step);
}  // namespace log_internal

inline bool log_wanted(Level level) {
  return static_cast<std::uint8_t>(level) >= log_internal::g_level.load(std::memory_order_relaxed);
}
// One line, without a newline; control characters are escaped.
void log(Level level, std::string_view module, std::string_view text);
template <typename... Args>
  requires(sizeof...(Args) > 0)
void log(Level level, std::string_view module, fmt::format_string<Args...> format, Args&&... args) {
  if (log_wanted(level))
    log(level, module, std::string_view(fmt::format(format, std::forward<Args>(args)...)));
}

// The categories that are traced at all, whatever the layer and step: 0 when tracing is off.
inline CategorySet traced_categories() {
  return log_internal::g_categories.load(std::memory_order_relaxed);
}
// Whether a line of this category would be shown. `step` is 0 for the prompt, 1 for the first decode step, …;
// -1 where there is none (loading). `layer` is -1 for lines of no layer, which every layer filter lets
// through.
inline bool trace_wanted(Category category, int layer = -1, std::int64_t step = -1) {
  return (traced_categories() & category_bit(category)) != 0 && log_internal::passes(layer, step);
}

// Writes the line if its category and layer are traced; steps are filtered by trace_wanted(), or here where a
// step is given. `data` holds the line's values for programs, a JSON object.
void trace(Category category, int layer, std::string_view text, std::int64_t step = -1,
           std::string_view data = {});

}  // namespace doppler
