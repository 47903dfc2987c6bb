// Runtime: making values, the limits of a render, and calling back into the template; for every builtin.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "base/result.h"
#include "chat/jinja/builtin.h"
#include "chat/jinja/value.h"

namespace doppler::chat::jinja {

// A Python exception's sentence; the evaluator adds the template's name and the line.
template <typename... Args>
[[nodiscard]] std::unexpected<Error> type_error(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::kMismatch, format, std::forward<Args>(args)...);
}

struct Limits {
  // About a microsecond each at most, so a render ends within a minute whatever the template does.
  std::uint64_t steps = 50'000'000;
  std::size_t output_bytes = std::size_t{64} << 20;
  std::uint64_t live_bytes = std::uint64_t{512} << 20;
  // Everything ever allocated: templates that append to one long text are quadratic.
  std::uint64_t total_bytes = std::uint64_t{16} << 30;
};

// Nesting of lists and dicts; every recursion over values is this deep at most.
inline constexpr int kMaxValueDepth = 100;
// One string or list; more than any prompt needs, too little to do harm.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMaxListItems = std::uint64_t{1} << 20;

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : heap(limits.live_bytes, limits.total_bytes), limits_(limits) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Heap heap;

  Value text(std::string s) { return make<StringObject>(Kind::kString, std::move(s)); }
  Value markup(std::string s);
  Value list(Values items) { return make<ListObject>(Kind::kList, std::move(items)); }
  Value tuple(Values items) { return typed(Kind::kTuple, "tuple", std::move(items)); }
  Value generator(Values items) { return typed(Kind::kGenerator, "generator", std::move(items)); }
  Value view(const char* type, Values items) { return typed(Kind::kView, type, std::move(items)); }
  // Entries with unique keys.
  Value dict(std::vector<DictObject::Entry> entries) {
    return make<DictObject>(Kind::kDict, std::move(entries));
  }
  Value undefined(std::string reason) { return make<UndefinedObject>(Kind::kUndefined, std::move(reason)); }
  Value name_space();  // a namespace() without fields
  template <typename T, typename... Args>
  Value make(Kind kind, Args&&... args) {
    return admit(Value::object(kind, std::make_shared<T>(heap, std::forward<Args>(args)...)));
  }

  // Counts work; errors (kLimit) when the steps, the memory or the nesting of the render are used up.
  Status spend(std::uint64_t steps);
  // Refuses a text or list before it is made. Errors: kLimit.
  static Status check_text_size(std::uint64_t bytes);
  static Status check_list_size(std::uint64_t items);

  // Calls a template value: a macro, a method, a function, the loop.
  virtual Result<Value> call(const Value& callee, const Arguments& arguments) = 0;
  virtual std::tm now() const = 0;

  // Set by raise_exception: the message is the template's own.
  bool raised = false;

 protected:
  // Breaks the cycles that namespaces can form.
  void release_namespaces();
  const Limits limits_;

 private:
  Value admit(Value value) {
    if (value.depth() > kMaxValueDepth) {
      too_deep_ = true;
      return Value::none();
    }
    return value;
  }
  Value typed(Kind kind, const char* type, Values items);

  std::uint64_t steps_ = 0;
  bool too_deep_ = false;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

}  // namespace doppler::chat::jinja
